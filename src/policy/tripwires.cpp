#include "policy/tripwires.hpp"

#include <algorithm>
#include <array>

namespace resid {

namespace {

// Calls each(position, follows) for every chunk of T-2; `follows`: the first one after a streamed
// chunk.
template <class Each>
void walk(const Streams& streams, const StreamPlan& plan, Each each) {
  const Path path = streams.path();
  bool follows = path.length != 0 && plan.part(path.chunk(path.length - 1)) == Part::streamed;
  for (std::uint32_t step = 0; step < path.length; ++step) {
    const ChunkId chunk = path.chunk(step);
    const std::uint32_t at = path.position(step);
    if (plan.part(chunk) == Part::streamed) follows = true;
    if (plan.part(chunk) != Part::fixed) continue;
    const bool named_once = streams.ahead(chunk, streams.following(at)) == at;
    if (!named_once) continue;
    each(at, follows);
    follows = false;
  }
}

}  // namespace

void choose_tripwires(const Streams& streams, const StreamPlan& plan, std::uint32_t most,
                      IndexSet& armed) {
  armed.clear();
  if (most == 0) return;
  struct Kind {
    std::uint64_t have = 0;
    std::uint64_t take = 0;
    std::uint64_t passed = 0;
  };
  std::array<Kind, 2> kinds{};  // T-1: those that follow first
  walk(streams, plan, [&](std::uint32_t, bool follows) { ++kinds[follows ? 0 : 1].have; });
  kinds[0].take = std::min<std::uint64_t>(kinds[0].have, most);
  kinds[1].take = std::min<std::uint64_t>(kinds[1].have, most - kinds[0].take);
  walk(streams, plan, [&](std::uint32_t at, bool follows) {
    // Evenly: wherever the share of those passed makes a whole one more.
    Kind& kind = kinds[follows ? 0 : 1];
    const std::uint64_t before = kind.passed++ * kind.take / kind.have;
    if (kind.passed * kind.take / kind.have != before) armed.insert(at);
  });
}

}  // namespace resid

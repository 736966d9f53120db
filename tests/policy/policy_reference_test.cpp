// Every policy against a model of it that recomputes everything, in O(n) or worse, at every step.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "policy/order_policy.hpp"
#include "policy/policy.hpp"

namespace resid {
namespace {

struct Reference {
  enum class Kind { lru, learned, declared };

  Kind kind = Kind::lru;
  SignalMode mode = SignalMode::before_use;
  bool protect = false;
  std::vector<ChunkId> order;
  std::size_t position = 0;
  bool started = false;
  bool closed = false;
  std::vector<bool> candidate;
  std::vector<bool> touched;  // since it was last a candidate
  std::vector<std::uint64_t> stamp;
  std::uint64_t clock = 0;

  std::size_t m() const { return order.size(); }
  bool after() const { return kind == Kind::declared && mode == SignalMode::after_use; }
  std::size_t here() const { return !started && after() && m() > 0 ? m() - 1 : position; }
  ChunkId entry(std::size_t at) const { return order[at % m()]; }

  void grow(std::size_t chunks) {
    candidate.resize(chunks);
    touched.resize(chunks);
    stamp.resize(chunks);
  }
  bool known(ChunkId chunk) const { return chunk < stamp.size(); }
  void touch(ChunkId chunk) {
    stamp[chunk] = ++clock;
    touched[chunk] = true;
  }
  void declare(const std::vector<ChunkId>& sequence) {
    if (kind != Kind::declared) return;
    order.clear();
    for (const ChunkId chunk : sequence) {
      if (known(chunk)) order.push_back(chunk);
    }
    position = 0;
    started = false;
  }
  void step(ChunkId chunk) {
    std::size_t ahead = 0;
    while (entry(here() + ahead) != chunk)
      ++ahead;
    if (started) {
      for (std::size_t back = 1; back <= kStepBack && back < ahead; ++back) {
        if (entry(here() + m() * kStepBack - back) == chunk) return;
      }
    }
    const std::size_t there = (here() + ahead) % m();
    if (there < position) closed = true;
    position = there;
    started = true;
  }
  bool in_order(ChunkId chunk) const {
    return std::find(order.begin(), order.end(), chunk) != order.end();
  }
  void fault(ChunkId chunk) {
    if (!known(chunk)) return;
    touch(chunk);
    if (kind != Kind::learned) return;
    if (in_order(chunk)) {
      step(chunk);
    } else {
      const std::size_t at = m() == 0 ? 0 : position + 1;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), chunk);
      position = at;
      started = true;
    }
  }
  void access(ChunkId chunk) {
    if (!known(chunk) || kind != Kind::declared) return;
    touch(chunk);
    if (in_order(chunk)) step(chunk);
  }
  void become_candidate(ChunkId chunk) {
    if (!known(chunk) || candidate[chunk]) return;
    if (!touched[chunk]) stamp[chunk] = ++clock;
    candidate[chunk] = true;
  }
  void withdraw(ChunkId chunk) {
    if (!known(chunk) || !candidate[chunk]) return;
    candidate[chunk] = touched[chunk] = false;
  }

  std::int64_t distance(ChunkId chunk) const {
    if (!known(chunk) || kind == Kind::lru || !in_order(chunk)) return kNeverUsed;
    if (protect && (chunk == entry(here()) || chunk == entry(here() + m() - 1))) return 0;
    std::size_t d = after() ? 1 : 0;
    while (entry(here() + d) != chunk)
      ++d;
    return static_cast<std::int64_t>(d);
  }
  ChunkId victim() const {
    ChunkId best = kNoChunk;
    for (ChunkId chunk = 0; chunk < candidate.size(); ++chunk) {
      if (!candidate[chunk]) continue;
      if (best == kNoChunk || distance(chunk) > distance(best) ||
          (distance(chunk) == distance(best) && stamp[chunk] < stamp[best])) {
        best = chunk;
      }
    }
    return best;
  }
  ChunkId next(ChunkId chunk) const {
    if (!known(chunk) || !in_order(chunk)) return kNoChunk;
    if (kind == Kind::learned && chunk == order.back() && !closed) return kNoChunk;
    std::size_t ahead = 0;
    while (entry(here() + ahead) != chunk)
      ++ahead;
    return entry(here() + ahead + 1);
  }
  std::vector<ChunkId> upcoming(std::size_t most) const {
    std::vector<ChunkId> out;
    if (m() == 0) return out;
    std::size_t at = here() + 1;
    if (!started) at = 0;
    for (; out.size() < std::min(most, m()); ++at) {
      if (kind == Kind::learned && !closed && at == m()) break;
      out.push_back(entry(at));
    }
    return out;
  }
};

constexpr ChunkId kChunks = 12;

void compare(Policy& policy, const Reference& reference) {
  for (ChunkId chunk = 0; chunk < kChunks + 2; ++chunk) {
    RC_ASSERT(policy.next_use_distance(chunk) == reference.distance(chunk));
    RC_ASSERT(policy.predict_next(chunk) == reference.next(chunk));
  }
  for (const std::size_t most : {1U, 3U, 64U}) {
    std::vector<ChunkId> out(most, kNoChunk);
    out.resize(policy.upcoming(out));
    RC_ASSERT(out == reference.upcoming(most));
  }
  RC_ASSERT(policy.select_victim() == reference.victim());
}

// `length`: of the declared sequences. Ids reach past what grow() was told of.
void run(std::string_view name, Reference::Kind kind, std::size_t length) {
  auto made = make_policy(name);
  RC_ASSERT(made.has_value());
  Policy& policy = **made;
  Reference reference;
  reference.kind = kind;

  const auto chunk_id = rc::gen::inRange<ChunkId>(0, kChunks + 2);
  const auto sequences = *rc::gen::container<std::array<std::vector<ChunkId>, 3>>(
      rc::gen::container<std::vector<ChunkId>>(length, chunk_id));
  const auto ops =
      *rc::gen::scale(3, rc::gen::container<std::vector<std::pair<int, ChunkId>>>(rc::gen::pair(
                             rc::gen::inRange(0, 100), rc::gen::resize(100, chunk_id))));

  // The first grow leaves two ids for a later one.
  std::vector<std::uint32_t> bytes(kChunks - 2, 4096);
  policy.grow(bytes);
  reference.grow(bytes.size());
  policy.declare_sequence(sequences[0]);
  reference.declare(sequences[0]);

  for (const auto& [op, chunk] : ops) {
    if (op < 25) {
      policy.on_access(chunk);
      reference.access(chunk);
    } else if (op < 45) {
      policy.on_fault(chunk);
      reference.fault(chunk);
    } else if (op < 75) {
      policy.candidate(chunk);
      reference.become_candidate(chunk);
    } else if (op < 90) {
      policy.withdraw(chunk);
      reference.withdraw(chunk);
    } else if (op < 93) {
      policy.set_protect_current(chunk % 2 == 0);
      reference.protect = chunk % 2 == 0;
    } else if (op < 96) {
      const SignalMode mode = chunk % 2 == 0 ? SignalMode::before_use : SignalMode::after_use;
      policy.set_signal_mode(mode);
      reference.mode = mode;
    } else if (op < 98) {
      bytes.resize(kChunks, 8192);
      policy.grow(bytes);
      reference.grow(bytes.size());
    } else {
      const auto& sequence = sequences[chunk % sequences.size()];
      policy.declare_sequence(sequence);
      reference.declare(sequence);
    }
    compare(policy, reference);
  }
}

RC_GTEST_PROP(Reference, lru, ()) {
  run("lru", Reference::Kind::lru, 8);
}

RC_GTEST_PROP(Reference, layer_order_learned, ()) {
  run("layer_order_learned", Reference::Kind::learned, 8);
}

// Short cycles are shorter than the step-back window.
RC_GTEST_PROP(Reference, layer_order_declared_with_a_short_order, ()) {
  run("layer_order_declared", Reference::Kind::declared, *rc::gen::inRange<std::size_t>(0, 6));
}

RC_GTEST_PROP(Reference, layer_order_declared_with_repeats, ()) {
  run("layer_order_declared", Reference::Kind::declared, *rc::gen::inRange<std::size_t>(6, 80));
}

}  // namespace
}  // namespace resid

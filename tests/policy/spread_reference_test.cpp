// `layer_order_spread` while it keeps to an order, against a model of it that looks at every entry
// for every question. The plan itself is taken from StreamPlan, which has a test of its own.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policy/policy.hpp"
#include "policy/streams.hpp"

namespace resid {
namespace {

std::uint32_t number(std::uint32_t low, std::uint32_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high));
}

struct Reference {
  struct Stream {
    std::size_t at = 0;
    std::size_t idle = 0;
  };
  std::vector<std::uint32_t> bytes;
  std::vector<ChunkId> order;
  StreamPlan plan;
  bool protect = false;
  std::vector<Stream> streams;
  std::size_t latest = 0;
  std::vector<ChunkId> by_age;  // the candidates, oldest first
  std::size_t surprises = 0;
  std::size_t rounds = 0;

  std::size_t m() const { return order.size(); }
  ChunkId entry(std::size_t at) const { return order[at % m()]; }
  std::size_t steps(std::size_t from, std::size_t to) const { return (to + m() - from) % m(); }
  bool in_order(ChunkId chunk) const {
    return std::find(order.begin(), order.end(), chunk) != order.end();
  }
  bool is_candidate(ChunkId chunk) const {
    return std::find(by_age.begin(), by_age.end(), chunk) != by_age.end();
  }
  bool is_streamed(ChunkId chunk) const { return plan.part(chunk) == Part::streamed; }

  void replan(std::uint64_t budget, std::uint64_t window) {
    plan.grow(static_cast<std::uint32_t>(bytes.size()));
    plan.make({order, 0, static_cast<std::uint32_t>(m())}, bytes, budget, window);
  }

  void touch(ChunkId chunk) {
    const auto found = std::find(by_age.begin(), by_age.end(), chunk);
    if (found != by_age.end()) std::rotate(found, found + 1, by_age.end());
  }

  std::size_t ahead(std::size_t from, ChunkId chunk) const {
    std::size_t by = 0;
    while (entry(from + by) != chunk)
      ++by;
    return by;
  }
  std::size_t back(std::size_t from, ChunkId chunk) const {
    std::size_t by = 1;
    while (entry(from + m() * 2 - by) != chunk)
      ++by;
    return by;
  }
  bool foreseen(std::size_t from, std::size_t by) const {
    const std::size_t gap = plan.widest_gap();
    if (by <= std::max<std::size_t>(1, std::min<std::size_t>(32, m() / 16))) return true;
    if (m() > 64 && by > std::max(m() / 4, gap * 2 + kStepBack)) return false;
    std::size_t silent = 0;
    for (std::size_t i = 1; i + kStepBack < by; ++i) {
      if (is_streamed(entry(from + i)) && !is_candidate(entry(from + i))) ++silent;
    }
    return silent <= 1;
  }

  void signal(ChunkId chunk) {
    touch(chunk);
    if (!in_order(chunk)) return;
    if (streams.empty()) {
      streams.push_back({ahead(0, chunk), 0});
      latest = 0;
      return;
    }
    std::size_t best = streams.size();
    std::size_t way = m() * 2;
    bool steps_back = false;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const std::size_t by = ahead(streams[s].at, chunk);
      const std::size_t behind = back(streams[s].at, chunk);
      if (behind <= kStepBack && behind < by) {
        if (behind < way) {
          best = s;
          way = behind;
          steps_back = true;
        }
      } else if ((by < way || (by == way && steps_back)) && foreseen(streams[s].at, by)) {
        best = s;
        way = by;
        steps_back = false;
      }
    }
    if (best == streams.size()) {
      ++surprises;
      const std::size_t to = (streams[latest].at + ahead(streams[latest].at, chunk)) % m();
      if (streams.size() < 4) {
        latest = streams.size();
        streams.push_back({to, 0});
      } else {
        latest = 0;
        for (std::size_t s = 1; s < streams.size(); ++s) {
          if (streams[s].idle > streams[latest].idle) latest = s;
        }
        streams[latest] = {to, 0};
      }
      return;
    }
    latest = best;
    streams[best].idle = 0;
    if (!steps_back) {
      if (streams[best].at + way >= m()) ++rounds;
      streams[best].at = (streams[best].at + way) % m();
      for (std::size_t s = 0; s < streams.size(); ++s) {
        if (s != best) streams[s].idle += way;
      }
    }
    const std::size_t few = std::min<std::size_t>(64, m() / 4);
    const std::size_t limit =
        std::min(std::max<std::size_t>(few, plan.widest_gap() * std::size_t{4}), m()) *
        (streams.size() - 1);
    for (std::size_t s = streams.size(); s > 0; --s) {
      if (s - 1 == latest || streams[s - 1].idle <= limit) continue;
      streams[s - 1] = streams.back();
      if (latest == streams.size() - 1) latest = s - 1;
      streams.pop_back();
    }
  }

  bool is_read(ChunkId chunk) const {
    return std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
      const bool before = entry(s.at + m() - 1) == chunk;
      return entry(s.at) == chunk || (before && (protect || chunk + 1 == entry(s.at)));
    });
  }
  std::size_t nearest(ChunkId chunk) const {
    std::size_t least = streams.empty() ? ahead(0, chunk) : m();
    for (const Stream& s : streams)
      least = std::min(least, ahead(s.at, chunk));
    return least;
  }
  std::int64_t distance(ChunkId chunk) const {
    if (!in_order(chunk)) return kNeverUsed;
    return is_read(chunk) ? 0 : static_cast<std::int64_t>(nearest(chunk));
  }
  bool named_once(ChunkId chunk) const {
    return std::count(order.begin(), order.end(), chunk) == 1;
  }
  // Candidates of the path that nobody reads at and that it names once.
  ChunkId furthest(Part part = Part::streamed) const {
    ChunkId best = kNoChunk;
    for (const ChunkId chunk : by_age) {
      if (plan.part(chunk) != part || !named_once(chunk) || is_read(chunk)) continue;
      if (best == kNoChunk || distance(chunk) > distance(best)) best = chunk;
    }
    return best;
  }
  ChunkId oldest(Part part) const {
    for (const ChunkId chunk : by_age) {
      if (plan.part(chunk) == part && !is_read(chunk)) return chunk;
    }
    return kNoChunk;
  }
  // Any of the furthest is right, and any of the last resort.
  bool victim_is_right(ChunkId victim) const {
    if (const ChunkId chunk = spent(); chunk != kNoChunk)
      return victim == chunk || as_far(victim, chunk);
    if (const ChunkId outside = oldest(Part::outside); outside != kNoChunk)
      return victim == outside;
    for (const Part part : {Part::streamed, Part::fixed}) {
      if (const ChunkId chunk = furthest(part); chunk != kNoChunk) {
        return victim != kNoChunk && plan.part(victim) == part && named_once(victim) &&
               as_far(victim, chunk);
      }
    }
    if (const ChunkId chunk = oldest(Part::fixed); chunk != kNoChunk) return victim == chunk;
    return by_age.empty() ? victim == kNoChunk : is_candidate(victim);
  }
  bool as_far(ChunkId victim, ChunkId chunk) const {
    return victim != kNoChunk && chunk != kNoChunk && is_candidate(victim) &&
           distance(victim) == distance(chunk);
  }
  std::vector<ChunkId> upcoming(std::size_t most) const {
    std::multimap<std::size_t, ChunkId> by_distance;
    for (const ChunkId chunk : order) {
      const bool read_now = !streams.empty() && nearest(chunk) == 0;
      if (is_streamed(chunk) && !read_now) by_distance.emplace(nearest(chunk), chunk);
    }
    std::vector<ChunkId> out;
    for (const auto& [distance, chunk] : by_distance) {
      if (out.size() == most) break;
      out.push_back(chunk);
    }
    return out;
  }
  ChunkId spent() const {
    if (streams.empty()) return kNoChunk;
    const ChunkId other = plan.streamed() == 0 ? kNoChunk : oldest(Part::outside);
    const ChunkId chunk = furthest();
    if (chunk == kNoChunk) return other;
    const std::vector<ChunkId> before = upcoming(std::min<std::size_t>(16, plan.streamed() / 2));
    const bool first = before.empty() || nearest(chunk) > nearest(before.back());
    return first ? chunk : other;
  }
};

void compare(Policy& policy, const Reference& reference) {
  for (ChunkId chunk = 0; chunk < reference.bytes.size(); ++chunk)
    RC_ASSERT(policy.next_use_distance(chunk) == reference.distance(chunk));
  RC_ASSERT(reference.victim_is_right(policy.select_victim()));
  const ChunkId spent = policy.spent();
  RC_ASSERT(spent == reference.spent() || reference.as_far(spent, reference.spent()));
  std::vector<ChunkId> out(reference.m() + 3);
  for (const std::size_t most : {std::size_t{3}, out.size()}) {
    const std::size_t count = policy.upcoming(std::span(out).first(most));
    const std::vector<ChunkId> expected = reference.upcoming(most);
    // Of equal distances any order is right.
    RC_ASSERT(count == expected.size());
    for (std::size_t i = 0; i < count; ++i)
      RC_ASSERT(reference.nearest(out[i]) == reference.nearest(expected[i]));
  }
  const OrderReport report = policy.order_report();
  RC_ASSERT(report.streams == reference.streams.size());
  RC_ASSERT(report.surprises == reference.surprises);
  RC_ASSERT(report.cycles == reference.rounds);
  RC_ASSERT(report.fixed_bytes == reference.plan.fixed_bytes());
  RC_ASSERT(report.streamed_bytes == reference.plan.streamed_bytes());
}

void run(std::uint32_t chunks, std::uint32_t repeats) {
  auto made = make_policy("layer_order_spread");
  RC_ASSERT(made.has_value());
  Policy& policy = **made;
  Reference reference;
  for (ChunkId chunk = 0; chunk < chunks; ++chunk) {
    reference.bytes.push_back(4096 * (number(0, 3) != 0 ? 16 : number(1, 16)));
    if (number(0, 16) != 0) reference.order.push_back(chunk);
  }
  if (reference.order.empty()) reference.order.push_back(0);
  for (std::uint32_t i = 0; i < repeats; ++i) {
    const auto at = number(0, static_cast<std::uint32_t>(reference.m()) + 1);
    reference.order.insert(reference.order.begin() + at, reference.entry(number(0, 1000)));
  }
  policy.grow(reference.bytes);
  std::uint64_t total = 0;
  for (const std::uint32_t each : reference.bytes)
    total += each;
  std::uint64_t budget = number(0, static_cast<std::uint32_t>(total));
  const std::uint64_t window = number(0, 4) * 16 * 4096;
  // Either may come first.
  const bool room_first = number(0, 2) == 0;
  if (room_first) policy.set_room(budget, window);
  policy.declare_sequence(reference.order);
  if (!room_first) policy.set_room(budget, window);
  reference.replan(budget, window);
  std::uint64_t replans = 0;

  const std::uint32_t ops = number(0, 250);
  for (std::uint32_t i = 0; i < ops; ++i) {
    const std::uint32_t op = number(0, 100);
    const ChunkId chunk = number(0, chunks);
    if (op < 45) {
      // A step ahead of some stream, a late signal, now and then anything.
      ChunkId target = chunk;
      if (!reference.streams.empty() && op >= 3) {
        const std::size_t at = reference.streams[number(0, 100) % reference.streams.size()].at;
        target = op < 35 ? reference.entry(at + number(1, 5))
                         : reference.entry(at + 2 * reference.m() * kStepBack - number(0, 10));
      }
      policy.on_access(target);
      reference.signal(target);
    } else if (op < 48) {
      policy.on_fault(chunk);
      reference.touch(chunk);
    } else if (op < 75) {
      policy.candidate(chunk);
      if (!reference.is_candidate(chunk)) reference.by_age.push_back(chunk);
    } else if (op < 96) {
      policy.withdraw(chunk);
      std::erase(reference.by_age, chunk);
    } else if (op < 98) {
      reference.protect = !reference.protect;
      policy.set_protect_current(reference.protect);
    } else {
      const std::uint64_t before = budget;
      budget = number(0, static_cast<std::uint32_t>(total));
      policy.set_room(budget, window);
      reference.replan(budget, window);
      if (budget != before && policy.order_report().signals != 0) ++replans;
    }
    // What the model does not follow: recency, and an order cut down to a stretch.
    const OrderReport report = policy.order_report();
    if (report.mode != OrderReport::Mode::cyclic || report.replans != replans) {
      RC_TAG("left at " +
             std::string(report.mode == OrderReport::Mode::cyclic ? "a stretch" : "recency"));
      return;
    }
    compare(policy, reference);
  }
  RC_TAG("to the end");
}

RC_GTEST_PROP(SpreadReference, an_order_without_repeats, ()) {
  run(number(1, 120), 0);
}

RC_GTEST_PROP(SpreadReference, an_order_with_repeats, ()) {
  run(number(1, 60), number(1, 20));
}

RC_GTEST_PROP(SpreadReference, a_short_order, ()) {
  run(number(1, 8), number(0, 3));
}

// Positions of a path that is a stretch of the order are those of the stretch alone, moved.
RC_GTEST_PROP(SpreadReference, a_stretch_is_an_order_of_its_own, ()) {
  const std::uint32_t size = number(2, 100);
  std::vector<ChunkId> order(size);
  for (ChunkId& chunk : order)
    chunk = number(0, size);
  Streams whole;
  whole.grow(size, size);
  whole.assign(order);
  const std::uint32_t first = number(0, size);
  const std::uint32_t length = number(1, size);
  whole.restrict({first, (first + length - 1) % size});
  RC_ASSERT(whole.length() == length);

  std::vector<ChunkId> part(length);
  for (std::uint32_t i = 0; i < length; ++i)
    part[i] = order[(first + i) % size];
  Streams alone;
  alone.grow(size, size);
  alone.assign(part);
  const auto moved = [&](std::uint32_t position) { return (first + position) % size; };

  IndexSet some;
  IndexSet some_alone;
  some.resize(size);
  some_alone.resize(size);
  for (std::uint32_t i = 0; i < length; ++i) {
    if (number(0, 4) != 0) continue;
    some_alone.insert(i);
    some.insert(moved(i));
  }
  for (std::uint32_t i = 0; i < 200; ++i) {
    const ChunkId chunk = number(0, size);
    RC_ASSERT(whole.in_path(chunk) == alone.in_order(chunk));
    if (!alone.in_order(chunk)) continue;
    const auto step = whole.signal(chunk, some, 5);
    RC_ASSERT(step == alone.signal(chunk, some_alone, 5));
    RC_ASSERT(whole.advanced() == alone.advanced());
    RC_ASSERT(whole.came_round() == alone.came_round());
    RC_ASSERT(whole.count() == alone.count());
    for (std::uint32_t s = 0; s < whole.count(); ++s) {
      RC_ASSERT(whole.position(s) == moved(alone.position(s)));
      RC_ASSERT(whole.following(whole.position(s)) == moved(alone.following(alone.position(s))));
      RC_ASSERT(whole.preceding(whole.position(s)) == moved(alone.preceding(alone.position(s))));
    }
    RC_ASSERT(whole.distance(chunk) == alone.distance(chunk));
    const auto stretch = whole.closed_path();
    RC_ASSERT(stretch.has_value() == alone.closed_path().has_value());
    if (i % 5 != 0) continue;
    for (std::uint32_t s = 0; s < whole.count(); ++s) {
      const std::uint32_t taken = alone.take_passed(s, some_alone);
      RC_ASSERT(whole.take_passed(s, some) == (taken == Streams::kNone ? taken : moved(taken)));
    }
  }
}

RC_GTEST_PROP(SpreadReference, joiners_go_in_behind_their_places, ()) {
  const std::uint32_t size = number(1, 40);
  const std::uint32_t more = number(1, 20);
  std::vector<ChunkId> order(size);
  for (std::uint32_t i = 0; i < size; ++i)
    order[i] = i;
  Streams streams;
  streams.grow(size + more, size + more);
  streams.assign(order);
  streams.start(number(0, size));
  const ChunkId at = streams.chunk_at(streams.position(0));
  std::vector<Joiner> joiners(more);
  for (std::uint32_t i = 0; i < more; ++i)
    joiners[i] = {number(0, size), i, size + i};
  std::sort(joiners.begin(), joiners.end(), [](const Joiner& a, const Joiner& b) {
    return std::pair(a.after, a.nth) < std::pair(b.after, b.nth);
  });
  std::vector<ChunkId> expected;
  for (std::uint32_t i = 0; i < size; ++i) {
    expected.push_back(i);
    for (const Joiner& joiner : joiners) {
      if (joiner.after == i) expected.push_back(joiner.chunk);
    }
  }
  streams.join(joiners);
  RC_ASSERT(streams.size() == size + more);
  for (std::uint32_t i = 0; i < streams.size(); ++i) {
    RC_ASSERT(streams.chunk_at(i) == expected[i]);
    RC_ASSERT(streams.ahead(expected[i], 0) == i);
  }
  RC_ASSERT(streams.chunk_at(streams.position(0)) == at);
}

}  // namespace
}  // namespace resid

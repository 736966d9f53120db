// The simulation against slow references: an LRU that scans, and an optimum that tries everything.

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "expert/routing_hits.hpp"
#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

using Ids = std::vector<std::uint32_t>;
using Held = std::set<std::uint32_t>;

template <class T>
T between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}

RoutingTrace some_trace(std::uint32_t tokens, std::uint32_t layers, std::uint32_t experts,
                        std::uint32_t used) {
  RoutingTrace trace;
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    trace.layers.push_back(layer);
  trace.experts = experts;
  trace.used = used;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    trace.tokens.push_back({0, t, t});
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      std::vector<ExpertId> chosen;
      while (chosen.size() < used) {
        const auto expert = static_cast<ExpertId>(between<std::uint32_t>(0, experts - 1));
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end())
          chosen.push_back(expert);
      }
      trace.choices.insert(trace.choices.end(), chosen.begin(), chosen.end());
    }
  }
  return trace;
}

// The string of requests of a trace of one layer.
Ids requests(const RoutingTrace& trace) {
  return {trace.choices.begin(), trace.choices.end()};
}

// Whom the rule lets go when `asked[at]` is missed: expert_cache.hpp, in its plainest form.
Ids may_go(const Ids& asked, std::size_t at, std::uint32_t used, ExpertHold hold,
           const Held& held) {
  const std::size_t begin = at - at % used;
  const auto stands_in = [&](std::uint32_t e, std::size_t from, std::size_t to) {
    const auto first = asked.begin() + static_cast<std::ptrdiff_t>(from);
    const auto last = asked.begin() + static_cast<std::ptrdiff_t>(to);
    return std::find(first, last, e) != last;
  };
  Ids free;
  Ids served;
  for (const std::uint32_t e : held) {
    const bool pending = stands_in(e, at, begin + used);
    const bool was_used = stands_in(e, begin, at);
    if (hold == ExpertHold::none || (!pending && !was_used)) {
      free.push_back(e);
    } else if (!pending) {
      served.push_back(e);
    }
  }
  if (hold == ExpertHold::pending) free.insert(free.end(), served.begin(), served.end());
  if (!free.empty()) return free;
  if (!served.empty()) return served;
  return {held.begin(), held.end()};
}

// The most hits from position `at` on, trying every victim.
std::uint64_t most(const Ids& asked, std::size_t at, std::uint32_t used, ExpertHold hold,
                   const Held& held, std::size_t cap) {
  if (at == asked.size()) return 0;
  Held then = held;
  if (!then.insert(asked[at]).second) return 1 + most(asked, at + 1, used, hold, then, cap);
  if (held.size() < cap) return most(asked, at + 1, used, hold, then, cap);
  std::uint64_t best = 0;
  for (const std::uint32_t victim : may_go(asked, at, used, hold, held)) {
    Held without = then;
    without.erase(victim);
    best = std::max(best, most(asked, at + 1, used, hold, without, cap));
  }
  return best;
}

RC_GTEST_PROP(RoutingOptimum, EqualsTheBestOfAllChoices, ()) {
  const auto used = between<std::uint32_t>(1, 3);
  const auto tokens = between<std::uint32_t>(3, 15 / used);
  const auto trace = some_trace(tokens, 1, between<std::uint32_t>(used, 6), used);
  const auto hold = static_cast<ExpertHold>(between<std::uint32_t>(0, 2));
  // With ExpertHold::token nothing is claimed for a cap below what a token uses.
  const auto cap = between<std::uint32_t>(hold == ExpertHold::token ? used : 1, 4);
  ExpertRoom room = ExpertRoom::of(trace, cap);
  room.hold = hold;
  const auto optimum = routing_optimum(trace, room);
  RC_ASSERT(optimum.has_value());
  RC_ASSERT(optimum->hits[0] == most(requests(trace), 0, used, hold, {}, cap));
}

// Every victim by a scan for the oldest use.
std::uint64_t slow_lru(const RoutingTrace& trace, ExpertHold hold, std::size_t cap) {
  const Ids asked = requests(trace);
  Held held;
  std::map<std::uint32_t, std::size_t> last;
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (held.count(asked[i]) != 0) {
      ++hits;
    } else {
      if (held.size() == cap) {
        const Ids free = may_go(asked, i, trace.used, hold, held);
        held.erase(*std::min_element(free.begin(), free.end(),
                                     [&](auto a, auto b) { return last[a] < last[b]; }));
      }
      held.insert(asked[i]);
    }
    last[asked[i]] = i;
  }
  return hits;
}

RC_GTEST_PROP(RoutingHits, LruIsTheScanForTheOldest, ()) {
  const auto used = between<std::uint32_t>(1, 4);
  const auto trace = some_trace(60, 1, between<std::uint32_t>(used, 12), used);
  const auto hold = static_cast<ExpertHold>(between<std::uint32_t>(0, 2));
  const auto cap = between<std::uint32_t>(hold == ExpertHold::none ? 1 : used, 12);
  ExpertRoom room = ExpertRoom::of(trace, cap);
  room.hold = hold;
  const auto hits = routing_hits(trace, "lru", room);
  RC_ASSERT(hits.has_value());
  RC_ASSERT(hits->hits[0] == slow_lru(trace, hold, cap));
}

RC_GTEST_PROP(RoutingHits, NoRankingBeatsTheOptimum, ()) {
  const auto layers = between<std::uint32_t>(1, 3);
  const auto trace = some_trace(60, layers, 10, 2);
  ExpertRoom room = ExpertRoom::of(trace, between<std::uint32_t>(2, 10));
  room.hold = static_cast<ExpertHold>(between<std::uint32_t>(0, 2));
  room.pool = between<int>(0, 1) != 0;
  const auto optimum = routing_optimum(trace, room);
  RC_ASSERT(optimum.has_value());
  for (const std::string_view name : expert_ranking_names()) {
    const auto hits = routing_hits(trace, name, room);
    RC_ASSERT(hits.has_value());
    RC_ASSERT(hits->rate() <= optimum->rate());
  }
}

RC_GTEST_PROP(RoutingHits, APoolIsAtItsBestNoWorseThanItsParts, ()) {
  const auto trace = some_trace(60, 3, 10, 2);
  ExpertRoom room = ExpertRoom::of(trace, between<std::uint32_t>(2, 9));
  const auto parts = routing_optimum(trace, room);
  room.pool = true;
  const auto pool = routing_optimum(trace, room);
  RC_ASSERT(parts.has_value() && pool.has_value());
  RC_ASSERT(pool->rate() >= parts->rate());
}

TEST(RoutingHits, EachLayerHasItsOwnCap) {
  RoutingTrace trace;
  trace.layers = {4, 9};
  trace.experts = 3;
  trace.used = 1;
  for (std::uint32_t t = 0; t < 30; ++t) {
    trace.tokens.push_back({0, t, t});
    for (int layer = 0; layer < 2; ++layer)
      trace.choices.push_back(static_cast<ExpertId>(t % 3));
  }
  ExpertRoom room;
  room.caps = {3, 2};
  const auto hits = routing_hits(trace, "lru", room);
  ASSERT_TRUE(hits);
  EXPECT_EQ(hits->hits, (std::vector<std::uint64_t>{27, 0}));
  EXPECT_EQ(hits->asked, 30U);
  EXPECT_DOUBLE_EQ(hits->rate(), 0.45);
}

TEST(RoutingHits, RefusesRoomThatDoesNotFitTheTrace) {
  RoutingTrace trace;
  trace.layers = {0};
  trace.experts = 2;
  trace.used = 1;
  EXPECT_EQ(routing_hits(trace, "lru", ExpertRoom::of(trace, 1)).error().status, Status::usage);
  trace.tokens.push_back({0, 0, 0});
  trace.choices.push_back(0);
  EXPECT_TRUE(routing_hits(trace, "lru", ExpertRoom::of(trace, 1)));
  EXPECT_EQ(routing_hits(trace, "lru", ExpertRoom::of(trace, 0)).error().status, Status::usage);
  EXPECT_EQ(routing_optimum(trace, ExpertRoom::of(trace, 0)).error().status, Status::usage);
  EXPECT_EQ(routing_hits(trace, "magic", ExpertRoom::of(trace, 1)).error().status, Status::usage);
  ExpertRoom two;
  two.caps = {1, 1};
  EXPECT_EQ(routing_hits(trace, "lru", two).error().status, Status::usage);
}

}  // namespace
}  // namespace resid

// The trace of the model in models/, against the figures that its card gives, and the ranking of
// our own against the goal it was built for.

#include <array>

#include <gtest/gtest.h>

#include "expert/routing_hits.hpp"

namespace resid {
namespace {

const RoutingTrace& trace() {
  static const RoutingTrace kTrace = [] {
    auto read = read_routing(RESID_SOURCE_DIR "/models/routing-trace.csv.xz", 32);
    EXPECT_TRUE(read) << read.error().line();
    return read ? std::move(*read) : RoutingTrace{};
  }();
  return kTrace;
}

TEST(ModelCard, TheTraceIsWhatTheCardSays) {
  EXPECT_EQ(trace().tokens.size(), 2048U);
  EXPECT_EQ(trace().layers.size(), 6U);
  EXPECT_EQ(trace().used, 4U);
}

// The card's columns "LRU 8 of 32", "LRU 16" and "LRU 24", to the digit.
TEST(ModelCard, LruHitsWhatTheCardSays) {
  struct Column {
    std::uint32_t cap;
    std::array<double, 6> layers;
    double mean;
  };
  const std::array<Column, 3> columns = {{
      {8, {0.448, 0.301, 0.441, 0.535, 0.527, 0.516}, 0.461},
      {16, {0.810, 0.570, 0.751, 0.799, 0.810, 0.807}, 0.758},
      {24, {0.939, 0.851, 0.903, 0.935, 0.939, 0.942}, 0.918},
  }};
  for (const Column& column : columns) {
    const auto hits = routing_hits(trace(), "lru", ExpertRoom::of(trace(), column.cap));
    ASSERT_TRUE(hits) << hits.error().line();
    for (std::size_t layer = 0; layer < column.layers.size(); ++layer)
      EXPECT_NEAR(hits->rate(layer), column.layers[layer], 0.0005) << column.cap << " " << layer;
    EXPECT_NEAR(hits->rate(), column.mean, 0.0005) << column.cap;
  }
}

// The card has no optimum: these are from another program, written for the purpose, which looks for
// the furthest next use by a scan.
TEST(ModelCard, TheOptimumIsWhatAnotherProgramFound) {
  const std::array<std::pair<std::uint32_t, double>, 4> found = {
      {{4, 0.4572}, {8, 0.6908}, {16, 0.8899}, {24, 0.9670}}};
  for (const auto& [cap, rate] : found) {
    const auto best = routing_optimum(trace(), ExpertRoom::of(trace(), cap));
    ASSERT_TRUE(best) << best.error().line();
    EXPECT_NEAR(best->rate(), rate, 0.00005) << cap;
  }
}

// ---- What `foresight` was built for

// The part of the trace that its parameters were not fitted on.
RoutingTrace held_out() {
  RoutingTrace part = trace();
  part.tokens.clear();
  part.choices.clear();
  for (std::size_t token = 0; token < trace().tokens.size(); ++token) {
    if (trace().tokens[token].seq < 2) continue;
    part.tokens.push_back(trace().tokens[token]);
    for (std::size_t layer = 0; layer < trace().layers.size(); ++layer) {
      const auto chosen = trace().choice(token, layer);
      part.choices.insert(part.choices.end(), chosen.begin(), chosen.end());
    }
  }
  return part;
}

// Never behind lru or lfru, and 40 % of the way from lru to the optimum wherever that is longer
// than 5 points.
void expect_goal(const RoutingTrace& on) {
  for (const ExpertHold hold : {ExpertHold::none, ExpertHold::pending, ExpertHold::token}) {
    for (const std::uint32_t cap : {4, 8, 16, 24}) {
      ExpertRoom room = ExpertRoom::of(on, cap);
      room.hold = hold;
      const auto lru = routing_hits(on, "lru", room);
      const auto lfru = routing_hits(on, "lfru", room);
      const auto ours = routing_hits(on, "foresight", room);
      const auto best = routing_optimum(on, room);
      ASSERT_TRUE(lru && lfru && ours && best);
      const auto where = testing::Message() << "cap " << cap << ", hold " << static_cast<int>(hold);
      EXPECT_GE(ours->rate(), lru->rate()) << where;
      EXPECT_GE(ours->rate(), lfru->rate()) << where;
      const double gap = best->rate() - lru->rate();
      if (gap > 0.05) {
        EXPECT_GE((ours->rate() - lru->rate()) / gap, 0.40) << where;
      }
    }
  }
}

TEST(Foresight, ReachesItsGoalOnTextThatItWasNotFittedOn) {
  const RoutingTrace part = held_out();
  ASSERT_EQ(part.tokens.size(), 1024U);
  expect_goal(part);
}

TEST(Foresight, ReachesItsGoalOnTheWholeTrace) {
  expect_goal(trace());
}

}  // namespace
}  // namespace resid

// What the rankings of experts say, case by case.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

using Ids = std::vector<ExpertId>;

std::unique_ptr<ExpertRanking> ranking(std::string_view name, const ExpertShape& shape) {
  auto made = make_expert_ranking(name, shape);
  EXPECT_TRUE(made) << made.error().line();
  return std::move(*made);
}

void token(ExpertRanking& r, std::uint32_t layer, const Ids& chosen) {
  r.choose(layer, chosen);
  for (const ExpertId expert : chosen)
    r.use(layer, expert);
}

constexpr ExpertShape kSmall{2, 8, 2};

TEST(ExpertRanking, AnUnknownNameIsAnsweredWithThoseThereAre) {
  const auto made = make_expert_ranking("belady", kSmall);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, Status::usage);
  EXPECT_THAT(made.error().todo, testing::HasSubstr("lru, lfru, foresight"));
}

class EveryRanking : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, EveryRanking, testing::ValuesIn(expert_ranking_names()));

TEST_P(EveryRanking, BeginsWithWhatEarlierRunsUsed) {
  const auto r = ranking(GetParam(), kSmall);
  r->remember(0, std::vector<float>{0, 10, 5000, 400, 0, 30, 2000, 0}, 10'000);
  r->remember(1, std::vector<float>{4000, 0, 0, 0, 0, 0, 0, 90}, 10'000);
  const auto worth = r->worth();
  // By their share, whatever the layer.
  EXPECT_GT(worth[2], worth[8 + 0]);
  EXPECT_GT(worth[8 + 0], worth[6]);
  EXPECT_GT(worth[6], worth[3]);
  EXPECT_GT(worth[3], worth[0]);
  for (const double each : worth)
    EXPECT_TRUE(std::isfinite(each));
  // A beginning only: what is used now counts as ever.
  for (int i = 0; i < 200; ++i)
    token(*r, 0, {4, 7});
  EXPECT_GT(r->worth(0)[4], r->worth(0)[2]);
  EXPECT_GT(r->worth(0)[7], r->worth(0)[2]);
}

TEST(ExpertLru, RanksByTheLastUse) {
  const auto r = ranking("lru", kSmall);
  token(*r, 0, {3, 1});
  token(*r, 1, {3, 1});
  token(*r, 0, {2, 3});
  const auto worth = r->worth(0);
  EXPECT_LT(worth[0], worth[1]) << "never used";
  EXPECT_LT(worth[1], worth[2]);
  EXPECT_LT(worth[2], worth[3]);
}

TEST(ExpertLru, AgesOfDifferentLayersCompare) {
  const auto r = ranking("lru", kSmall);
  token(*r, 0, {3, 1});
  token(*r, 1, {3, 1});
  EXPECT_LT(r->worth(0)[1], r->worth(1)[3]);
  EXPECT_EQ(r->worth().size(), 16U);
  EXPECT_EQ(r->worth()[8 + 3], r->worth(1)[3]);
}

TEST(ExpertLfru, TheMoreOftenUsedIsWorthMoreWhateverItsAge) {
  const auto r = ranking("lfru", kSmall);
  token(*r, 0, {3, 1});
  token(*r, 0, {3, 1});
  token(*r, 0, {2, 4});
  EXPECT_LT(r->worth(0)[4], r->worth(0)[3]);
}

TEST(ExpertLfru, BetweenEqualsTheAgeDecides) {
  const auto r = ranking("lfru", kSmall);
  token(*r, 0, {3, 1});
  token(*r, 0, {2, 4});
  EXPECT_LT(r->worth(0)[3], r->worth(0)[1]);
  EXPECT_LT(r->worth(0)[1], r->worth(0)[2]);
}

TEST(ExpertLfru, WhatWasPopularLongAgoIsForgotten) {
  const auto r = ranking("lfru", kSmall);
  for (int t = 0; t < 60; ++t)
    token(*r, 0, {3, 1});
  for (int t = 0; t < 300; ++t)
    token(*r, 0, {static_cast<ExpertId>(4 + t % 2), static_cast<ExpertId>(6 + t % 2)});
  for (const int recent : {4, 5, 6, 7})
    EXPECT_LT(r->worth(0)[3], r->worth(0)[recent]);
}

// ---- foresight

// Tokens that LRU never hits: pairs of experts in turn, more than there is room for.
TEST(ExpertForesight, KnowsWhatComesSoonestInACycle) {
  const auto r = ranking("foresight", {2, 8, 2});
  const auto pair = [](int t) {
    return Ids{static_cast<ExpertId>(t % 4 * 2), static_cast<ExpertId>(t % 4 * 2 + 1)};
  };
  for (int t = 0; t <= 200; ++t) {
    token(*r, 0, pair(t));
    token(*r, 1, pair(t + 1));
  }
  // The last token had pair 0 in layer 0: 1 is next, then 2, and 0 comes last.
  const auto worth = r->worth(0);
  for (const int e : {0, 1}) {
    EXPECT_GT(worth[2 + e], worth[4 + e]);
    EXPECT_GT(worth[4 + e], worth[0 + e]);
  }
}

// What the layer above has chosen tells two futures apart that look alike in this layer.
TEST(ExpertForesight, ListensToTheLayersAbove) {
  const auto r = ranking("foresight", {2, 16, 1});
  std::uint32_t random = 1;
  bool left = false;
  for (int t = 0; t < 1000; ++t) {
    random = random * 1664525U + 1013904223U;
    left = (random >> 16 & 1U) != 0;
    // Layer 1 is the same each first token; where layer 0 went decides about the second.
    token(*r, 0, {static_cast<ExpertId>(left ? 0 : 1)});
    token(*r, 1, {5});
    if (t == 999) break;
    token(*r, 0, {2});
    token(*r, 1, {static_cast<ExpertId>(left ? 6 : 7)});
  }
  EXPECT_GT(r->worth(1)[left ? 6 : 7], r->worth(1)[left ? 7 : 6]);
}

TEST(ExpertForesight, WorthsStayFiniteForAnyShape) {
  for (const ExpertShape shape : {ExpertShape{1, 1, 1}, ExpertShape{1, 2, 2},
                                  ExpertShape{3, 65, 65}, ExpertShape{2, 300, 1}}) {
    const auto r = ranking("foresight", shape);
    Ids chosen(shape.used);
    for (std::uint32_t t = 0; t < 2500; ++t) {
      for (std::uint32_t i = 0; i < shape.used; ++i)
        chosen[i] = static_cast<ExpertId>((t * 7 + i) % shape.experts);
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
        token(*r, layer, chosen);
    }
    for (const double worth : r->worth())
      ASSERT_TRUE(std::isfinite(worth));
  }
}

// a layer that is left out, a token that uses fewer.
TEST(ExpertForesight, ALayerMayBeLeftOut) {
  const auto r = ranking("foresight", {3, 8, 2});
  for (int t = 0; t < 100; ++t) {
    token(*r, 0, {1, 2});
    if (t % 3 == 0) token(*r, 1, {3});
    token(*r, 2, {});
  }
  EXPECT_GT(r->worth(0)[1], r->worth(0)[5]);
  EXPECT_GT(r->worth(1)[3], r->worth(1)[5]);
}

}  // namespace
}  // namespace resid

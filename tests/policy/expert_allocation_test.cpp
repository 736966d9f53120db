// only constructors allocate; what the live pager calls under its lock does not.

#include <gtest/gtest.h>

#include <vector>

#include "../count_allocations.hpp"
#include "policy/expert_cache.hpp"
#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

class ExpertAllocation : public testing::TestWithParam<std::string_view> {};

TEST_P(ExpertAllocation, OnlyTheConstructorAllocates) {
  constexpr ExpertShape kShape{5, 70, 3};
  const std::size_t at_start = allocations;
  auto made = make_expert_ranking(GetParam(), kShape);
  ASSERT_TRUE(made);
  EXPECT_GT(allocations, at_start) << "the counter does not count";
  ExpertRanking& ranking = **made;
  std::vector<ExpertCache> caches;
  for (std::uint32_t layer = 0; layer < kShape.layers; ++layer)
    caches.emplace_back(kShape.experts, 20, ExpertHold::token);
  std::vector<ExpertId> chosen(kShape.used);
  std::uint32_t random = 1;
  const std::size_t before = allocations;
  for (int token = 0; token < 5000; ++token) {
    for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
      random = random * 1664525U + 1013904223U;
      for (std::uint32_t i = 0; i < kShape.used; ++i)
        chosen[i] = static_cast<ExpertId>(((random >> 8) + i * 23) % kShape.experts);
      ranking.choose(layer, chosen);
      caches[layer].begin(chosen);
      for (const ExpertId expert : chosen) {
        caches[layer].use(expert, ranking.worth(layer));
        ranking.use(layer, expert);
      }
    }
  }
  EXPECT_EQ(allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Rankings, ExpertAllocation, testing::Values("lru", "lfru", "foresight"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace resid

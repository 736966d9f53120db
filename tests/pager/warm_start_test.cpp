// What earlier runs used most is there before it is asked for, at nobody's cost.

#include <chrono>
#include <thread>

#include "expert_rig.hpp"

namespace resid::test {
namespace {

// Of layer 0 the experts 5, 2 and 7 were used most, of layer 1 the experts 1 and 0; the others
// never.
ExpertUsage remembered() {
  ExpertUsage usage;
  usage.experts = kExperts;
  usage.layers = {0, 1};
  usage.tokens = {100, 100};
  usage.uses = {0, 0, 60, 0, 0, 90, 0, 10, 20, 70, 0, 0, 0, 0, 0, 0};
  return usage;
}

PagerConfig warm_config(std::uint64_t budget) {
  PagerConfig config = eager(budget);
  config.usage = remembered();
  return config;
}

// By the end of the warm start, which is nobody's to wait for but a test's.
void finish(ExpertRig& rig) {
  for (int i = 0; i < 2000 && rig.stats.warm_ended.load() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(rig.stats.warm_ended.load(), 1U);
  rig.pager->settle();
}

// The rig's model says nothing of how many experts a token uses, so one token's are one a layer;
// its page of header is not read by tokens.
constexpr std::uint64_t kOneToken = 2 * 3 * kSlice;

class EveryRanking : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, EveryRanking,
                         ::testing::Values("expert_lru", "expert_lfru", "expert_foresight"));

TEST_P(EveryRanking, WhatWasUsedIsThereBeforeARouterSpeaks) {
  constexpr std::uint64_t kBudget = 16 * MiB;
  ExpertRig rig(warm_config(kBudget), GetParam());
  finish(rig);
  for (const std::uint32_t expert : {5U, 2U, 7U})
    EXPECT_TRUE(rig.resident(0, expert)) << expert;
  for (const std::uint32_t expert : {1U, 0U})
    EXPECT_TRUE(rig.resident(1, expert)) << expert;
  EXPECT_FALSE(rig.resident(0, 0)) << "what nobody has used is not fetched";
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 5 * 3 * kSlice);
  EXPECT_EQ(rig.stats.warm_bytes.load(), 5 * 3 * kSlice);
  EXPECT_EQ(rig.store.mismatches(rig.view, slice(0, 1, 5), slice(0, 1, 6)), 0U);
  EXPECT_EQ(rig.stats.absent_handled.load(), 0U) << "nobody has waited";
  // A use is a use, once.
  rig.use(0, {5, 4});
  rig.use(0, {5, 4});
  rig.pager->settle();
  EXPECT_EQ(rig.stats.warm_used_bytes.load(), 3 * kSlice);
  EXPECT_EQ(rig.stats.expert_missing_bytes.load(), 3 * kSlice);
  rig.expect_clean(kBudget);
}

TEST_P(EveryRanking, TheMostUsedComeFirstAndRoomIsLeftForOneToken) {
  constexpr std::uint64_t kBudget = kOneToken + 2 * 3 * kSlice;
  ExpertRig rig(warm_config(kBudget), GetParam());
  finish(rig);
  EXPECT_TRUE(rig.resident(0, 5));  // 90 %
  EXPECT_TRUE(rig.resident(1, 1));  // 70 %
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 2 * 3 * kSlice);
  EXPECT_EQ(rig.pager->resident_bytes(), 2 * 3 * kSlice);
  EXPECT_EQ(rig.stats.evictions.load(), 0U);
  rig.expect_clean(kBudget);
}

TEST_P(EveryRanking, ThereIsNoneWhereTheBudgetHoldsNoMoreThanOneToken) {
  ExpertRig rig(warm_config(kOneToken), GetParam());
  finish(rig);
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 0U);
}

TEST_P(EveryRanking, WhatWasUsedMoreOutlivesWhatWasUsedLess) {
  constexpr std::uint64_t kBudget = kOneToken + 4 * 3 * kSlice;
  ExpertRig rig(warm_config(kBudget), GetParam());
  finish(rig);
  ASSERT_EQ(rig.pager->resident_bytes(), 4 * 3 * kSlice);
  // One more than there is room for, of experts that nobody has used before.
  for (const ExpertId expert : std::initializer_list<ExpertId>{3, 4, 6}) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  EXPECT_TRUE(rig.resident(0, 5)) << "90 %";
  EXPECT_TRUE(rig.resident(1, 1)) << "70 %";
  EXPECT_TRUE(rig.resident(0, 2)) << "60 %";
  // 20 %: older than anything that was used, but used more often.
  const bool by_age = std::string_view(GetParam()) == "expert_lru";
  EXPECT_EQ(rig.resident(1, 0), !by_age);
  rig.expect_clean(kBudget);
}

TEST(WarmStart, StaysBelowACap) {
  constexpr std::uint64_t kBudget = 16 * MiB;
  PagerConfig config = warm_config(kBudget);
  config.expert_cap = 2;
  ExpertRig rig(config);
  finish(rig);
  EXPECT_TRUE(rig.resident(0, 5));
  EXPECT_TRUE(rig.resident(0, 2));
  EXPECT_FALSE(rig.resident(0, 7));
  EXPECT_EQ(rig.stats.evictions.load(), 0U);
}

TEST(WarmStart, NothingIsFetchedWithoutAHistoryOrAPolicyOfExperts) {
  ExpertRig none(eager(16 * MiB));
  ExpertRig other(warm_config(16 * MiB), "layer_order_declared");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  none.pager->settle();
  other.pager->settle();
  EXPECT_EQ(none.stats.bytes_fetched.load(), 0U);
  EXPECT_EQ(other.stats.bytes_fetched.load(), 0U);
  EXPECT_EQ(none.stats.warm_ended.load(), 0U);
}

TEST(WarmStart, AHistoryOfAnotherShapeIsOfNoUse) {
  PagerConfig config = eager(16 * MiB);
  config.usage = remembered();
  config.usage.experts = 4;
  config.usage.uses.assign(8, 3);
  ExpertRig rig(config);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  rig.pager->settle();
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 0U);
}

// Threads route and read while it is at work, at a budget that it would fill.
TEST_P(EveryRanking, WhoeverReadsMeanwhileGetsHisBytesAndTheBudgetIsKept) {
  for (std::uint64_t slices = 9; slices < 36; slices += 3) {
    ExpertRig rig(warm_config(slices * kSlice), GetParam());
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint32_t i = 0; i < 24; ++i) {
          const std::uint32_t layer = (i + t) % kLayers;
          const auto expert = static_cast<ExpertId>((3 * i + t) % kExperts);
          if (i % 3 != 0) rig.use(layer, {expert});
          for (std::uint32_t s = 0; s < 3; ++s) {
            const std::uint64_t begin = slice(layer, s, expert);
            wrong += rig.store.mismatches(rig.view, begin, begin + kSlice);
          }
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(wrong.load(), 0U);
    finish(rig);
    rig.expect_clean(slices * kSlice);
  }
}

}  // namespace
}  // namespace resid::test

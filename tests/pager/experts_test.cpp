// What an engine says of its routing: slices come as a batch, and the one used longest ago goes.

#include <random>
#include <thread>

#include "expert_rig.hpp"

namespace resid::test {
namespace {

TEST(Experts, AllSlicesOfWhatWasChosenComeWithoutATouch) {
  ExpertRig rig(eager(16 * MiB));
  EXPECT_TRUE(rig.use(0, {1, 6}));
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(0, 1));
  EXPECT_TRUE(rig.resident(0, 6));
  EXPECT_FALSE(rig.resident(0, 2));
  EXPECT_FALSE(rig.resident(1, 1));
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 6 * kSlice);
  EXPECT_EQ(rig.stats.expert_missing_bytes.load(), 6 * kSlice);
  EXPECT_EQ(rig.store.mismatches(rig.view, slice(0, 2, 6), slice(0, 2, 7)), 0U);
  EXPECT_EQ(rig.stats.absent_handled.load(), 0U);  // no demand fault
  rig.expect_clean(16 * MiB);
}

TEST(Experts, WhatIsResidentIsNotReadAgain) {
  ExpertRig rig(eager(16 * MiB));
  rig.use(0, {3});
  rig.pager->settle();
  EXPECT_TRUE(rig.use(0, {3, 4}));
  rig.pager->settle();
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 6 * kSlice);
  EXPECT_EQ(rig.stats.expert_asked_bytes.load(), 9 * kSlice);
  EXPECT_EQ(rig.stats.expert_missing_bytes.load(), 6 * kSlice);
}

TEST(Experts, OnlyTheFirstStackOfALayerSpeaksForIt) {
  ExpertRig rig(eager(16 * MiB));
  EXPECT_FALSE(rig.pager->use_experts(rig.view + slice(0, 1, 0), std::vector<ExpertId>{1}, 1));
  EXPECT_FALSE(rig.pager->use_experts(rig.view + slice(0, 0, 1), std::vector<ExpertId>{1}, 1));
  EXPECT_FALSE(rig.pager->use_experts(rig.view, std::vector<ExpertId>{1}, 1));
  EXPECT_FALSE(rig.pager->use_experts(&rig, std::vector<ExpertId>{1}, 1));
  rig.pager->settle();
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 0U);
}

TEST(Experts, TheFirstStackOfALayerIsKnownByItsAddressAndByItsName) {
  ExpertRig rig(eager(16 * MiB));
  EXPECT_EQ(rig.pager->stack_at(rig.view + slice(1, 0, 0)).layer, 1);
  EXPECT_EQ(rig.pager->stack_at(rig.view + slice(1, 0, 0)).experts, kExperts);
  EXPECT_EQ(rig.pager->stack_at(rig.view + slice(1, 1, 0)).layer, kNoLayer);
  EXPECT_EQ(rig.pager->stack_at(rig.view + slice(1, 0, 1)).layer, kNoLayer);
  EXPECT_EQ(rig.pager->stack_at(&rig).layer, kNoLayer);
  EXPECT_EQ(rig.pager->stack_names(), (std::vector<std::string>{"t0", "t3"}));
}

TEST(Experts, AnExpertThatDoesNotExistIsIgnored) {
  ExpertRig rig(eager(16 * MiB));
  EXPECT_TRUE(rig.use(1, {kExperts, 0xffff, 2}));
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 2));
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 3 * kSlice);
}

TEST(Experts, TheOneUsedLongestAgoGoesThoughItNeverFaultedAgain) {
  constexpr std::uint64_t kBudget = 9 * kSlice;  // three experts
  ExpertRig rig(eager(kBudget));
  for (ExpertId expert = 0; expert < 3; ++expert) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  rig.use(0, {0});  // resident: a use, and no fault
  rig.use(0, {5});
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(0, 0));
  EXPECT_FALSE(rig.resident(0, 1));
  EXPECT_TRUE(rig.resident(0, 2));
  EXPECT_TRUE(rig.resident(0, 5));
  rig.expect_clean(kBudget);
}

TEST(Experts, ATouchOfWhatIsOnItsWayWaitsForIt) {
  for (int round = 0; round < 20; ++round) {
    ExpertRig rig(eager(16 * MiB));
    rig.use(0, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(rig.store.mismatches(rig.view, slice(0, 0, 0), slice(1, 0, 0)), 0U);
    rig.pager->settle();
    EXPECT_EQ(rig.stats.bytes_fetched.load(), kLayer);  // nothing twice
    rig.expect_clean(16 * MiB);
  }
}

class EveryRanking : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, EveryRanking,
                         ::testing::Values("expert_lru", "expert_lfru", "expert_foresight"));

TEST_P(EveryRanking, ABatchLargerThanTheBudgetStillGivesEveryByte) {
  constexpr std::uint64_t kBudget = 4 * kSlice;
  ExpertRig rig(eager(kBudget), GetParam());
  for (int token = 0; token < 3; ++token) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      rig.use(layer, {0, 1, 2, 3, 4, 5, 6, 7});
      const std::uint64_t begin = slice(layer, 0, 0);
      EXPECT_EQ(rig.store.mismatches(rig.view, begin, begin + kLayer), 0U);
    }
  }
  rig.expect_clean(kBudget);
}

std::uint32_t residents(const ExpertRig& rig, std::uint32_t layer) {
  std::uint32_t count = 0;
  for (std::uint32_t expert = 0; expert < kExperts; ++expert)
    count += rig.resident(layer, expert) ? 1 : 0;
  return count;
}

TEST_P(EveryRanking, ALayerKeepsNoMoreExpertsThanItsCapThoughThereIsRoom) {
  PagerConfig config = eager(16 * MiB);
  config.expert_cap = 3;
  ExpertRig rig(config, GetParam());
  for (ExpertId token = 0; token < 6; ++token) {
    const auto next = static_cast<ExpertId>(token + 1);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      rig.use(layer, {token, next});
      rig.pager->settle();
      EXPECT_TRUE(rig.resident(layer, token)) << "what is in use stays";
      EXPECT_TRUE(rig.resident(layer, next));
    }
  }
  for (std::uint32_t layer = 0; layer < kLayers; ++layer)
    EXPECT_EQ(residents(rig, layer), 3U);
  rig.expect_clean(16 * MiB);
}

// What is in use is more than the cap: it stays until the layer after next speaks.
TEST_P(EveryRanking, ACapBelowWhatATokenUsesStillGivesEveryByte) {
  PagerConfig config = eager(16 * MiB);
  config.expert_cap = 1;
  ExpertRig rig(config, GetParam());
  for (int token = 0; token < 4; ++token) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      rig.use(layer, {1, 2, 5});
      const std::uint64_t begin = slice(layer, 0, 0);
      for (const std::uint32_t expert : {1U, 2U, 5U}) {
        EXPECT_EQ(
            rig.store.mismatches(rig.view, begin + expert * kSlice, begin + (expert + 1) * kSlice),
            0U);
      }
    }
  }
  rig.pager->settle();
  EXPECT_LE(residents(rig, 0), 3U);
  rig.expect_clean(16 * MiB);
}

TEST_P(EveryRanking, ASoftCapGivesUpNothingWhileThereIsRoom) {
  PagerConfig config = eager(16 * MiB);
  config.expert_cap = 2;
  config.expert_cap_soft = true;
  ExpertRig rig(config, GetParam());
  for (ExpertId expert = 0; expert < kExperts; ++expert) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  EXPECT_EQ(residents(rig, 0), kExperts);
}

// Nothing of the layer below its cap goes, though its experts are the older ones.
TEST(Experts, WhereRoomIsShortALayerBeyondItsCapGivesUpFirst) {
  constexpr std::uint64_t kBudget = 15 * kSlice;  // five experts
  PagerConfig config = eager(kBudget);
  config.expert_cap = 2;
  config.expert_cap_soft = true;
  ExpertRig rig(config, "expert_lru");
  rig.use(1, {0});
  rig.pager->settle();
  rig.use(1, {1});
  rig.pager->settle();
  for (ExpertId expert = 0; expert < kExperts; ++expert) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  EXPECT_TRUE(rig.resident(1, 0));
  EXPECT_TRUE(rig.resident(1, 1));
  EXPECT_TRUE(rig.resident(0, 7));
  rig.expect_clean(kBudget);
}

// What repeats is kept, though others were used since: by age it would be the first to go.
TEST(Experts, WithForesightWhatComesBackEveryFourthTokenOutlivesWhatCameOnce) {
  constexpr std::uint64_t kBudget = 12 * kSlice;  // four experts
  std::uint64_t missing[2] = {};
  for (const bool foresight : {false, true}) {
    ExpertRig rig(eager(kBudget), foresight ? "expert_foresight" : "expert_lru");
    std::mt19937 random(1);
    for (int token = 0; token < 400; ++token) {
      // One after another three that always come, then one of the others.
      const auto odd = static_cast<ExpertId>(3 + random() % 5);
      rig.use(0, {static_cast<ExpertId>(token % 4 == 3 ? odd : token % 4)});
      rig.pager->settle();
      rig.use(0, {static_cast<ExpertId>(3 + random() % 5)});
      rig.pager->settle();
    }
    missing[foresight ? 1 : 0] = rig.stats.expert_missing_bytes.load();
    rig.expect_clean(kBudget);
  }
  EXPECT_LT(missing[1], missing[0]);
}

// Two engines' worth of threads: each says what it will read, then reads it, at a budget that holds
// a part of that.
TEST_P(EveryRanking, ThreadsThatRouteAndReadAtOnceGetTheirBytes) {
  constexpr std::uint64_t kBudget = 14 * kSlice;
  ExpertRig rig(eager(kBudget), GetParam());
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 300; ++i) {
        const std::uint32_t layer = random() % kLayers;
        const std::vector<ExpertId> chosen{static_cast<ExpertId>(random() % 4),
                                           static_cast<ExpertId>(4 + random() % 4)};
        rig.use(layer, chosen);
        wrong += rig.mismatches(layer, chosen);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong.load(), 0U);
  rig.expect_clean(kBudget);
}

}  // namespace
}  // namespace resid::test

// What an engine says of its routing: slices come as a batch, and the one used longest ago goes.

#include <random>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kSlice = 64 * 1024;
constexpr std::uint32_t kExperts = 8;
constexpr std::uint32_t kLayers = 2;
constexpr std::uint64_t kStack = kExperts * kSlice;
constexpr std::uint64_t kLayer = 3 * kStack;
constexpr std::uint64_t kFile = kPage + kLayers * kLayer;

// A page of header, then layers of three stacks.
ModelFile experts_file(const StoreFile& store) {
  ModelFile file;
  file.path = store.path();
  file.format = Format::gguf;
  file.bytes = store.bytes();
  file.data_offset = kPage;
  file.layers = kLayers;
  file.experts = kExperts;
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    for (const Role role : {Role::expert_gate, Role::expert_up, Role::expert_down}) {
      Tensor t;
      t.name = "t" + std::to_string(file.tensors.size());
      t.offset = kPage + file.tensors.size() * kStack;
      t.bytes = kStack;
      t.role = role;
      t.layer = static_cast<std::int32_t>(l);
      t.experts = kExperts;
      file.tensors.push_back(t);
    }
  }
  return file;
}

// Slice `expert` of stack `stack` (0 gate, 1 up, 2 down) of a layer: its first byte in the file.
std::uint64_t slice(std::uint32_t layer, std::uint32_t stack, std::uint32_t expert) {
  return kPage + layer * kLayer + stack * kStack + expert * kSlice;
}

struct ExpertRig {
  explicit ExpertRig(PagerConfig config, const char* policy = "expert_lru") {
    config.policy = policy;
    auto made = Pager::create(config, stats, &Failures::hook, &failures);
    if (!made) std::abort();
    pager = std::move(*made);
    ModelFile file = experts_file(store);
    auto plan = ChunkPlan::make(file, ChunkPlan::kDefaultChunkMax);
    if (!plan) std::abort();
    auto region = pager->add_region(store.fd(), store.path(), std::move(file), std::move(*plan));
    if (!region) std::abort();
    auto mapped = pager->map_view(*region, nullptr, store.bytes(), 0, 0);
    if (!mapped) std::abort();
    view = static_cast<const std::uint8_t*>(*mapped);
  }
  bool use(std::uint32_t layer, std::vector<ExpertId> experts) {
    const auto used = static_cast<std::uint32_t>(experts.size());
    return pager->use_experts(view + slice(layer, 0, 0), experts, used);
  }
  bool resident(std::uint32_t layer, std::uint32_t expert) const {
    std::uint64_t sum = 0;
    for (std::uint32_t s = 0; s < 3; ++s)
      sum += pager->resident_under(view + slice(layer, s, expert), kSlice);
    return sum == 3 * kSlice;
  }
  void expect_clean(std::uint64_t budget) {
    pager->settle();
    EXPECT_EQ(failures.count.load(), 0) << failures.text();
    EXPECT_TRUE(pager->reconcile().has_value());
    EXPECT_LE(stats.resident_peak_bytes.load(), budget);
    EXPECT_EQ(stats.infeasible.load(), 0U);
    EXPECT_EQ(stats.policy_lapses.load(), 0U);
  }

  StoreFile store{kFile};
  PagerStats stats;
  Failures failures;
  std::unique_ptr<Pager> pager;
  const std::uint8_t* view = nullptr;
};

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
INSTANTIATE_TEST_SUITE_P(All, EveryRanking, ::testing::Values("expert_lru", "expert_foresight"));

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
        for (std::uint32_t s = 0; s < 3; ++s) {
          for (const ExpertId e : chosen) {
            const std::uint64_t begin = slice(layer, s, e);
            wrong += rig.store.mismatches(rig.view, begin, begin + kSlice);
          }
        }
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

// What a lookahead expects is fetched behind everything else, and does no harm where it is wrong.

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "expert_rig.hpp"

namespace resid::test {
namespace {

// Keeps all reads waiting until it is opened. One at a time.
class Gate {
 public:
  Gate() {
    shut() = true;
    g_read_fault_hook.store([](std::uint64_t, std::uint64_t, bool) {
      std::unique_lock lock(mutex());
      changed().wait(lock, [] { return !shut(); });
      return 0;
    });
  }
  ~Gate() {
    open();
    g_read_fault_hook.store(nullptr);
  }
  void open() {
    const std::lock_guard lock(mutex());
    shut() = false;
    changed().notify_all();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::condition_variable& changed() {
    static std::condition_variable c;
    return c;
  }
  static bool& shut() {
    static bool s = false;
    return s;
  }
};

void expect(ExpertRig& rig, std::int32_t layer, std::vector<ExpertId> experts) {
  std::vector<Likely> likely;
  for (const ExpertId expert : experts)
    likely.push_back({expert, 0.9F});
  Pager::Impl& p = *rig.pager->impl();
  Lock lock(p.mutex);
  p.expect_experts(lock, *p.regions[0], layer, likely);
}

class Lookahead : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Lookahead,
                         ::testing::Values("expert_lru", "expert_lfru", "expert_foresight"));

TEST_P(Lookahead, WhatIsExpectedIsThereWhenItIsChosen) {
  ExpertRig rig(eager(16 * MiB), GetParam());
  expect(rig, 1, {2, 5});
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 2));
  EXPECT_TRUE(rig.resident(1, 5));
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 6 * kSlice);
  rig.use(1, {2, 5});
  EXPECT_EQ(rig.stats.expert_ahead_bytes.load(), 6 * kSlice);
  EXPECT_EQ(rig.stats.expert_missing_bytes.load(), 0U);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 6U);
  // Mapped whole: no touch tells anything that the engine has not said.
  EXPECT_EQ(rig.store.mismatches(rig.view, slice(1, 0, 2), slice(1, 0, 3)), 0U);
  EXPECT_EQ(rig.stats.faults_minor.load() + rig.stats.faults_missing.load(), 0U);
  // A second use is an ordinary one.
  rig.use(1, {2});
  EXPECT_EQ(rig.stats.expert_ahead_bytes.load(), 6 * kSlice);
  rig.expect_clean(16 * MiB);
}

TEST_P(Lookahead, WhatIsOnItsWayBecomesADemand) {
  ExpertRig rig(eager(16 * MiB), GetParam());
  {
    Gate gate;
    expect(rig, 1, {2});
    rig.use(1, {2});
    EXPECT_EQ(rig.stats.expert_on_way_bytes.load(), 3 * kSlice);
    EXPECT_EQ(rig.stats.prefetch_late.load(), 3U);
    EXPECT_EQ(rig.stats.lookahead_dropped_bytes.load(), 0U);
    gate.open();
    EXPECT_EQ(rig.store.mismatches(rig.view, slice(1, 1, 2), slice(1, 1, 3)), 0U);
    rig.pager->settle();
  }
  EXPECT_TRUE(rig.resident(1, 2));
  EXPECT_EQ(rig.stats.bytes_fetched.load(), 3 * kSlice);  // nothing twice
  rig.expect_clean(16 * MiB);
}

TEST_P(Lookahead, ATouchBeforeTheRouterSpeaksIsServed) {
  ExpertRig rig(eager(16 * MiB), GetParam());
  expect(rig, 0, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(rig.store.mismatches(rig.view, slice(0, 0, 0), slice(1, 0, 0)), 0U);
  rig.pager->settle();
  EXPECT_EQ(rig.stats.bytes_fetched.load(), kLayer);
  rig.expect_clean(16 * MiB);
}

// The reads wait; what has no place at the disk yet is not read at all.
TEST_P(Lookahead, WhatIsNotChosenIsNotReadAnyMore) {
  PagerConfig config = eager(16 * MiB);
  ExpertRig rig(config, GetParam());
  {
    Gate gate;
    expect(rig, 1, {0, 1, 2, 3, 4, 5, 6, 7});
    const std::uint64_t issued = rig.stats.lookahead_issued_bytes.load();
    EXPECT_GT(issued, 6 * kSlice);
    rig.use(0, {1});
    EXPECT_EQ(rig.stats.lookahead_dropped_bytes.load(), issued);
    gate.open();
    rig.pager->settle();
    const std::uint64_t slots = Staging::slots_for(kSlice, config.budget_bytes);
    EXPECT_LE(rig.stats.bytes_fetched.load(), (3 + slots) * kSlice);
  }
  EXPECT_TRUE(rig.resident(0, 1));
  // Asked for later it comes as if it had never been expected.
  rig.use(1, {0, 7});
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 0));
  EXPECT_TRUE(rig.resident(1, 7));
  EXPECT_EQ(rig.store.mismatches(rig.view, slice(1, 0, 0), kFile), 0U);
  rig.pager->settle();
  rig.expect_clean(16 * MiB);
}

TEST_P(Lookahead, InAFullBudgetItTakesTheOldestOnesPlaceAndNotTheLastOnes) {
  constexpr std::uint64_t kBudget = 12 * kSlice;  // four experts
  ExpertRig rig(eager(kBudget), GetParam());
  for (ExpertId expert = 0; expert < 4; ++expert) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  expect(rig, 1, {6});
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 6));
  EXPECT_TRUE(rig.resident(0, 3));
  // And is not given up before its layer has spoken.
  rig.use(0, {5});
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 6));
  rig.expect_clean(kBudget);
}

TEST_P(Lookahead, WhatIsExpectedAndThereIsNotGivenUpForWhatIsExpectedToo) {
  constexpr std::uint64_t kBudget = 12 * kSlice;
  ExpertRig rig(eager(kBudget), GetParam());
  rig.use(1, {0});
  rig.pager->settle();
  for (ExpertId expert = 1; expert < 4; ++expert) {
    rig.use(0, {expert});
    rig.pager->settle();
  }
  expect(rig, 1, {0, 7});  // expert 0 is the one used longest ago
  rig.pager->settle();
  EXPECT_TRUE(rig.resident(1, 0));
  EXPECT_TRUE(rig.resident(1, 7));
  rig.expect_clean(kBudget);
}

TEST_P(Lookahead, WhatWasNeverUsedIsCountedAsWasted) {
  constexpr std::uint64_t kBudget = 12 * kSlice;
  ExpertRig rig(eager(kBudget), GetParam());
  expect(rig, 1, {6});
  rig.pager->settle();
  for (int token = 0; token < 24; ++token) {
    rig.use(0, {static_cast<ExpertId>(token % 8)});
    rig.pager->settle();
    rig.use(1, {static_cast<ExpertId>(token % 6)});
    rig.pager->settle();
  }
  EXPECT_FALSE(rig.resident(1, 6));
  EXPECT_EQ(rig.stats.prefetch_wasted.load(), 3U);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 0U);
  rig.expect_clean(kBudget);
}

TEST_P(Lookahead, GuessesRightAndWrongWhileThreadsReadGiveEveryByte) {
  for (const std::uint64_t slices : {5U, 9U, 20U}) {
    const std::uint64_t kBudget = slices * kSlice;
    ExpertRig rig(eager(kBudget), GetParam());
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 200; ++i) {
          const std::uint32_t layer = random() % kLayers;
          const std::vector<ExpertId> chosen{static_cast<ExpertId>(random() % 4),
                                             static_cast<ExpertId>(4 + random() % 4)};
          expect(rig, static_cast<std::int32_t>(layer),
                 {chosen[0], static_cast<ExpertId>(random() % kExperts)});
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
}

}  // namespace
}  // namespace resid::test

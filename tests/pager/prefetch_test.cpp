// Prefetch: reads ahead in the declared order, is noticed when used, and never costs correctness.

#include <atomic>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

PagerConfig with_prefetch(std::uint64_t budget, std::uint32_t depth) {
  PagerConfig config = eager(budget);
  config.prefetch_depth = depth;
  return config;
}

TEST(Prefetch, SuccessorsOfADemandFetchBecomeResidentWithoutBeingTouched) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, with_prefetch(8 * kChunk, 2), kChunk);
  EXPECT_EQ(store.mismatches(rig.view, 0, 8), 0U);
  rig.settle();
  EXPECT_TRUE(rig.pager->resident(1));
  EXPECT_TRUE(rig.pager->resident(2));
  EXPECT_FALSE(rig.pager->resident(3));
  EXPECT_EQ(rig.stats.prefetch_issued.load(), 2U);
}

TEST(Prefetch, TheFirstTouchOfAPrefetchedChunkIsNoticedAndReadsNothing) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, with_prefetch(8 * kChunk, 1), kChunk);
  store.mismatches(rig.view, 0, 8);
  rig.settle();
  ASSERT_TRUE(rig.pager->resident(1));
  const std::uint64_t demands = rig.stats.absent_handled.load();
  EXPECT_EQ(store.mismatches(rig.view, kChunk, 2 * kChunk), 0U);
  EXPECT_EQ(rig.stats.absent_handled.load(), demands);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 1U);
  rig.settle();
  EXPECT_TRUE(rig.pager->resident(2));  // the touch moved the window on
}

// Where mapping a large page at the first touch takes long, it is mapped ahead, and still tells.
TEST(Prefetch, WhereLargeMappingsTakeLongAllButTheFirstPageIsMappedAhead) {
  const StoreFile store(16 * MiB);
  Rig rig(store, with_prefetch(12 * MiB, 1), kLargePage);
  for (int i = 0; i < 50; ++i)
    rig.pager->impl()->map_cost.took(120'000);
  store.mismatches(rig.view, 0, 8);
  rig.settle();
  ASSERT_TRUE(rig.pager->resident(1));
  const std::uint64_t faults = rig.stats.faults_minor.load();
  EXPECT_EQ(store.mismatches(rig.view, kLargePage + kPage, 2 * kLargePage), 0U);
  EXPECT_EQ(rig.stats.faults_minor.load(), faults);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 0U);
  EXPECT_EQ(store.mismatches(rig.view, kLargePage, kLargePage + kPage), 0U);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 1U);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  rig.expect_clean(12 * MiB, kLargePage);
}

class Depths : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Depths, ::testing::Values(1U, 2U, 4U, 16U));

TEST_P(Depths, EveryByteIsRightAtATightBudgetForEveryRetentionAndAdmission) {
  const StoreFile store(32 * kChunk);
  for (const bool pinned : {true, false}) {
    for (const bool guarded : {true, false}) {
      PagerConfig config = with_prefetch(5 * kChunk, GetParam());
      config.prefetch_pinned = pinned;
      config.prefetch_guarded = guarded;
      Rig rig(store, config, kChunk);
      for (int pass = 0; pass < 3; ++pass) {
        EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
      }
      rig.settle();
      rig.expect_clean(5 * kChunk, kChunk);
      const auto& s = rig.stats;
      EXPECT_LE(s.prefetch_useful + s.prefetch_wasted + s.prefetch_late + s.prefetch_declined,
                s.prefetch_issued.load());
      EXPECT_GT(s.prefetch_issued.load(), 0U);
    }
  }
}

std::atomic<bool> g_hold{false};
int hold_chunk_1(std::uint64_t offset, std::uint64_t, bool) {
  while (offset == kChunk && g_hold.load())
    std::this_thread::yield();
  return 0;
}

TEST(Prefetch, AChunkThatIsWantedBeforeItsReadEndsIsKeptLikeADemandAndMovesTheWindowOn) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, with_prefetch(8 * kChunk, 1), kChunk);
  g_hold = true;
  g_read_fault_hook.store(&hold_chunk_1);
  store.mismatches(rig.view, 0, 8);
  // Its reader goes on before the fetch is done with. From here on chunk 1 is being read ahead.
  while (rig.stats.prefetch_issued.load() == 0)
    std::this_thread::yield();
  std::uint64_t wrong = 0;
  std::thread reader([&] { wrong = store.mismatches(rig.view, kChunk, kChunk + 8); });
  while (rig.stats.prefetch_late.load() == 0)
    std::this_thread::yield();
  g_hold = false;
  reader.join();
  rig.settle();
  g_read_fault_hook.store(nullptr);
  EXPECT_EQ(wrong, 0U);
  {
    const Lock lock(rig.pager->impl()->mutex);
    EXPECT_EQ(rig.pager->impl()->state(1).pins(), 1U);
  }
  EXPECT_TRUE(rig.pager->resident(2));
}

TEST(Prefetch, TheAccessSignalOfTheWorkloadConsumesIt) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, with_prefetch(8 * kChunk, 1), kChunk);
  store.mismatches(rig.view, 0, 8);
  rig.settle();
  ASSERT_TRUE(rig.pager->resident(1));
  rig.pager->notify_access(1);
  EXPECT_EQ(rig.stats.prefetch_useful.load(), 1U);
}

}  // namespace
}  // namespace resid::test

// T-4: our count of resident bytes is the kernel's, exactly; and a difference is noticed.

#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "host/cgroup.hpp"
#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

TEST(T4Accounting, ResidentBytesAreTheMemfdsBlocksAfterEveryStep) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, eager(6 * kChunk), kChunk);
  for (std::uint64_t c = 0; c < 16; ++c) {
    ASSERT_EQ(store.mismatches(rig.view, c * kChunk, (c + 1) * kChunk), 0U);
    rig.settle();
    ASSERT_TRUE(rig.pager->reconcile());
    ASSERT_EQ(rig.pager->resident_bytes(), rig.kernel_bytes());
    ASSERT_EQ(rig.pager->resident_bytes(), std::min<std::uint64_t>(c + 1, 6) * kChunk);
  }
  EXPECT_EQ(rig.stats.reconcile_max_divergence_bytes.load(), 0U);
  EXPECT_GE(rig.stats.reconcile_checks.load(), 16U);
  rig.expect_clean(6 * kChunk, kChunk);
}

// The kernel's own account of a control group, in a child that is alone in one.
TEST(T4Accounting, ResidentBytesAreTheGroupsShmem) {
  auto self = host::memory_cgroup();
  ASSERT_TRUE(self) << self.error().line();
  auto group = host::ChildGroup::create(*self);
  if (!group) GTEST_SKIP() << "no control group can be made: " << group.error().why;
  const StoreFile store(64 * kChunk);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (group->enter_self() != 0) ::_exit(10);
    int code = 0;
    {
      Rig rig(store, eager(24 * kChunk), kChunk);
      if (store.mismatches(rig.view, 0, store.bytes()) != 0) code = 11;
      rig.settle();
      // The kernel folds its per-processor counts in every two seconds (mm/memcontrol.c).
      std::uint64_t shmem = 0;
      for (int i = 0; i < 60; ++i) {
        auto figures = group->figures();
        if (!figures) ::_exit(12);
        shmem = figures->shmem;
        if (shmem == rig.pager->resident_bytes()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      if (rig.pager->resident_bytes() != 24 * kChunk) code = 13;
      if (shmem != rig.pager->resident_bytes()) code = 14;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(T4Accounting, MemoryThatDoesNotComeBackStopsTheRun) {
  const StoreFile store(64 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  // Every eviction leaves a page behind: after 17 of them more than a chunk is unaccounted for.
  std::uint64_t touched = 0;
  for (std::uint64_t c = 0; c < 64 && rig.failures.count.load() == 0; ++c) {
    rig.pager->impl()->test_fault.store(TestFault::leave_page_behind);
    store.mismatches(rig.view, c * kChunk, (c + 1) * kChunk);
    ++touched;
  }
  ASSERT_GT(rig.failures.count.load(), 0);
  EXPECT_EQ(rig.failures.first.load(), Status::accounting_diverged);
  EXPECT_GT(rig.stats.reconcile_max_divergence_bytes.load(), kChunk);
  EXPECT_NE(rig.failures.text().find("the kernel"), std::string::npos) << rig.failures.text();
}

TEST(T4Accounting, ShrinkingTheBudgetEvictsDownToIt) {
  const StoreFile store(32 * kChunk);
  Rig rig(store, eager(32 * kChunk), kChunk);
  store.mismatches(rig.view, 0, store.bytes());
  rig.settle();
  EXPECT_EQ(rig.pager->resident_bytes(), 32 * kChunk);
  ASSERT_TRUE(rig.pager->set_budget(5 * kChunk));
  EXPECT_LE(rig.kernel_bytes(), 5 * kChunk);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  EXPECT_LE(rig.kernel_bytes(), 5 * kChunk);
  ASSERT_FALSE(rig.pager->set_budget(kChunk));
  EXPECT_EQ(rig.pager->budget(), 5 * kChunk);  // a refused change changes nothing
}

TEST(T4Accounting, ABudgetBelowTwoChunksIsRefused) {
  const StoreFile store(8 * kChunk);
  PagerStats stats;
  auto pager = Pager::create(eager(2 * kChunk - 1), stats, nullptr, nullptr);
  ASSERT_TRUE(pager);
  auto plan = ChunkPlan::uniform(store.bytes(), kChunk);
  ASSERT_TRUE(plan);
  auto region = (*pager)->add_region(store.fd(), store.path(), raw_file(store), std::move(*plan));
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().status, Status::budget_too_small);
  EXPECT_EQ(exit_code(region.error().status), 4);
}

TEST(T4Accounting, TheHistogramOfFaultsCountsThemAll) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  store.mismatches(rig.view, 0, store.bytes());
  rig.settle();
  EXPECT_EQ(rig.stats.read_ns.count(), rig.stats.fetches.load());
  EXPECT_GE(rig.stats.fault_ns.count(), rig.stats.fetches.load());
  EXPECT_GT(rig.stats.read_ns.quantile(0.5), 0U);
}

}  // namespace
}  // namespace resid::test

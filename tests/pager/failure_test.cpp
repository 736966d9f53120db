// I-14, I-16: a read that fails, a store that changes, a fetch that is lost. Loud, named, never
// zeros, never a hang.

#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <csetjmp>
#include <csignal>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

// Fails the Nth read attempt counted from the arming; sticky: and all after it.
std::atomic<int> g_countdown{-1};
std::atomic<bool> g_sticky{false};
std::atomic<int> g_errno{0};
int fail_nth(std::uint64_t, std::uint64_t, bool) {
  if (g_countdown.load() < 0) return 0;
  const int left = g_countdown.fetch_sub(1);
  if (left == 0 || (left < 0 && g_sticky.load())) {
    if (g_sticky.load()) g_countdown.store(0);
    return g_errno.load();
  }
  return 0;
}
void arm(int nth, bool sticky, int error) {
  g_sticky.store(sticky);
  g_errno.store(error);
  g_countdown.store(nth);
  g_read_fault_hook.store(&fail_nth);
}
void disarm() {
  g_read_fault_hook.store(nullptr);
  g_countdown.store(-1);
}

// Reads one byte; false when the touch ended in SIGBUS or SIGSEGV.
thread_local sigjmp_buf g_back;
void jump_back(int) {
  siglongjmp(g_back, 1);
}
bool readable(const std::uint8_t* address, std::uint8_t& value) {
  struct sigaction act {};
  struct sigaction old_bus {};
  struct sigaction old_segv {};
  act.sa_handler = &jump_back;
  ::sigaction(SIGBUS, &act, &old_bus);
  ::sigaction(SIGSEGV, &act, &old_segv);
  volatile bool ok = false;  // must survive the jump
  if (sigsetjmp(g_back, 1) == 0) {
    value = *const_cast<const volatile std::uint8_t*>(address);
    ok = true;
  }
  ::sigaction(SIGBUS, &old_bus, nullptr);
  ::sigaction(SIGSEGV, &old_segv, nullptr);
  return ok;
}

TEST(Failures, AFailingDirectReadIsTriedBufferedAndNothingIsLost) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  if (!rig.pager->impl()->regions[0]->store().direct()) {
    GTEST_SKIP() << "this file system has no direct I/O";
  }
  arm(0, false, EIO);
  const std::uint64_t wrong = store.mismatches(rig.view, 0, store.bytes());
  disarm();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.stats.read_retries.load(), 1U);
  rig.expect_clean(4 * kChunk, kChunk);
}

class FailNth : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Every, FailNth, ::testing::Range(0, 12));

TEST_P(FailNth, AReadThatFailsTwiceIsLoudNamesThePlaceAndNeverShowsZeros) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  arm(GetParam(), true, EIO);
  std::uint64_t good = 0;
  std::uint64_t bad = 0;
  for (std::uint64_t c = 0; c < 8; ++c) {
    std::uint8_t value = 0;
    if (readable(rig.view + c * kChunk + 8, value)) {
      const std::uint64_t word = word_at((c * kChunk + 8) / 8);
      EXPECT_EQ(value, static_cast<std::uint8_t>(word));
      ++good;
    } else {
      ++bad;
    }
  }
  disarm();
  EXPECT_EQ(good + bad, 8U);
  if (GetParam() < 7) {
    EXPECT_GT(bad, 0U);
    EXPECT_EQ(rig.failures.first.load(), Status::read_failed);
    EXPECT_NE(rig.failures.text().find(store.path()), std::string::npos) << rig.failures.text();
    EXPECT_NE(rig.failures.text().find("offset"), std::string::npos);
    EXPECT_NE(rig.failures.text().find("Input/output error"), std::string::npos);
  }
  rig.settle();
  // The accounting is whole: nothing stays reserved, and the failed chunk left no page behind.
  EXPECT_TRUE(rig.pager->reconcile());
  EXPECT_EQ(rig.pager->resident_bytes(), rig.kernel_bytes());
  // The error is sticky: the chunk does not come back with half its bytes.
  if (bad != 0) {
    std::uint64_t still_bad = 0;
    for (std::uint64_t c = 0; c < 8; ++c) {
      std::uint8_t value = 0;
      still_bad += !readable(rig.view + c * kChunk + 8, value);
    }
    EXPECT_EQ(still_bad, bad);
  }
}

TEST_P(FailNth, AOneShotFailureOfAnyReadIsRepairedByTheRetry) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  if (!rig.pager->impl()->regions[0]->store().direct()) {
    GTEST_SKIP() << "this file system has no direct I/O";
  }
  arm(GetParam(), false, GetParam() % 2 == 0 ? EIO : kShortRead);
  const std::uint64_t wrong = store.mismatches(rig.view, 0, store.bytes());
  disarm();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.failures.count.load(), 0) << rig.failures.text();
}

TEST(Failures, ManyThreadsOnAFailingStoreAllGetTheirSignal) {
  const StoreFile store(8 * kChunk);
  const pid_t pid = ::fork();
  if (pid == 0) {
    Rig rig(store, eager(4 * kChunk), kChunk);
    arm(0, true, EIO);
    struct sigaction act {};
    act.sa_handler = &jump_back;
    ::sigaction(SIGBUS, &act, nullptr);
    ::sigaction(SIGSEGV, &act, nullptr);
    std::atomic<int> signalled{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        if (sigsetjmp(g_back, 1) == 0) {
          (void)*const_cast<const volatile std::uint8_t*>(
              rig.view + static_cast<std::uint64_t>(t % 4) * kPage);
        } else {
          signalled.fetch_add(1);
        }
      });
    }
    for (std::thread& t : threads)
      t.join();
    ::_exit(signalled.load());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 8);
}

// What the SIGBUS does to a program without a handler.
void expect_store_change_kills(const std::string& change, StoreFile& store) {
  Rig rig(store, eager(4 * kChunk), kChunk);
  std::uint8_t value = 0;
  ASSERT_TRUE(readable(rig.view, value));
  if (change == "truncate") {
    ASSERT_EQ(::ftruncate(store.fd(), static_cast<off_t>(kChunk)), 0);
  } else if (change == "delete") {
    ASSERT_EQ(::unlink(store.path().c_str()), 0);
  } else if (change == "overwrite") {
    const std::uint64_t zero = 0;
    ASSERT_EQ(::pwrite(store.fd(), &zero, sizeof zero, 6 * kChunk), 8);
  }
  EXPECT_FALSE(readable(rig.view + 6 * kChunk, value)) << change;
  EXPECT_EQ(rig.failures.first.load(), Status::store_changed);
  EXPECT_NE(rig.failures.text().find(store.path()), std::string::npos) << rig.failures.text();
  EXPECT_TRUE(readable(rig.view, value));  // what is resident stays right
}

TEST(Failures, ATruncatedStoreIsAnErrorAndNeverData) {
  StoreFile store(8 * kChunk);
  expect_store_change_kills("truncate", store);
}
TEST(Failures, ADeletedStoreIsAnErrorAndNeverData) {
  StoreFile store(8 * kChunk);
  expect_store_change_kills("delete", store);
}
TEST(Failures, AnOverwrittenStoreIsAnErrorAndNeverData) {
  StoreFile store(8 * kChunk);
  expect_store_change_kills("overwrite", store);
}

// What the store's hook does to the file once, at the moment of the next read.
std::atomic<const StoreFile*> g_victim{nullptr};
int truncate_once(std::uint64_t, std::uint64_t, bool) {
  if (const StoreFile* store = g_victim.exchange(nullptr)) {
    (void)!::ftruncate(store->fd(), static_cast<off_t>(6 * kChunk + 100));
  }
  return 0;
}
int overwrite_once(std::uint64_t, std::uint64_t, bool) {
  if (const StoreFile* store = g_victim.exchange(nullptr)) {
    const std::uint64_t zero = 0;
    (void)!::pwrite(store->fd(), &zero, sizeof zero, 6 * kChunk);
  }
  return 0;
}

// A change that comes after the identity was checked and before the bytes were read.
void expect_change_during_read_is_noticed(ReadFaultHook change) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  g_victim.store(&store);
  g_read_fault_hook.store(change);
  std::uint8_t value = 0;
  EXPECT_FALSE(readable(rig.view + 6 * kChunk, value));
  g_read_fault_hook.store(nullptr);
  EXPECT_EQ(rig.failures.first.load(), Status::store_changed);
  rig.settle();
  EXPECT_EQ(rig.pager->resident_bytes(), rig.kernel_bytes());
}

TEST(Failures, AStoreTruncatedDuringAReadIsAnErrorAndNeverAHang) {
  expect_change_during_read_is_noticed(&truncate_once);
}
TEST(Failures, AStoreOverwrittenDuringAReadIsAnErrorAndNeverData) {
  expect_change_during_read_is_noticed(&overwrite_once);
}

TEST(Failures, AnErrorNumberWithoutATextIsNamedByItsNumber) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  arm(0, true, 524);  // ENOTSUPP: the kernel's own, which some file systems let through
  std::uint8_t value = 0;
  EXPECT_FALSE(readable(rig.view, value));
  disarm();
  EXPECT_NE(rig.failures.text().find("524"), std::string::npos) << rig.failures.text();
}

TEST(Failures, WithoutPoisonAFailedChunkIsLoudInViewsOldAndNew) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  rig.pager->impl()->test_fault.store(TestFault::no_poison);
  arm(0, true, EIO);
  std::uint8_t value = 0;
  EXPECT_FALSE(readable(rig.view + 3 * kChunk, value));
  disarm();
  EXPECT_FALSE(readable(rig.view + 3 * kChunk + kPage, value));
  const std::uint8_t* again = rig.map(rig.region, store.bytes());
  EXPECT_FALSE(readable(again + 3 * kChunk, value));
  // The neighbours are well, and the views are still the pager's to unmap.
  EXPECT_EQ(store.mismatches(again, 4 * kChunk, 5 * kChunk), 0U);
  EXPECT_TRUE(rig.pager->in_view(rig.view + 3 * kChunk, 1));
  EXPECT_TRUE(rig.pager->unmap_view(const_cast<std::uint8_t*>(rig.view), store.bytes()));
}

TEST(Failures, MemoryThatCannotBeGivenBackIsNotCalledInfeasible) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(2 * kChunk), kChunk);
  store.mismatches(rig.view, 0, 2 * kChunk);
  rig.settle();
  rig.pager->impl()->test_fault.store(TestFault::refuse_punch);
  std::uint8_t value = 0;
  EXPECT_FALSE(readable(rig.view + 5 * kChunk, value));
  EXPECT_EQ(rig.failures.first.load(), Status::system);
  EXPECT_EQ(rig.stats.infeasible.load(), 0U);
}

TEST(Failures, AReadThatFailedDoesNotHideThatMemoryCannotBeGivenBack) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(2 * kChunk), kChunk);
  arm(0, true, EIO);
  std::uint8_t value = 0;
  EXPECT_FALSE(readable(rig.view, value));
  EXPECT_FALSE(readable(rig.view + kChunk, value));
  disarm();
  EXPECT_EQ(rig.failures.count.load(), 1);  // the first read explains the second
  store.mismatches(rig.view, 2 * kChunk, 4 * kChunk);
  rig.settle();
  rig.pager->impl()->test_fault.store(TestFault::refuse_punch);
  EXPECT_FALSE(readable(rig.view + 5 * kChunk, value));
  EXPECT_EQ(rig.failures.count.load(), 2);
}

TEST(Failures, AMappingThatTheKernelRefusesLeavesTheViewAlone) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  auto* view = const_cast<std::uint8_t*>(rig.view);
  // No page boundary, which MAP_FIXED and munmap demand; and a place that is taken.
  EXPECT_FALSE(rig.pager->map_view(rig.region, view + 1, 4 * kChunk, MAP_FIXED, 0));
  EXPECT_FALSE(rig.pager->unmap_view(view + 1, 4 * kChunk));
  constexpr int kNoReplace = 0x100000;
  EXPECT_FALSE(rig.pager->map_view(rig.region, view, 4 * kChunk, MAP_FIXED | kNoReplace, 0));
  ASSERT_TRUE(rig.pager->in_view(view + kChunk, kChunk));
  EXPECT_EQ(store.mismatches(view, 0, store.bytes()), 0U);
}

TEST(Failures, ALostJobIsFoundByTheWatchdogAndItsWaiterServed) {
  const StoreFile store(8 * kChunk);
  PagerConfig config = eager(4 * kChunk);
  config.fetching_timeout_ms = 100;
  Rig rig(store, config, kChunk);
  rig.pager->impl()->test_fault.store(TestFault::drop_next_job);
  EXPECT_EQ(store.mismatches(rig.view, 0, kChunk), 0U);
  EXPECT_GE(rig.stats.fetching_timeouts.load(), 1U);
  rig.expect_clean(4 * kChunk, kChunk);
}

// Knows nothing and names nobody.
class SilentPolicy final : public Policy {
 public:
  std::string_view name() const override { return "silent"; }
  void grow(std::span<const std::uint32_t>) override {}
  void declare_sequence(std::span<const ChunkId>) override {}
  void set_signal_mode(SignalMode) override {}
  void set_protect_current(bool) override {}
  void on_fault(ChunkId) override {}
  void on_access(ChunkId) override {}
  void candidate(ChunkId) override {}
  void withdraw(ChunkId) override {}
  ChunkId select_victim() override { return kNoChunk; }
  ChunkId predict_next(ChunkId) const override { return kNoChunk; }
  std::size_t upcoming(std::span<ChunkId>) const override { return 0; }
  std::int64_t next_use_distance(ChunkId) const override { return kNeverUsed; }
};

TEST(Failures, APolicyThatNamesNobodyCannotHangTheProgram) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  {
    const Lock lock(rig.pager->impl()->mutex);
    rig.pager->impl()->policy = std::make_unique<SilentPolicy>();
  }
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  EXPECT_GE(rig.stats.policy_lapses.load(), 4U);
  EXPECT_EQ(rig.failures.count.load(), 0) << rig.failures.text();
}

int hold_reads(std::uint64_t, std::uint64_t, bool) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return 0;
}

TEST(Failures, AThreadThatSleepsOnAFaultInAnUnmappedViewGetsItsSignal) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  g_read_fault_hook.store(&hold_reads);
  std::atomic<int> outcome{-1};
  std::thread reader([&] {
    std::uint8_t value = 0;
    outcome = readable(rig.view + 5 * kChunk, value) ? 1 : 0;
  });
  while (rig.stats.absent_handled.load() == 0)
    std::this_thread::yield();
  ASSERT_TRUE(rig.pager->unmap_view(const_cast<std::uint8_t*>(rig.view), store.bytes()));
  reader.join();
  g_read_fault_hook.store(nullptr);
  EXPECT_EQ(outcome.load(), 0);
}

TEST(Failures, AChildThatTouchesTheViewDiesInsteadOfReadingZeros) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  store.mismatches(rig.view, 0, kChunk);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    const volatile std::uint8_t x = rig.view[0];
    ::_exit(x == 0 ? 1 : 2);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));  // I-15
}

TEST(Failures, AZeroWorkerCountIsRefused) {
  PagerConfig config = eager(MiB);
  config.fetch_workers = 0;
  PagerStats stats;
  auto pager = Pager::create(config, stats, nullptr, nullptr);
  ASSERT_FALSE(pager);
  EXPECT_EQ(pager.error().status, Status::usage);
}

TEST(Failures, AnUnknownPolicyIsRefusedWithTheNamesThatExist) {
  PagerStats stats;
  auto pager = Pager::create(eager(MiB, "mru"), stats, nullptr, nullptr);
  ASSERT_FALSE(pager);
  EXPECT_NE(pager.error().line().find("layer_order_declared"), std::string::npos)
      << pager.error().line();
}

}  // namespace
}  // namespace resid::test

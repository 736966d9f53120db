// Opening userfaultfd by each route, and filling through the second mapping.

#include <grp.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "base/sys.hpp"
#include "base/units.hpp"
#include "pager/userfault.hpp"

namespace resid {
namespace {

sigjmp_buf g_back;

struct TwoViews {
  Fd memfd;
  std::uint8_t* fill = nullptr;
  std::uint8_t* app = nullptr;
  std::uint64_t bytes = 0;
  explicit TwoViews(std::uint64_t pages) : bytes(pages * kPage) {
    memfd.reset(static_cast<int>(::syscall(SYS_memfd_create, "two-views", 1)));
    EXPECT_EQ(::ftruncate(memfd.get(), static_cast<off_t>(bytes)), 0);
    fill = static_cast<std::uint8_t*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0));
    app = static_cast<std::uint8_t*>(::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memfd.get(), 0));
  }
  ~TwoViews() {
    ::munmap(fill, bytes);
    ::munmap(app, bytes);
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(app); }
};

TEST(Userfault, OpensByTheFirstRouteThatWorks) {
  auto uffd = Userfault::open();
  ASSERT_TRUE(uffd) << uffd.error().line();
  EXPECT_FALSE(name(uffd->route()).empty());
}

// Runs `body` as an ordinary user and returns its exit code.
int as_nobody(int (*body)()) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(65534, 65534, 65534) != 0 ||
        ::setresuid(65534, 65534, 65534) != 0) {
      ::_exit(99);
    }
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Userfault, AnOrdinaryUserGetsTheUserModeRoute) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become nobody";
  const int code = as_nobody([] {
    auto uffd = Userfault::open();
    if (!uffd) return 1;
    // Machines that open the other routes to everyone are fine too.
    return uffd->route() == UffdRoute::user_mode_only ? 0 : 2;
  });
  EXPECT_TRUE(code == 0 || code == 2) << code;
}

TEST(Userfault, RefusalNamesTheDeviceAndTheSetting) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become nobody";
  const int code = as_nobody([] {
    auto uffd = Userfault::open(UffdRoute::device);
    if (uffd) return 2;
    const std::string line = uffd.error().line();
    return line.find("/dev/userfaultfd") != std::string::npos &&
                   line.find("vm.unprivileged_userfaultfd") != std::string::npos
               ? 0
               : 1;
  });
  if (code == 2) GTEST_SKIP() << "/dev/userfaultfd is open to everyone here";
  EXPECT_EQ(code, 0);
}

class MapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Userfault::open();
    ASSERT_TRUE(opened) << opened.error().line();
    uffd = std::move(*opened);
  }
  Userfault uffd;
  FillEvents events;
};

TEST_F(MapTest, AWaitingThreadReadsWhatWasFilledThroughTheOtherView) {
  TwoViews views(4);
  ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
  std::atomic<int> seen{-1};
  std::thread reader([&] { seen = views.app[2 * kPage]; });
  FaultMessage message;
  while (uffd.read(&message, 1) == 0) {
  }
  EXPECT_EQ(page_down(message.address), views.address() + 2 * kPage);
  EXPECT_FALSE(message.minor);
  std::fill_n(views.fill, views.bytes, std::uint8_t{7});
  EXPECT_EQ(uffd.map(views.address(), views.bytes, events), FillResult::done);
  reader.join();
  EXPECT_EQ(seen, 7);
}

TEST_F(MapTest, APageThatIsMappedAlreadyIsSkippedAndTheRestIsMapped) {
  TwoViews views(8);
  std::fill_n(views.fill, views.bytes, std::uint8_t{9});
  ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
  ASSERT_EQ(uffd.map(views.address() + 3 * kPage, kPage, events), FillResult::done);
  EXPECT_EQ(uffd.map(views.address(), views.bytes, events), FillResult::done);
  EXPECT_EQ(events.exists, 1U);
  EXPECT_EQ(events.partial, 1U);
  int sum = 0;
  for (int page = 0; page < 8; ++page)
    sum += views.app[page * kPage];
  EXPECT_EQ(sum, 72);
}

TEST_F(MapTest, MapUntilPresentStopsThere) {
  TwoViews views(4);
  std::fill_n(views.fill, views.bytes, std::uint8_t{1});
  ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
  ASSERT_EQ(uffd.map(views.address() + kPage, kPage, events), FillResult::done);
  EXPECT_EQ(uffd.map_until_present(views.address(), views.bytes, events), FillResult::done);
  // Page 0 was mapped, page 1 was there, page 2 was not looked at: its touch is a minor fault.
  std::atomic<int> seen{-1};
  std::thread reader([&] { seen = views.app[2 * kPage]; });
  FaultMessage message;
  while (uffd.read(&message, 1) == 0) {
  }
  EXPECT_TRUE(message.minor);
  EXPECT_EQ(page_down(message.address), views.address() + 2 * kPage);
  EXPECT_EQ(uffd.map(views.address() + 2 * kPage, kPage, events), FillResult::done);
  reader.join();
  EXPECT_EQ(seen, 1);
}

TEST_F(MapTest, AnAbsentPageIsReportedAndNeverMappedAsZeros) {
  TwoViews views(2);
  ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
  views.fill[0] = 1;
  EXPECT_EQ(uffd.map(views.address(), views.bytes, events), FillResult::absent);
}

TEST_F(MapTest, AnUnmappedRangeIsReported) {
  std::uint64_t address = 0;
  {
    TwoViews views(2);
    ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
    address = views.address();
  }
  EXPECT_EQ(uffd.map(address, 2 * kPage, events), FillResult::unmapped);
}

TEST_F(MapTest, APoisonedPageRaisesSigbus) {
  if (!uffd.can_poison()) GTEST_SKIP() << "UFFDIO_POISON needs kernel 6.6";
  TwoViews views(1);
  ASSERT_EQ(uffd.add_range(views.address(), views.bytes), 0);
  ASSERT_TRUE(uffd.poison(views.address(), views.bytes));
  // In this process: a fork would start the child with an empty page table.
  struct sigaction act {};
  struct sigaction old {};
  act.sa_handler = [](int) { siglongjmp(g_back, 1); };
  ::sigaction(SIGBUS, &act, &old);
  volatile bool read_it = false;  // must survive the jump
  if (sigsetjmp(g_back, 1) == 0) {
    const volatile int x = views.app[0];
    (void)x;
    read_it = true;
  }
  ::sigaction(SIGBUS, &old, nullptr);
  EXPECT_FALSE(read_it);
}

TEST_F(MapTest, AnEmptyQueueIsNotAnError) {
  FaultMessage message;
  EXPECT_EQ(uffd.read(&message, 1), 0);
}

}  // namespace
}  // namespace resid

// ChildGroup on the machine's own control groups. Skipped, with the reason, where none can be made.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/units.hpp"
#include "host/cgroup.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20;

class RealGroup : public testing::Test {
 protected:
  void SetUp() override {
    auto found = memory_cgroup();
    ASSERT_TRUE(found) << found.error().line();
    self = *found;
    auto made = ChildGroup::create(self);
    if (!made) {
      ASSERT_EQ(made.error().status, Status::cgroup_denied) << made.error().line();
      GTEST_SKIP() << made.error().line();
    }
  }
  MemoryCgroup self;
};

// A process that enters a group, says what it has to say down a pipe, and waits to be told to go.
class Member {
 public:
  // `body` runs in the group and returns the byte that is reported.
  template <class Body>
  Member(const ChildGroup& group, Body body) {
    std::array<int, 2> up{};
    std::array<int, 2> down{};
    if (::pipe2(up.data(), O_CLOEXEC) != 0 || ::pipe2(down.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(down[1]);
      char word = group.enter_self() == 0 ? 'e' : 'x';
      if (word == 'e') word = body();
      (void)!::write(up[1], &word, 1);
      (void)!::read(down[0], &word, 1);
      ::_exit(0);
    }
    ::close(up[1]);
    ::close(down[0]);
    from_.reset(up[0]);
    to_.reset(down[1]);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() { end(); }

  // What body returned; 0 when the process died instead.
  char word() {
    char word = 0;
    return ::read(from_.get(), &word, 1) == 1 ? word : '\0';
  }
  // Lets the process go; its wait status.
  int end() {
    to_.reset();
    int status = 0;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd from_;
  Fd to_;
};

bool fill_shmem(std::uint64_t bytes) {
  const int fd = ::memfd_create("resid-test", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return false;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return false;
  std::memset(at, 1, bytes);
  return true;
}

TEST_F(RealGroup, IsNamedAfterItsCreator) {
  const auto group = ChildGroup::create(self);
  ASSERT_TRUE(group) << group.error().line();
  const std::string name = std::filesystem::path(group->path()).filename();
  EXPECT_EQ(name.rfind("residctl." + std::to_string(::getpid()) + ".", 0), 0U) << name;
  struct stat st {};
  ASSERT_EQ(::stat(group->path().c_str(), &st), 0);
  EXPECT_TRUE(S_ISDIR(st.st_mode));
}

TEST_F(RealGroup, OneProcessMayMakeSeveral) {
  const auto first = ChildGroup::create(self);
  const auto second = ChildGroup::create(self);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE(first->path(), second->path());
}

TEST_F(RealGroup, AMemberIsReallyInside) {
  const auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  Member member(*group, [] { return 'i'; });
  ASSERT_EQ(member.word(), 'i');
  const auto procs = read_kernel_file(group->path() + "/cgroup.procs", Status::cgroup_unreadable);
  ASSERT_TRUE(procs && *procs);
  EXPECT_EQ(**procs, std::to_string(member.pid()) + "\n");
}

TEST_F(RealGroup, AMemberFindsItselfAndItsLimit) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  ASSERT_TRUE(group->set_limit(64 * kMib));
  const std::string path = group->path();
  Member member(*group, [&path] {
    const auto own = memory_cgroup();
    return own && own->path == path && own->limit == 64 * kMib && own->available <= 64 * kMib ? 'y'
                                                                                              : 'n';
  });
  EXPECT_EQ(member.word(), 'y');
}

TEST_F(RealGroup, ShmemFiguresMatchWhatAMemberHolds) {
  const auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  constexpr std::uint64_t kHeld = 96 * kMib;
  Member member(*group, [] { return fill_shmem(kHeld) ? 'f' : 'n'; });
  ASSERT_EQ(member.word(), 'f');
  const auto figures = group->figures();
  ASSERT_TRUE(figures) << figures.error().line();
  EXPECT_GE(figures->shmem + figures_lag(), kHeld);
  EXPECT_LE(figures->shmem, kHeld + figures_lag());
  EXPECT_GE(figures->file + figures_lag(), kHeld);
  EXPECT_GE(figures->usage, kHeld);
  EXPECT_EQ(figures->oom_kills, 0U);
  if (figures->peak != 0) {
    EXPECT_GE(figures->peak, kHeld);
  }
}

TEST_F(RealGroup, TheLimitIsEnforcedAndTheKillCounted) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  ASSERT_TRUE(group->set_limit(32 * kMib));
  if (group->version() == CgroupVersion::v2 && !group->swap_forbidden()) {
    GTEST_SKIP() << "swap accounting is off: the member would be swapped, not killed";
  }
  Member member(*group, [] { return fill_shmem(96 * kMib) ? 'f' : 'n'; });
  EXPECT_EQ(member.word(), '\0');
  const int status = member.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const auto figures = group->figures();
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->oom_kills, 1U);
  EXPECT_LE(figures->peak, 32 * kMib);
}

TEST_F(RealGroup, TheLimitCanBeLoweredRaisedAndLifted) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  const bool v1 = group->version() == CgroupVersion::v1;
  const std::string limit = group->path() + (v1 ? "/memory.limit_in_bytes" : "/memory.max");
  const std::string memsw = group->path() + "/memory.memsw.limit_in_bytes";
  for (const std::uint64_t bytes : {64 * kMib, 32 * kMib, 128 * kMib, 128 * kMib, kNoLimit, kMib}) {
    const auto set = group->set_limit(bytes);
    ASSERT_TRUE(set) << set.error().line();
    EXPECT_EQ(read_limit(limit)->value(), std::min(bytes, group->ceiling()));
    const auto with_swap = read_limit(memsw);
    ASSERT_TRUE(with_swap);
    if (*with_swap) {
      EXPECT_EQ(**with_swap, std::min(bytes, group->ceiling()));
    }
  }
}

TEST_F(RealGroup, ALimitBelowWhatIsHeldIsRefusedAndKillsNobody) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  Member member(*group, [] { return fill_shmem(64 * kMib) ? 'f' : 'n'; });
  ASSERT_EQ(member.word(), 'f');
  const auto set = group->set_limit(16 * kMib);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().status, Status::cgroup_denied);
  EXPECT_EQ(::kill(member.pid(), 0), 0);
  EXPECT_TRUE(WIFEXITED(member.end()));
  EXPECT_EQ(group->figures()->oom_kills, 0U);
}

TEST_F(RealGroup, PromisesNoMoreAboutSwapThanItsVersionCan) {
  const auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  if (group->version() == CgroupVersion::v1) {
    EXPECT_FALSE(group->swap_forbidden());
    EXPECT_EQ(read_number(group->path() + "/memory.swappiness")->value(), 0U);
  } else {
    const auto swap = read_limit(group->path() + "/memory.swap.max");
    ASSERT_TRUE(swap);
    EXPECT_EQ(group->swap_forbidden(), swap->has_value() && **swap == 0);
  }
}

TEST_F(RealGroup, IsRemovedWithItsHandle) {
  std::string path;
  {
    auto group = ChildGroup::create(self);
    ASSERT_TRUE(group);
    ChildGroup moved = std::move(*group);
    path = moved.path();
    Member member(moved, [] { return fill_shmem(8 * kMib) ? 'f' : 'n'; });
    ASSERT_EQ(member.word(), 'f');
    member.end();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RealGroup, RemovalWaitsForAProcessThatIsLeaving) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  const std::string path = group->path();
  Member member(*group, [] { return fill_shmem(64 * kMib) ? 'f' : 'n'; });
  ASSERT_EQ(member.word(), 'f');
  std::thread leave([&member] {
    ::usleep(50'000);
    member.end();
  });
  { const ChildGroup removed = std::move(*group); }
  leave.join();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RealGroup, RemovalEndsNoProcess) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  const std::string path = group->path();
  Member member(*group, [] { return 'i'; });
  ASSERT_EQ(member.word(), 'i');
  { const ChildGroup kept = std::move(*group); }
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_TRUE(WIFEXITED(member.end()));
  EXPECT_EQ(::rmdir(path.c_str()), 0);
}

// How many pages of the file are in the page cache.
std::size_t cached_pages(int fd, std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return 0;
  std::vector<unsigned char> there(bytes / kPage);
  (void)::mincore(at, bytes, there.data());
  ::munmap(at, bytes);
  return static_cast<std::size_t>(
      std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1U) != 0; }));
}

TEST_F(RealGroup, OnVersion1RemovalDropsThePageCacheChargedToIt) {
  auto group = ChildGroup::create(self);
  ASSERT_TRUE(group);
  if (group->version() != CgroupVersion::v1) GTEST_SKIP() << "version 2 hands it to the parent";
  std::string name = (std::filesystem::temp_directory_path() / "resid-host.XXXXXX").string();
  const Fd file(::mkostemp(name.data(), O_CLOEXEC));
  ASSERT_TRUE(file);
  ::unlink(name.c_str());
  struct statfs fs {};
  ASSERT_EQ(::fstatfs(file.get(), &fs), 0);
  if (fs.f_type == TMPFS_MAGIC) GTEST_SKIP() << "the temporary folder is in memory";
  constexpr std::uint64_t kBytes = 16 * kMib;
  Member member(*group, [&file] {
    const std::vector<char> data(kBytes, 1);
    if (::write(file.get(), data.data(), kBytes) != static_cast<ssize_t>(kBytes)) return 'n';
    return ::fsync(file.get()) == 0 ? 'w' : 'n';
  });
  ASSERT_EQ(member.word(), 'w');
  member.end();
  ASSERT_GT(cached_pages(file.get(), kBytes), kBytes / kPage / 2);
  { const ChildGroup removed = std::move(*group); }
  EXPECT_LT(cached_pages(file.get(), kBytes), kBytes / kPage / 20);
}

TEST_F(RealGroup, AssignmentRemovesTheGroupThatIsReplaced) {
  auto first = ChildGroup::create(self);
  auto second = ChildGroup::create(self);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  const std::string replaced = first->path();
  const std::string kept = second->path();
  *first = std::move(*second);
  EXPECT_FALSE(std::filesystem::exists(replaced));
  EXPECT_TRUE(std::filesystem::exists(kept));
  EXPECT_EQ(first->path(), kept);
  Member member(*first, [] { return 'i'; });
  EXPECT_EQ(member.word(), 'i');
}

TEST_F(RealGroup, SurvivesItsHandleWhileAProcessIsInsideAndIsSweptLater) {
  // The creator is a process of its own, killed with a member still running.
  std::array<int, 2> up{};
  ASSERT_EQ(::pipe2(up.data(), O_CLOEXEC), 0);
  const pid_t creator = ::fork();
  if (creator == 0) {
    auto group = ChildGroup::create(self);
    if (!group) ::_exit(1);
    const std::string path = group->path();
    const pid_t inner = ::fork();
    if (inner == 0) {
      if (group->enter_self() != 0) ::_exit(1);
      for (;;)
        ::pause();
    }
    const std::string line = std::to_string(inner) + " " + path;
    (void)!::write(up[1], line.data(), line.size());
    for (;;)
      ::pause();
  }
  ::close(up[1]);
  const Fd from(up[0]);
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(from.get(), buffer.data(), buffer.size());
  ASSERT_GT(n, 0);
  const std::string line(buffer.data(), static_cast<std::size_t>(n));
  const auto member = static_cast<pid_t>(std::stol(line));
  const std::string path = line.substr(line.find(' ') + 1);
  // Alive, so not stale.
  EXPECT_EQ(sweep_stale_groups(self), 0);
  ::kill(creator, SIGKILL);
  ::waitpid(creator, nullptr, 0);
  // Stale, but in use: wait until the member has really entered before relying on that.
  while (!has_word(**read_kernel_file(path + "/cgroup.procs", Status::cgroup_unreadable),
                   std::to_string(member))) {
    ::usleep(1000);
  }
  EXPECT_EQ(sweep_stale_groups(self), 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  ::kill(member, SIGKILL);
  while (!(*read_kernel_file(path + "/cgroup.procs", Status::cgroup_unreadable))->empty()) {
    ::usleep(1000);
  }
  EXPECT_EQ(sweep_stale_groups(self), 1);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace resid::host

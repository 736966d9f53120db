// Adding to a history on disk: whatever fails or ends at whatever step, the name holds the old
// content or the new.
//
// The steps are counted by functions of this program that stand in front of the C library's.

#include "expert/usage_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace {

enum class At { nothing, fail, end_before, end_after };
At g_what = At::nothing;
int g_error = 0;
int g_left = 0;  // steps until it happens

// Around a step: true when it is to fail.
bool fails() {
  if (g_what == At::nothing || g_what == At::end_after || --g_left != 0) return false;
  if (g_what == At::end_before) ::_exit(9);
  errno = g_error;
  return true;
}
template <class T>
T done(T result) {
  if (g_what == At::end_after && --g_left == 0) ::_exit(9);
  return result;
}

template <class... A>
long step(long number, A... arguments) {
  if (fails()) return -1;
  return done(::syscall(number, arguments...));
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return static_cast<int>(step(SYS_openat, AT_FDCWD, path, flags, mode));
}
ssize_t write(int fd, const void* data, size_t bytes) {
  // A short write first, as a full disk makes it.
  return step(SYS_write, fd, data, bytes > 64 ? 64 : bytes);
}
int fdatasync(int fd) {
  return static_cast<int>(step(SYS_fdatasync, fd));
}
int fsync(int fd) {
  return static_cast<int>(step(SYS_fsync, fd));
}
int flock(int fd, int how) noexcept {
  return static_cast<int>(step(SYS_flock, fd, how));
}
int fallocate64(int fd, int mode, __off64_t offset, __off64_t bytes) {
  return static_cast<int>(step(SYS_fallocate, fd, mode, offset, bytes));
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  return static_cast<int>(step(SYS_linkat, from_fd, from, to_fd, to, flags));
}
int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  return static_cast<int>(step(SYS_renameat2, from_fd, from, to_fd, to, flags));
}
ssize_t pread64(int fd, void* data, size_t bytes, __off64_t offset) {
  return step(SYS_pread64, fd, data, bytes, offset);
}
}

namespace resid {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;

UsageHistory counted(float uses, double tokens = 10) {
  UsageHistory history;
  history.model = 7;
  history.usage = {.experts = 64, .layers = {0, 1}, .tokens = {tokens, tokens}, .uses = {}};
  history.usage.uses.assign(128, uses);
  return history;
}

class UsageFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "usage-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "h.usage").string();
  }
  void TearDown() override {
    g_what = At::nothing;
    fs::remove_all(folder_);
  }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  float uses() const {
    const auto history = read_usage(path_);
    if (!history) return -1;
    return history->usage.uses[5];
  }
  fs::path folder_;
  std::string path_;
};

TEST_F(UsageFile, AddsToWhatIsThere) {
  ASSERT_TRUE(add_usage(path_, counted(3), milliseconds(100)));
  EXPECT_EQ(uses(), 3);
  const auto added = add_usage(path_, counted(2), milliseconds(100));
  ASSERT_TRUE(added) << added.error().line();
  EXPECT_FALSE(added->set_aside);
  EXPECT_NEAR(uses(), 5, 0.01);
}

TEST_F(UsageFile, HoldsTheOldOrTheNewWhateverStepFails) {
  ASSERT_TRUE(add_usage(path_, counted(4), milliseconds(0)));
  const std::string old = read(path_);
  for (const int error : {EIO, ENOSPC, EACCES}) {
    int steps = 1;
    for (;; ++steps) {
      g_what = At::fail;
      g_error = error;
      g_left = steps;
      const auto added = add_usage(path_, counted(1), milliseconds(0));
      g_what = At::nothing;
      const bool reached = g_left <= 0;
      if (added) {
        EXPECT_NEAR(uses(), 5, 0.01) << "step " << steps;
      } else {
        EXPECT_EQ(read(path_), old) << "step " << steps << ": " << added.error().line();
        EXPECT_FALSE(added.error().why.empty());
      }
      put(old);
      if (!reached) break;
      ASSERT_LT(steps, 1000);
    }
    EXPECT_GT(steps, 20) << "every write is a step";
  }
  // Nothing is left behind but the file and its lock.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(UsageFile, HoldsTheOldOrTheNewWhereverTheProcessEnds) {
  ASSERT_TRUE(add_usage(path_, counted(4), milliseconds(0)));
  const std::string old = read(path_);
  for (const At what : {At::end_before, At::end_after}) {
    bool old_seen = false;
    bool new_seen = false;
    for (int steps = 1;; ++steps) {
      ASSERT_LT(steps, 1000);
      const pid_t child = ::fork();
      if (child == 0) {
        g_what = what;
        g_left = steps;
        const bool ok = add_usage(path_, counted(1), milliseconds(0)).has_value();
        ::_exit(ok ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_NE(WEXITSTATUS(status), 1);
      const bool is_old = read(path_) == old;
      (is_old ? old_seen : new_seen) = true;
      EXPECT_NEAR(uses(), is_old ? 4 : 5, 0.01) << steps;
      // The lock died with its holder, and what it left is in nobody's way.
      const auto next = add_usage(path_, counted(1), milliseconds(0));
      ASSERT_TRUE(next) << next.error().line();
      EXPECT_FALSE(next->set_aside);
      put(old);
      if (WEXITSTATUS(status) == 0) break;
    }
    EXPECT_TRUE(old_seen && new_seen);
  }
}

TEST_F(UsageFile, WhatCannotBeUsedIsSetAsideAndNeverOverwritten) {
  std::string later = encode(counted(1));
  later[8] = 9;
  UsageHistory other_model = counted(1);
  other_model.model = 8;
  UsageHistory other_shape = counted(1);
  other_shape.usage.layers = {0, 2};
  std::string cut = encode(counted(1));
  cut.resize(cut.size() / 2);
  const std::vector<std::pair<std::string, std::string>> all = {
      {"", "does not begin as one"},
      {"a diary", "does not begin as one"},
      {cut, "checksum"},
      {later, "version 9"},
      {encode(other_model), "another model"},
      {encode(other_shape), "another model"},
      {std::string(100'000, 'x'), "does not begin as one"}};
  int n = 0;
  for (const auto& [text, why] : all) {
    put(text);
    const auto added = add_usage(path_, counted(6), milliseconds(0));
    ASSERT_TRUE(added) << added.error().line();
    ASSERT_TRUE(added->set_aside) << why;
    EXPECT_THAT(added->set_aside->line(), HasSubstr(why));
    const std::string name = path_ + (++n == 1 ? ".damaged" : ".damaged-" + std::to_string(n));
    EXPECT_THAT(added->set_aside->line(), HasSubstr(name));
    EXPECT_EQ(read(name), text);
    EXPECT_EQ(uses(), 6);
    EXPECT_FALSE(add_usage(path_, counted(6), milliseconds(0))->set_aside) << "told once";
  }
}

TEST_F(UsageFile, WhatMayNotBeReadIsLeftAlone) {
  fs::create_directory(path_);
  const auto added = add_usage(path_, counted(1), milliseconds(0));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().status, Status::unreadable);
  EXPECT_TRUE(fs::is_directory(path_));
}

TEST_F(UsageFile, WritersAtOnceAllCount) {
  constexpr int kWriters = 4;
  constexpr int kTimes = 25;
  std::vector<pid_t> children;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool ok = true;
      for (int i = 0; i < kTimes; ++i)
        ok = ok && add_usage(path_, counted(1, 0), milliseconds(60'000)).has_value();
      ::_exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(uses(), kWriters * kTimes) << "no token has passed, so nothing has faded";
}

TEST_F(UsageFile, WhoDoesNotGetTheLockSaysSo) {
  ASSERT_TRUE(add_usage(path_, counted(1), milliseconds(0)));
  const int fd = ::open((path_ + ".lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const auto added = add_usage(path_, counted(1), milliseconds(30));
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().line(), HasSubstr("lock"));
  ::close(fd);
  EXPECT_TRUE(add_usage(path_, counted(1), milliseconds(30)));
}

TEST(UsageFolder, FollowsTheBaseDirectories) {
  ::setenv("XDG_STATE_HOME", "/state", 1);
  ::setenv("HOME", "/usr", 1);
  EXPECT_EQ(usage_folder().value(), "/state/residctl/experts/");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(usage_folder().value(), "/usr/.local/state/residctl/experts/");
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(usage_folder().value(), "/usr/.local/state/residctl/experts/");
  ::setenv("HOME", "/nonexistent/home", 1);
  EXPECT_FALSE(usage_folder()) << "a home that is not there is not made";
  ::unsetenv("HOME");
  EXPECT_FALSE(usage_folder());
}

TEST(UsageFolder, IsMadeForThisUserAlone) {
  std::string pattern = testing::TempDir() + "usage-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string folder = pattern + "/a/b/";
  ASSERT_TRUE(make_usage_folder(folder));
  ASSERT_TRUE(make_usage_folder(folder)) << "and again";
  EXPECT_EQ(fs::status(pattern + "/a/b").permissions(), fs::perms::owner_all);
  std::ofstream(pattern + "/file") << "x";
  EXPECT_FALSE(make_usage_folder(pattern + "/file/b/"));
  fs::remove_all(pattern);
}

}  // namespace
}  // namespace resid

// A file appears whole or not at all, never in place of another unless that was asked for.

#include "synth/output_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

namespace resid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kSkipped = 77;

class Output : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "output-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const char* name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::size_t files_left() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}));
  }

  static Result<void> write(const std::string& path, const std::string& text, bool replace,
                            std::uint64_t promised) {
    auto file = OutputFile::create(path, promised, replace);
    if (!file) return tl::unexpected(file.error());
    if (auto ok = file->append(std::as_bytes(std::span(text.data(), text.size()))); !ok) return ok;
    return file->finish();
  }
  static Result<void> write(const std::string& path, const std::string& text, bool replace) {
    return write(path, text, replace, text.size());
  }

  // Runs `body` in a child with mounts of its own; 77 from the child means not permitted.
  static int in_own_mounts(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool ok = ::unshare(CLONE_NEWNS) == 0 &&
                      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
      ::_exit(ok ? body() : kSkipped);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder_;
};

TEST_F(Output, HasNoNameUntilItIsFinished) {
  auto file = OutputFile::create(path("f"), 4, false);
  ASSERT_TRUE(file) << file.error().line();
  EXPECT_FALSE(fs::exists(path("f")));
  auto room = file->room(4);
  ASSERT_TRUE(room);
  std::fill(room->begin(), room->end(), std::byte{'x'});
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(read(path("f")), "xxxx");
  EXPECT_EQ(files_left(), 1U);
}

TEST_F(Output, IsGoneWhenItIsNotFinished) {
  {
    auto file = OutputFile::create(path("f"), 4, false);
    ASSERT_TRUE(file) << file.error().line();
    ASSERT_TRUE(file->room(4));
  }
  EXPECT_EQ(files_left(), 0U);
}

TEST_F(Output, KeepsTheBytesInOrderAcrossItsBuffer) {
  std::string text(3 * OutputFile::kBufferBytes + 12345, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 2654435761U >> 24);
  ASSERT_TRUE(write(path("f"), text, false));
  EXPECT_TRUE(read(path("f")) == text);
}

TEST_F(Output, NumberOfBytesMustBeTheOnePromised) {
  auto done = write(path("f"), "abc", false, 5);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::internal);
  EXPECT_EQ(files_left(), 0U);
}

TEST_F(Output, AnExistingFileIsKept) {
  put("f", "old");
  auto done = write(path("f"), "new", false);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::usage);
  EXPECT_THAT(done.error().line(), HasSubstr("--force"));
  EXPECT_EQ(read(path("f")), "old");
}

TEST_F(Output, AFileThatAppearsMeanwhileIsKept) {
  auto file = OutputFile::create(path("f"), 0, false);
  ASSERT_TRUE(file) << file.error().line();
  put("f", "other");
  auto done = file->finish();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::usage);
  EXPECT_EQ(read(path("f")), "other");
}

TEST_F(Output, AnExistingFileIsReplacedWhenAsked) {
  put("f", "old");
  ASSERT_TRUE(write(path("f"), "new", true));
  EXPECT_EQ(read(path("f")), "new");
  EXPECT_EQ(files_left(), 1U);
}

TEST_F(Output, AFolderIsRefused) {
  auto done = write(folder_, "x", true);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::not_a_file);
  EXPECT_EQ(write("/dev/null", "x", true).error().status, Status::not_a_file);
  EXPECT_EQ(write(path("sub/"), "x", true).error().status, Status::usage);
  EXPECT_EQ(write("", "x", true).error().status, Status::usage);
}

TEST_F(Output, AMissingFolderIsNamed) {
  auto done = write(path("no/such/f"), "x", false);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::no_such_file);
  EXPECT_EQ(done.error().what, path("no/such"));
}

TEST_F(Output, AFolderWithoutPermissionIsRefused) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  const std::string target = path("f");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    auto done = write(target, "x", false);
    ::_exit(!done && done.error().status == Status::write_failed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Output, AFullFileSystemIsFoundBeforeTheFirstByte) {
  const std::string folder = folder_;
  const int code = in_own_mounts([&] {
    if (::mount("none", folder.c_str(), "tmpfs", 0, "size=1m") != 0) return kSkipped;
    auto file = OutputFile::create(folder + "/f", 8 << 20, false);
    if (file) return 1;
    if (file.error().status != Status::write_failed) return 2;
    if (file.error().why.find("8.00 MiB") == std::string::npos) return 3;
    return fs::is_empty(folder) ? 0 : 4;
  });
  if (code == kSkipped) GTEST_SKIP() << "may not mount a small file system";
  EXPECT_EQ(code, 0);
}

TEST_F(Output, WithoutNamelessFilesAHiddenOneIsUsedAndRemoved) {
  const std::string folder = folder_;
  const int code = in_own_mounts([&] {
    // Without /proc a nameless file could not be given a name.
    if (::mount("none", "/proc", "tmpfs", 0, nullptr) != 0) return kSkipped;
    {
      auto file = OutputFile::create(folder + "/f", 1, false);
      if (!file) return 1;
      if (fs::exists(folder + "/f") || fs::is_empty(folder)) return 2;
    }
    if (!fs::is_empty(folder)) return 3;
    if (!write(folder + "/f", "one", false) || read(folder + "/f") != "one") return 4;
    if (write(folder + "/f", "two", false)) return 5;
    if (!write(folder + "/f", "two", true) || read(folder + "/f") != "two") return 6;
    {
      auto file = OutputFile::create(folder + "/g", 0, false);
      if (!file) return 7;
      std::ofstream(folder + "/g") << "other";
      if (file->finish()) return 8;
      if (read(folder + "/g") != "other") return 9;
    }
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator{}) == 2 ? 0 : 10;
  });
  if (code == kSkipped) GTEST_SKIP() << "may not mount over /proc";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace resid

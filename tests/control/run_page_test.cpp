#include "control/run_page.hpp"
#include "control/trace_area.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace resid {
namespace {

namespace fs = std::filesystem;

class RunPageTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "resid-control.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  // A file of `bytes` zeros with the start of a run page's header.
  std::string file(std::uint64_t magic, std::uint32_t page_bytes, std::uint64_t bytes) {
    const std::string path = folder + "/page";
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&magic), sizeof magic);
    out.write(reinterpret_cast<const char*>(&page_bytes), sizeof page_bytes);
    out.close();
    fs::resize_file(path, bytes);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return path;
  }
  std::string folder;
};

TEST_F(RunPageTest, IsMadeInTheRuntimeFolderForThisUserAlone) {
  auto made = RunPageFile::create();
  ASSERT_TRUE(made) << made.error().line();
  EXPECT_EQ(fs::path(made->path()).parent_path(), folder);
  struct stat st {};
  ASSERT_EQ(::stat(made->path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
  EXPECT_EQ(static_cast<std::size_t>(st.st_size), sizeof(RunPage));
  EXPECT_GE(static_cast<std::size_t>(st.st_blocks) * 512, sizeof(RunPage));  // no holes: no SIGBUS
  EXPECT_EQ(made->page().magic, RunPage::kMagic);
  EXPECT_EQ(made->page().config.fetch_workers, 2U);
}

TEST_F(RunPageTest, IsMadeInTmpWhereTheRuntimeFolderIsOfNoUse) {
  const std::string plain = folder + "/file";
  std::ofstream(plain) << "x";
  for (const std::string& useless :
       {plain, folder + "/missing", std::string("relative"), std::string()}) {
    ::setenv("XDG_RUNTIME_DIR", useless.c_str(), 1);
    const auto made = RunPageFile::create();
    ASSERT_TRUE(made) << made.error().line();
    EXPECT_EQ(fs::path(made->path()).parent_path(), "/tmp");
  }
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(fs::path(RunPageFile::create()->path()).parent_path(), "/tmp");
}

TEST_F(RunPageTest, IsMadeInTmpWhereTheRuntimeFolderIsAnotherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
  ASSERT_EQ(::chown(folder.c_str(), 65534, 65534), 0);
  EXPECT_EQ(fs::path(RunPageFile::create()->path()).parent_path(), "/tmp");
}

TEST_F(RunPageTest, AnotherProcessSeesTheSamePage) {
  auto made = RunPageFile::create();
  ASSERT_TRUE(made);
  RunPage& page = made->page();
  page.config.ram_bytes = 12345;
  std::strcpy(page.config.policy, "lru");
  const pid_t child = ::fork();
  if (child == 0) {
    auto opened = RunPageFile::open(made->path());
    if (!opened || opened->page().config.ram_bytes != 12345) ::_exit(1);
    if (std::strcmp(opened->page().config.policy, "lru") != 0) ::_exit(2);
    RunPage* kept = opened->release();
    kept->budget_bytes.store(777);
    bump(kept->stats.bytes_fetched, 42);
    kept->stats.fault_ns.record(1000);
    ::kill(::getpid(), SIGKILL);  // whatever ends the program, the figures are there
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(page.budget_bytes.load(), 777U);
  EXPECT_EQ(page.stats.bytes_fetched.load(), 42U);
  EXPECT_EQ(page.stats.fault_ns.count(), 1U);
}

TEST_F(RunPageTest, OnlyTheCreatorRemovesTheFile) {
  std::string path;
  {
    const auto made = RunPageFile::create();
    ASSERT_TRUE(made);
    path = made->path();
    { ASSERT_TRUE(RunPageFile::open(path)); }
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

// A residctl that was killed outright leaves its files; the next one takes them away, and leaves
// those of the living alone.
TEST_F(RunPageTest, FilesOfAKilledCreatorAreSweptByTheNext) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto made = RunPageFile::create();
    auto area = TraceAreaFile::create_at(trace_area_path(made->path()));
    if (!area) ::_exit(1);
    const std::string& path = made->path();
    (void)!::write(ends[1], path.data(), path.size());
    ::kill(::getpid(), SIGKILL);
  }
  ::close(ends[1]);
  std::string path(4096, '\0');
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], path.data(), 4096))));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(path)) << path;
  ASSERT_TRUE(fs::exists(trace_area_path(path)));
  const auto first = RunPageFile::create();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(trace_area_path(path)));
  const auto second = RunPageFile::create();
  EXPECT_TRUE(fs::exists(first->path()));
  EXPECT_TRUE(fs::exists(second->path()));
}

TEST_F(RunPageTest, MovesCarryTheFileAndThePage) {
  auto first = RunPageFile::create();
  auto second = RunPageFile::create();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  const std::string replaced = first->path();
  const std::string kept = second->path();
  second->page().reserved = 9;
  *first = std::move(*second);
  EXPECT_FALSE(fs::exists(replaced));
  EXPECT_TRUE(fs::exists(kept));
  const RunPageFile third = std::move(*first);
  EXPECT_EQ(third.path(), kept);
  EXPECT_EQ(third.page().reserved, 9U);
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(RunPageTest, AReleasedPageOutlivesItsHandle) {
  RunPage* page = nullptr;
  std::string path;
  {
    auto made = RunPageFile::create();
    ASSERT_TRUE(made);
    path = made->path();
    page = made->release();
  }
  EXPECT_TRUE(fs::exists(path));
  page->regions.store(3);
  EXPECT_EQ(RunPageFile::open(path)->page().regions.load(), 3U);
}

TEST_F(RunPageTest, OpenTellsWhatIsWrong) {
  const auto refusal = [](const std::string& path) {
    const auto opened = RunPageFile::open(path);
    return opened ? Failure{Status::ok, "", "opened", ""} : opened.error();
  };
  EXPECT_EQ(refusal(folder + "/missing").status, Status::no_such_file);
  EXPECT_EQ(refusal(folder).status, Status::unreadable);  // EISDIR: opened for writing
  EXPECT_NE(refusal("/dev/null").why.find("regular file"), std::string::npos);

  EXPECT_NE(refusal(file(RunPage::kMagic, sizeof(RunPage), sizeof(RunPage) - 1)).why.find("bytes"),
            std::string::npos);
  EXPECT_NE(refusal(file(RunPage::kMagic, sizeof(RunPage), 0)).why.find("bytes"),
            std::string::npos);
  EXPECT_NE(refusal(file(RunPage::kMagic + 1, sizeof(RunPage), sizeof(RunPage))).why.find("magic"),
            std::string::npos);
  EXPECT_NE(refusal(file(RunPage::kMagic, 1, sizeof(RunPage))).why.find("another build"),
            std::string::npos);

  const std::string good = file(RunPage::kMagic, sizeof(RunPage), sizeof(RunPage));
  EXPECT_EQ(refusal(good).why, "opened");
  fs::create_symlink(good, folder + "/link");
  EXPECT_NE(refusal(folder + "/link").why.find("symbolic link"), std::string::npos);
  fs::permissions(good, fs::perms::others_write, fs::perm_options::add);
  EXPECT_NE(refusal(good).why.find("other users"), std::string::npos);
}

TEST_F(RunPageTest, OpenRefusesAFifoWithoutWaiting) {
  const std::string path = folder + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto opened = RunPageFile::open(path);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().why.find("regular file"), std::string::npos);
}

TEST_F(RunPageTest, OpenRefusesAnotherUsersPage) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const std::string path = file(RunPage::kMagic, sizeof(RunPage), sizeof(RunPage));
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  const auto opened = RunPageFile::open(path);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().why.find("65534"), std::string::npos);
}

TEST(RecordFailure, KeepsTheFirst) {
  const auto page = std::make_unique<RunPage>();
  record_failure(*page, Status::read_failed, "first");
  record_failure(*page, Status::store_changed, "second, and longer");
  EXPECT_EQ(page->last_status.load(), static_cast<std::uint32_t>(Status::read_failed));
  EXPECT_STREQ(page->last_error, "first");
  EXPECT_EQ(page->phase.load(), 0U);
}

TEST(RecordFailure, CutsALongLineAndEndsIt) {
  const auto page = std::make_unique<RunPage>();
  record_failure(*page, Status::system, std::string(5000, 'x').c_str());
  EXPECT_EQ(std::strlen(page->last_error), sizeof(page->last_error) - 1);
}

TEST(RecordFailure, TakesNoLineAndNoStatus) {
  const auto page = std::make_unique<RunPage>();
  record_failure(*page, Status::ok, nullptr);
  EXPECT_EQ(page->last_status.load(), static_cast<std::uint32_t>(Status::internal));
  EXPECT_STREQ(page->last_error, "");
}

TEST(RecordFailure, OfManyThreadsOneWinsWhole) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 20; ++round) {
    const auto page = std::make_unique<RunPage>();
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const std::string line(static_cast<std::size_t>(100 + i), static_cast<char>('a' + i));
        while (!go.load())
          std::this_thread::yield();
        record_failure(*page, static_cast<Status>(i + 1), line.c_str());
      });
    }
    go.store(true);
    for (std::thread& t : threads)
      t.join();
    const auto winner = static_cast<int>(page->last_status.load()) - 1;
    ASSERT_GE(winner, 0);
    ASSERT_EQ(page->last_error,
              std::string(static_cast<std::size_t>(100 + winner), static_cast<char>('a' + winner)));
  }
}

}  // namespace
}  // namespace resid

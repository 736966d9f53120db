// A sweep's folder: gone on with, refused, torn, full, taken.

#include "sweep/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>

#include "fake_cells.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;

Record record(const std::string& arm, State state = State::done) {
  const Cell cell{arm, 0.5, 1};
  return {cell, "h", {state, state == State::done ? "" : "why", fake_figures(cell)}, 1, 0};
}

class Folder : public testing::Test {
 protected:
  Identity identity_ = identity(fake_settings(), {{"machine", "one"}});
  Result<SweepFolder> open(bool force = false) {
    return SweepFolder::open(temp_ / "out", fake_manifest(identity_), force);
  }
  TempFolder temp_;
};

TEST_F(Folder, IsMadeAndGoneOnWith) {
  {
    auto folder = open();
    ASSERT_TRUE(folder) << folder.error().line();
    EXPECT_FALSE(folder->resumed());
    ASSERT_TRUE(folder->append(record("A")));
    ASSERT_TRUE(folder->append(record("C", State::censored)));
  }
  auto again = open();
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->resumed());
  EXPECT_FALSE(again->dropped_torn_line());
  ASSERT_EQ(again->records().size(), 2U);
  EXPECT_EQ(again->records()[1].outcome.state, State::censored);
}

TEST_F(Folder, KeepsTheFirstManifest) {
  ASSERT_TRUE(open());
  auto manifest = fake_manifest(identity_);
  manifest["date"] = "later";
  auto again = SweepFolder::open(temp_ / "out", manifest, false);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->manifest()["date"], "2025-01-01T00:00:00Z");
}

TEST_F(Folder, TheLastRecordOfACellCounts) {
  auto folder = open();
  ASSERT_TRUE(folder->append(record("A", State::failed)));
  ASSERT_TRUE(folder->append(record("C")));
  ASSERT_TRUE(folder->append(record("A")));
  ASSERT_EQ(folder->records().size(), 2U);
  EXPECT_EQ(folder->records()[0].outcome.state, State::done);
}

TEST_F(Folder, ATornLastLineIsDroppedWhereverItWasTorn) {
  ASSERT_TRUE(open()->append(record("A")));
  const std::string whole = read_all(temp_ / "out/cells.jsonl");
  const std::string next = record_line(record("C"));
  for (const std::size_t n : {std::size_t{1}, next.size() / 2, next.size() - 1}) {
    write_all(temp_ / "out/cells.jsonl", whole + next.substr(0, n));
    auto folder = open();
    ASSERT_TRUE(folder) << folder.error().line();
    EXPECT_TRUE(folder->dropped_torn_line());
    EXPECT_EQ(folder->records().size(), 1U);
    ASSERT_TRUE(folder->append(record("C")));
    EXPECT_EQ(read_all(temp_ / "out/cells.jsonl"), whole + next) << "torn after " << n;
  }
  // Blocks that a power cut left unwritten read as zeros.
  write_all(temp_ / "out/cells.jsonl", whole + std::string(100, '\0') + "\n");
  auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(folder->dropped_torn_line());
  EXPECT_EQ(read_all(temp_ / "out/cells.jsonl"), whole);
}

TEST_F(Folder, ADamagedLineInTheMiddleIsNeverDroppedSilently) {
  ASSERT_TRUE(open());
  const std::string text = record_line(record("A")) + "{broken\n" + record_line(record("C"));
  write_all(temp_ / "out/cells.jsonl", text);
  auto folder = open();
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().status, Status::malformed);
  EXPECT_THAT(folder.error().what, HasSubstr("line 2"));
  EXPECT_EQ(read_all(temp_ / "out/cells.jsonl"), text);
}

TEST_F(Folder, OtherSettingsAreRefusedByName) {
  ASSERT_TRUE(open()->append(record("A")));
  SweepSettings other = fake_settings();
  other.chunk = 4096;
  identity_ = identity(other, {{"machine", "one"}});
  auto folder = open();
  ASSERT_FALSE(folder);
  EXPECT_EQ(exit_code(folder.error().status), 2);
  EXPECT_THAT(folder.error().line(), HasSubstr("--chunk was 2097152, now 4096"));
  EXPECT_THAT(folder.error().line(), HasSubstr("--force"));
  // A setting that is new, and one that is gone.
  identity_ = identity(fake_settings(), {{"machine", "one"}, {"--advice", "random"}});
  EXPECT_THAT(open().error().line(), HasSubstr("--advice was not given, now random"));
  identity_ = identity(fake_settings(), {});
  EXPECT_THAT(open().error().line(), HasSubstr("machine was one, now not given"));
}

TEST_F(Folder, ForceStartsOverAndTouchesNothingElse) {
  ASSERT_TRUE(open()->append(record("A")));
  write_all(temp_ / "out/notes.txt", "mine");
  write_all(temp_ / "out/report.html", "old");
  identity_ = identity(fake_settings(), {{"machine", "two"}});
  auto folder = open(true);
  ASSERT_TRUE(folder) << folder.error().line();
  EXPECT_FALSE(folder->resumed());
  EXPECT_TRUE(folder->records().empty());
  EXPECT_EQ(read_all(temp_ / "out/notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(temp_ / "out/report.html"));
}

TEST_F(Folder, RemovesOnlyAStoreThatItMade) {
  auto folder = open();
  write_all(temp_ / "store.bin", "bytes");
  folder->remove_store();
  EXPECT_TRUE(std::filesystem::exists(temp_ / "store.bin"));
  ASSERT_TRUE(folder->write(kStoreMark, temp_ / "store.bin"));
  folder->remove_store();
  EXPECT_FALSE(std::filesystem::exists(temp_ / "store.bin"));
  write_all(temp_ / "other", "bytes");
  ASSERT_TRUE(folder->write(kStoreMark, temp_ / "other"));
  folder->remove_store();
  EXPECT_TRUE(std::filesystem::exists(temp_ / "other"));
}

TEST_F(Folder, FilesThatNoSweepWroteAreNotOverwritten) {
  std::filesystem::create_directory(temp_ / "out");
  write_all(temp_ / "out/report.html", "somebody's");
  auto folder = open();
  ASSERT_FALSE(folder);
  EXPECT_EQ(exit_code(folder.error().status), 2);
  EXPECT_THAT(folder.error().line(), HasSubstr("report.html"));
  EXPECT_EQ(read_all(temp_ / "out/report.html"), "somebody's");
}

TEST_F(Folder, ADamagedManifestIsSaid) {
  ASSERT_TRUE(open());
  for (const char* text : {"", "{", "[]", "{\"settings\":3}"}) {
    write_all(temp_ / "out/manifest.json", text);
    auto folder = open();
    ASSERT_FALSE(folder) << text;
    EXPECT_THAT(folder.error().line(), HasSubstr("manifest.json"));
    EXPECT_THAT(folder.error().line(), HasSubstr("--force"));
  }
}

TEST_F(Folder, IsTakenByOneSweepAtATime) {
  auto first = open();
  ASSERT_TRUE(first);
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().line(), HasSubstr("another sweep"));
}

TEST_F(Folder, AFileInItsPlaceIsSaid) {
  write_all(temp_ / "out", "a file");
  auto folder = open();
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().line(), HasSubstr(temp_ / "out"));
}

TEST_F(Folder, AnUnwritableOneIsSaid) {
  // Root may write everywhere but below /proc.
  auto folder = SweepFolder::open("/proc/self/out", fake_manifest(identity_), false);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().status, Status::write_failed);
  EXPECT_THAT(folder.error().line(), HasSubstr("/proc/self/out"));
}

// A disk that is full in the middle of a line: a limit on file sizes is the same to write(2).
TEST_F(Folder, AFullDiskLosesNothing) {
  ASSERT_TRUE(open()->append(record("A")));
  const std::string before = read_all(temp_ / "out/cells.jsonl");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    auto folder = open();
    const rlimit limit{before.size() + 40, before.size() + 40};
    if (!folder || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const auto ok = folder->append(record("C"));
    ::_exit(!ok && ok.error().status == Status::write_failed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_all(temp_ / "out/cells.jsonl"), before);
  auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_FALSE(folder->dropped_torn_line());
  EXPECT_EQ(folder->records().size(), 1U);
}

}  // namespace
}  // namespace resid::sweep

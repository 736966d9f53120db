// residctl sweep itself, on stores so small that it takes seconds.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code = -1;
  int signal = 0;
  std::string out, err;
};

class Sweep : public testing::Test {
 protected:
  void SetUp() override {
    // A disk: on tmpfs nothing is ever out of the page cache.
    std::string pattern = "/var/tmp/sweep-command-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  pid_t start(std::vector<std::string> args) {
    args.insert(args.begin(), kProgram);
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::chdir(folder_.c_str()) != 0) ::_exit(125);
    std::signal(SIGINT, SIG_DFL);  // a test in the background may have it ignored
    ::dup2(::open("stdout.txt", O_CREAT | O_TRUNC | O_WRONLY, 0600), STDOUT_FILENO);
    ::dup2(::open("stderr.txt", O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& a : args)
      argv.push_back(a.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  Outcome finish(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            WIFSIGNALED(status) ? WTERMSIG(status) : 0, read(folder_ / "stdout.txt"),
            read(folder_ / "stderr.txt")};
  }
  Outcome run(std::vector<std::string> args) { return finish(start(std::move(args))); }
  std::size_t cells_written() const {
    const std::string text = read(folder_ / "out/cells.jsonl");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  // The first reason that a cell gives for not having run, which is what one wants to see.
  std::string reasons() const {
    const auto json = nlohmann::json::parse(read(folder_ / "out/sweep.json"), nullptr, false);
    if (!json.is_object()) return "no sweep.json";
    std::string out;
    for (const auto& cell : json["cells"]) {
      if (!cell["reason"].is_string()) continue;
      out += cell["arm"].get<std::string>() + ": " + cell["reason"].get<std::string>() + "\n";
    }
    return out;
  }
  static bool may_make_groups() { return ::geteuid() == 0; }

  const std::string kProgram = RESID_BIN_DIR "/residctl";
  const std::vector<std::string> kSmall{"sweep",    "--out",     "out",      "--size", "16MiB",
                                        "--chunk",  "512KiB",    "--passes", "3",      "--ratios",
                                        "0.5,0.75", "--repeats", "1",        "--json"};
  std::vector<std::string> with(std::vector<std::string> more) const {
    std::vector<std::string> out = kSmall;
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  fs::path folder_;
};

TEST_F(Sweep, OfReplayOnATinyStore) {
  // The kernel's arms need a control group.
  const std::string arms = may_make_groups() ? "A,C,D,E,OPT" : "C,D,E,OPT";
  const Outcome o = run(with({"--arms", arms}));
  ASSERT_EQ(o.code, 0) << o.err << reasons();
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["cells"].size(), may_make_groups() ? 10U : 8U);
  for (const auto& group : json["summary"]) {
    EXPECT_EQ(group["done"], 1) << group.dump();
    // On a cyclic scan LRU reads everything in every pass; the declared order reads at most a chunk
    // or two a pass more than it must.
    const double read = group["metrics"]["bytes_read"]["median"];
    const double floor = group["metrics"]["floor_bytes"]["median"];
    const double store = 16.0 * 1024 * 1024;
    if (group["arm"] == "C") {
      EXPECT_EQ(read, 3 * store);
    } else if (group["arm"] == "D") {
      EXPECT_GE(read, floor);
      EXPECT_LE(read, floor + 3 * 2 * 512 * 1024);
    }
  }
  EXPECT_EQ(json["manifest"]["store"]["bytes"], 16 * 1024 * 1024);
  EXPECT_TRUE(json["manifest"]["machine"]["kernel"].is_string());
  EXPECT_FALSE(fs::exists(folder_ / "out/store.bin")) << "removed at the end";
  EXPECT_THAT(read(folder_ / "out/report.html"), Not(HasSubstr("http")));

  // Nothing is left to do; the same bytes come out.
  const std::string page = read(folder_ / "out/report.html");
  const Outcome again = run(with({"--arms", arms}));
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.out, o.out);
  EXPECT_EQ(read(folder_ / "out/report.html"), page);

  const Outcome other = run(with({"--arms", arms, "--passes", "4"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("--passes was 3, now 4"));
}

TEST_F(Sweep, StoppedByASignalGoesOn) {
  const std::vector<std::string> args = with({"--arms", "C,D", "--repeats", "3"});
  const pid_t child = start(args);
  for (int i = 0; i < 10000 && cells_written() < 2; ++i)
    ::usleep(2000);
  ASSERT_GE(cells_written(), 2U) << read(folder_ / "stderr.txt");
  ASSERT_EQ(::kill(child, SIGINT), 0);
  const Outcome o = finish(child);
  EXPECT_EQ(o.signal, SIGINT) << o.code << o.err;
  EXPECT_THAT(o.err, HasSubstr("call the same command again to go on"));
  const std::size_t before = cells_written();
  EXPECT_LT(before, 12U);
  EXPECT_TRUE(fs::exists(folder_ / "out/store.bin")) << "kept for the next call";
  const std::string first = read(folder_ / "out/cells.jsonl");
  const Outcome rest = run(args);
  EXPECT_EQ(rest.code, 0) << rest.err << reasons();
  EXPECT_EQ(cells_written(), 12U);
  EXPECT_TRUE(read(folder_ / "out/cells.jsonl").starts_with(first)) << "nothing was run again";
}

TEST_F(Sweep, AFailedCellIsExitOneWithItsReason) {
  const Outcome o = run(with({"--arms", "D", "--fetch-workers", "100000"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(reasons(), HasSubstr("fetch-workers"));
  EXPECT_THAT(read(folder_ / "out/report.html"), HasSubstr("fetch-workers"));
}

TEST_F(Sweep, AnInfeasibleBudgetIsACensoredCell) {
  // Of 16 MiB, 1 % is less than two chunks.
  const Outcome o = run(with({"--arms", "D,OPT", "--ratios", "0.01,0.5"}));
  EXPECT_EQ(o.code, 0) << o.err << reasons();
  const auto json = nlohmann::json::parse(o.out);
  for (const auto& group : json["summary"]) {
    if (group["arm"] != "D") continue;
    EXPECT_EQ(group["censored"], group["ratio"] == 0.01 ? 1 : 0);
  }
}

TEST_F(Sweep, WrongUsageIsExitTwo) {
  const std::vector<std::vector<std::string>> wrong{
      {"sweep"},
      {"sweep", "--out", "o", "--arms", "Z"},
      {"sweep", "--out", "o", "--ratios", "2"},
      {"sweep", "--out", "o", "--repeats", "0"},
      {"sweep", "--out", "o", "--size", "1000"},
      {"sweep", "--out", "o", "--size", "16MiB", "--model", "m"},
      {"sweep", "--out", "o", "--program", "--", "true"},
      {"sweep", "--out", "o", "--", "true"},
      {"sweep", "--out", "o", "--model", "none.gguf"},
      {"sweep", "--out", "o", "--program", "--model", "m", "--fetch-workers", "2", "--", "true"},
      {"sweep", "--out", "stdout.txt"}};
  for (const auto& args : wrong) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << testing::PrintToString(args) << o.err;
    EXPECT_THAT(o.err, testing::StartsWith("residctl: ")) << testing::PrintToString(args);
    EXPECT_EQ(o.out, "");
  }
}

class SweepProgram : public Sweep {
 protected:
  void SetUp() override {
    Sweep::SetUp();
    if (!may_make_groups()) GTEST_SKIP() << "control groups need root: no program was measured";
    ASSERT_EQ(run({"synth", "--size", "24MiB", "--seed", "3", "m.gguf"}).code, 0);
  }
  std::vector<std::string> args(const std::string& arms) const {
    return {"sweep",     "--out",  "out",    "--program", "--model",
            "m.gguf",    "--arms", arms,     "--ratios",  "0.5",
            "--repeats", "1",      "--json", "--",        RESID_BIN_DIR "/../tests/sweep_reader",
            "m.gguf",    "2"};
  }
};

TEST_F(SweepProgram, ComparesEveryArmWithTheControl) {
  const Outcome o = run(args("R,A,C,D,E"));
  ASSERT_EQ(o.code, 0) << o.err << reasons();
  const auto json = nlohmann::json::parse(o.out);
  ASSERT_EQ(json["cells"].size(), 5U);
  const double model = json["manifest"]["store"]["bytes"];
  for (const auto& cell : json["cells"]) {
    const auto& figures = cell["figures"];
    EXPECT_EQ(figures["output_equal"], true) << cell.dump();
    EXPECT_GT(figures["wall_s"], 0);
    const double read = figures["bytes_read"];
    if (cell["arm"] == "R") {
      EXPECT_LT(read, 0.05 * model);
    } else {
      EXPECT_GT(read, 0.9 * model);
      EXPECT_LE(figures["cold"]["cached_bytes"], 4 << 20);
    }
    if (cell["arm"] == "C" || cell["arm"] == "D" || cell["arm"] == "E") {
      EXPECT_EQ(figures["budget_kept"], true);
      EXPECT_TRUE(figures["latency_us"]["fault_p50"].is_number());
    }
  }
  const auto control = nlohmann::json::parse(read(folder_ / "out/control.json"));
  EXPECT_GT(control["need_bytes"], control["peak_bytes"]);
  EXPECT_LT(control["need_bytes"], model) << "the model's pages are no need of the program's";
}

TEST_F(SweepProgram, AnotherOutputIsAFailedCell) {
  ::setenv("SWEEP_READER_TELLS_PRELOAD", "1", 1);
  const Outcome o = run(args("A,D"));
  ::unsetenv("SWEEP_READER_TELLS_PRELOAD");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(reasons(), "D: its output differs from the control's at byte 17\n");
}

TEST_F(SweepProgram, AProgramThatNeverSaysTheSameCannotBeCompared) {
  ::setenv("SWEEP_READER_TELLS_PID", "1", 1);
  const Outcome o = run(args("A,D"));
  ::unsetenv("SWEEP_READER_TELLS_PID");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("two runs of it differ"));
  EXPECT_EQ(cells_written(), 0U);
}

TEST_F(SweepProgram, AProgramThatFailsByItselfIsSaidBeforeAnythingIsMeasured) {
  const Outcome o = run({"sweep", "--out", "out", "--program", "--model", "m.gguf", "--", "sh",
                         "-c", "echo broken >&2; exit 9"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("exit code 9: broken"));
  EXPECT_EQ(cells_written(), 0U);
}

}  // namespace

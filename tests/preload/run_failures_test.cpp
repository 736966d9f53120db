// What goes wrong, loudly: each with its message and its exit code, and nothing that hangs.

#include "run_support.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;

class RunFailure : public testing::Test {
 protected:
  void SetUp() override { write_safetensors(model_, 8, 2 * kMib); }
  Outcome run(const std::vector<std::string>& options, const std::vector<std::string>& program) {
    return execute(
        folder_, run_with(options) + std::vector<std::string>{"--report", report_, "--"} + program);
  }
  nlohmann::json report() const { return nlohmann::json::parse(slurp(report_)); }
  static void expect(const Outcome& outcome, int code, const std::string& text) {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  }

  Folder folder_;
  const std::string model_ = folder_ / "model.safetensors";
  const std::string report_ = folder_ / "report.json";
};

TEST_F(RunFailure, no_program) {
  expect(execute(folder_, {kResidctl, "run", "--ram", "4MiB"}), 2, "no program was given");
}

TEST_F(RunFailure, program_not_found) {
  expect(run({"--ram", "4MiB"}, {"no-such-program-here"}), 2, "PATH");
  EXPECT_NE(::access(report_.c_str(), F_OK), 0) << "no report of a run that never was";
}

TEST_F(RunFailure, static_program) {
  expect(run({"--ram", "4MiB"}, {RESID_TEST_DIR "/resid_static_program", model_}), 3,
         "statically linked");
}

TEST_F(RunFailure, nothing_mapped) {
  RESID_NEED_PRELOAD();
  const Outcome outcome = run({"--ram", "4MiB"}, {kOps, "none", model_});
  expect(outcome, 3, "mapped no model");
  EXPECT_EQ(outcome.out, "nothing mapped\n");
  EXPECT_EQ(report().at("failure").at("status"), "nothing_mapped");
}

TEST_F(RunFailure, nothing_mapped_keeps_the_programs_own_failure) {
  RESID_NEED_PRELOAD();
  expect(run({"--ram", "4MiB"}, {kOps, "none_fails", model_}), 7, "mapped no model");
}

TEST_F(RunFailure, cleaned_environment) {
  RESID_NEED_PRELOAD();
  expect(run({"--ram", "4MiB"}, {"/usr/bin/env", "-i", kReader, model_}), 3, "mapped no model");
}

TEST_F(RunFailure, budget_below_two_chunks) {
  RESID_NEED_PRELOAD();
  expect(run({"--ram", "500KiB"}, {kReader, model_}), 4, "less than two chunks");
  EXPECT_EQ(report().at("failure").at("status"), "budget_too_small");
}

TEST_F(RunFailure, bad_settings) {
  expect(run({"--ram", "lots"}, {kReader, model_}), 2, "not a size");
  expect(run({"--ram", "4MiB", "--cap", "4", "--policy", "lru"}, {kReader, model_}), 2,
         "lru knows no experts");
  expect(run({"--ram", "4MiB", "--policy", "mru"}, {kReader, model_}), 2, "mru");
  expect(execute(folder_, {kResidctl, "run", "--chunk-max", "5000", "--", kReader, model_}), 2,
         "multiple of 4 KiB");
}

TEST_F(RunFailure, unwritable_report_stops_it_before_the_start) {
  const std::string mark = folder_ / "started";
  expect(execute(folder_, {kResidctl, "run", "--ram", "4MiB", "--report", "/nowhere/r.json", "--",
                           "/usr/bin/touch", mark}),
         1, "/nowhere/r.json");
  EXPECT_NE(::access(mark.c_str(), F_OK), 0);
}

TEST_F(RunFailure, a_second_program_at_the_same_time) {
  RESID_NEED_PRELOAD();
  const std::string script =
      kOps + " hold " + model_ + " > /dev/null & sleep 0.1; i=0; while [ $i -lt 100 ]; do " +
      kReader + " " + model_ + " > /dev/null || break; i=$((i+1)); done; kill $!; exit 0";
  const Outcome outcome = run({"--ram", "4MiB"}, {"/bin/sh", "-c", script});
  expect(outcome, 1, "already pages under this run's budget");
}

class Holding : public RunFailure {
 protected:
  void start() {
    process_ = std::make_unique<Process>(
        folder_,
        run_with({"--ram", "4MiB"}) +
            std::vector<std::string>{"--report", report_, "--", kOps, "hold", model_},
        60);
    ASSERT_TRUE(process_->wait_for_output("ready")) << process_->err();
  }
  std::unique_ptr<Process> process_;
};

TEST_F(Holding, sigterm_reaches_the_program_and_the_report_is_written) {
  RESID_NEED_PRELOAD();
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    ASSERT_NO_FATAL_FAILURE(start());
    ASSERT_EQ(::kill(process_->inner(), number), 0);
    const Outcome outcome = process_->finish();
    EXPECT_EQ(outcome.code, 128 + number) << outcome.err;
    EXPECT_EQ(report().at("exit_code"), 128 + number);
    EXPECT_GT(report().at("bytes_fetched"), 0);
  }
}

TEST_F(Holding, the_program_ends_when_residctl_is_killed) {
  RESID_NEED_PRELOAD();
  ASSERT_NO_FATAL_FAILURE(start());
  const pid_t residctl = process_->inner();
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", residctl));
  pid_t program = 0;
  children >> program;
  ASSERT_GT(program, 0);
  ASSERT_EQ(::kill(residctl, SIGKILL), 0);
  process_->finish();
  for (int i = 0; i < 3000 && ::kill(program, 0) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream stat(fmt::format("/proc/{}/stat", program));
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    if (text.find(") Z ") != std::string::npos) return;  // dead, and nobody here to reap it
  }
  EXPECT_NE(::kill(program, 0), 0);
}

TEST_F(Holding, stopping_and_continuing_changes_nothing) {
  RESID_NEED_PRELOAD();
  ASSERT_NO_FATAL_FAILURE(start());
  const pid_t residctl = process_->inner();
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", residctl));
  pid_t program = 0;
  children >> program;
  ASSERT_EQ(::kill(program, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(::kill(program, SIGCONT), 0);
  ASSERT_EQ(::kill(residctl, SIGTERM), 0);
  EXPECT_EQ(process_->finish().code, 128 + SIGTERM);
}

TEST_F(Holding, a_truncated_model_ends_it) {
  RESID_NEED_PRELOAD();
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(::truncate(model_.c_str(), 3 * kMib), 0);
  const Outcome outcome = process_->finish();
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "it hung";
  EXPECT_EQ(report().at("failure").at("status"), "store_changed") << outcome.err;
  EXPECT_NE(outcome.err.find(model_), std::string::npos) << outcome.err;
}

TEST_F(Holding, an_overwritten_model_ends_it) {
  RESID_NEED_PRELOAD();
  ASSERT_NO_FATAL_FAILURE(start());
  std::fstream(model_, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(5 * kMib)
      .write("x", 1);
  const Outcome outcome = process_->finish();
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "it hung";
  EXPECT_EQ(report().at("failure").at("status"), "store_changed") << outcome.err;
}

// The bytes of a deleted file are still there and still right, but it is no longer the file that
// was opened: its ctime changed (I-16).
TEST_F(Holding, a_deleted_model_never_hangs_and_never_lies) {
  RESID_NEED_PRELOAD();
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(::unlink(model_.c_str()), 0);
  // It ends by itself as soon as it needs a chunk that is not resident.
  const Outcome outcome = process_->finish();
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "it hung";
  EXPECT_NE(outcome.err.find("changed, truncated or deleted"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace resid::test

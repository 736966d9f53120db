// One child process: its output, its end, what is left of it.

#include "sweep/process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "fake_cells.hpp"

namespace resid::sweep {
namespace {

ProcessRequest shell(const std::string& script) {
  ProcessRequest request;
  request.path = "sh";
  request.command = {"sh", "-c", script};
  return request;
}

// Gone, or killed and not yet reaped by whoever adopted it.
void expect_gone(pid_t pid) {
  std::string stat;
  for (int i = 0; i < 200; ++i) {
    stat = read_all("/proc/" + std::to_string(pid) + "/stat");
    if (stat.empty() || stat.find(") Z") != std::string::npos) return;
    ::usleep(10000);
  }
  ADD_FAILURE() << "still there: " << stat;
}

TEST(Process, GivesOutputErrorAndExit) {
  const auto r = run_process(shell("printf out; printf err >&2; exit 7"));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->out, "out");
  EXPECT_EQ(r->err, "err");
  EXPECT_EQ(r->exit_code, 7);
  EXPECT_EQ(r->signal, 0);
  EXPECT_FALSE(r->stopped);
}

TEST(Process, LargeOutputOnBothStreamsDoesNotBlock) {
  const auto r = run_process(
      shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; printf end >&2"));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->out.size(), 3000000U);
  EXPECT_TRUE(r->err.ends_with("end"));
  EXPECT_LT(r->err.size(), 200000U);
}

TEST(Process, TooMuchOutputIsCutAndTold) {
  ProcessRequest request = shell("head -c 200000 /dev/zero");
  request.most_output = 1000;
  const auto r = run_process(request);
  EXPECT_TRUE(r->output_cut);
  EXPECT_EQ(r->out.size(), 1000U);
  EXPECT_EQ(r->exit_code, 0);
}

TEST(Process, ReadsItsInputAndEnvironment) {
  ProcessRequest request = shell("cat; printf %s \"$RESIDCTL_TEST_WORD\"");
  request.input = "script\n";
  request.environment = {{"RESIDCTL_TEST_WORD", "word"}};
  EXPECT_EQ(run_process(request)->out, "script\nword");
  EXPECT_EQ(run_process(shell("cat"))->out, "") << "without one there is nothing to read";
}

TEST(Process, ASignalIsTold) {
  const auto r = run_process(shell("kill -SEGV $$"));
  EXPECT_EQ(r->signal, SIGSEGV);
}

TEST(Process, OneThatIsNotThereIsAFailure) {
  ProcessRequest request = shell("");
  request.path = "no-such-program-here";
  const auto r = run_process(request);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().status, Status::program_not_found);
}

TEST(Process, StopEndsItAndEverythingItStarted) {
  TempFolder temp;
  std::atomic<bool> stop{false};
  ProcessRequest request =
      shell("sleep 100 & echo $! > " + (temp / "pid") + "; echo started; wait");
  request.stop = &stop;
  request.tick_ms = 5;
  request.tick = [&](pid_t) {
    if (!read_all(temp / "pid").empty()) stop = true;
  };
  const auto r = run_process(request);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->stopped);
  EXPECT_LT(r->wall_s, 20);
  expect_gone(std::stoi(read_all(temp / "pid")));
}

TEST(Process, WhatIsLeftBehindIsKilled) {
  TempFolder temp;
  const auto r = run_process(shell("sleep 100 & echo $! > " + (temp / "pid")));
  ASSERT_TRUE(r);
  EXPECT_LT(r->wall_s, 20) << "the pipes that it inherited do not keep us waiting";
  expect_gone(std::stoi(read_all(temp / "pid")));
}

TEST(Process, ALimitEndsIt) {
  ProcessRequest request = shell("sleep 100");
  request.limit_s = 0.05;
  const auto r = run_process(request);
  EXPECT_TRUE(r->timed_out);
  EXPECT_EQ(r->signal, SIGTERM);
}

}  // namespace
}  // namespace resid::sweep

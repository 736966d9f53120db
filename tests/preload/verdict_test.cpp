// The exit code of a run.

#include <memory>

#include <gtest/gtest.h>

#include "run/verdict.hpp"

namespace resid::run {
namespace {

class Judge : public testing::Test {
 protected:
  void reached(RunPhase phase) { page_->phase.store(static_cast<std::uint32_t>(phase)); }
  std::unique_ptr<RunPage> page_ = std::make_unique<RunPage>();
};

TEST_F(Judge, the_programs_own_code_stands) {
  reached(RunPhase::mapped);
  EXPECT_EQ(judge(*page_, {false, 0}).exit_code, 0);
  EXPECT_EQ(judge(*page_, {false, 42}).exit_code, 42);
  EXPECT_FALSE(judge(*page_, {false, 42}).failure);
  EXPECT_EQ(judge(*page_, {true, 15}).exit_code, 143);
}

TEST_F(Judge, nothing_mapped_is_3_unless_the_program_failed_by_itself) {
  for (const RunPhase phase : {RunPhase::started, RunPhase::preloaded}) {
    reached(phase);
    const Verdict quiet = judge(*page_, {false, 0});
    EXPECT_EQ(quiet.exit_code, 3);
    ASSERT_TRUE(quiet.failure);
    EXPECT_EQ(quiet.failure->status, Status::nothing_mapped);
    const Verdict loud = judge(*page_, {false, 7});
    EXPECT_EQ(loud.exit_code, 7);
    EXPECT_TRUE(loud.failure);
  }
}

TEST_F(Judge, tells_a_library_that_was_never_loaded_apart) {
  reached(RunPhase::started);
  EXPECT_NE(judge(*page_, {false, 0}).failure->why.find("never loaded"), std::string::npos);
  reached(RunPhase::preloaded);
  EXPECT_NE(judge(*page_, {false, 0}).failure->why.find("mapped no model"), std::string::npos);
}

TEST_F(Judge, a_recorded_failure_is_never_hidden_by_a_zero) {
  reached(RunPhase::mapped);
  record_failure(*page_, Status::read_failed, "residctl: a : b : c");
  EXPECT_EQ(judge(*page_, {false, 0}).exit_code, 1);
  EXPECT_EQ(judge(*page_, {true, 7}).exit_code, 135);
  EXPECT_EQ(judge(*page_, {false, 0}).failure->status, Status::read_failed);
}

TEST_F(Judge, the_recorded_line_is_taken_apart) {
  record_failure(*page_, Status::read_failed,
                 "residctl: /m/a.gguf : tensor x : cannot be read : check the disk");
  const Failure failure = *judge(*page_, {false, 0}).failure;
  EXPECT_EQ(failure.what, "/m/a.gguf");
  EXPECT_EQ(failure.why, "tensor x : cannot be read");
  EXPECT_EQ(failure.todo, "check the disk");
  page_ = std::make_unique<RunPage>();
  record_failure(*page_, Status::read_failed, "cut off");
  EXPECT_EQ(judge(*page_, {false, 0}).failure->why, "cut off");
}

TEST_F(Judge, this_machine_cannot_is_3) {
  reached(RunPhase::failed);
  record_failure(*page_, Status::no_userfaultfd, "residctl: a : b : c");
  EXPECT_EQ(judge(*page_, {false, 0}).exit_code, 3);
}

TEST_F(Judge, infeasible_budgets_are_4_whatever_the_program_made_of_it) {
  for (const Status status : {Status::budget_too_small, Status::infeasible}) {
    page_ = std::make_unique<RunPage>();
    reached(RunPhase::failed);
    record_failure(*page_, status, "residctl: a : b : c");
    EXPECT_EQ(judge(*page_, {false, 0}).exit_code, 4);
    EXPECT_EQ(judge(*page_, {false, 1}).exit_code, 4);
    EXPECT_EQ(judge(*page_, {true, 6}).exit_code, 4);
  }
}

TEST(BypassedMib, tells_only_what_is_remarkable) {
  constexpr std::uint64_t kMib = 1024 * 1024;
  EXPECT_EQ(bypassed_mib(0, 0, 1000 * kMib), 0U);
  EXPECT_EQ(bypassed_mib(60 * kMib, 0, 100 * kMib), 0U) << "headers and libraries";
  EXPECT_EQ(bypassed_mib(240 * kMib, 0, 1000 * kMib), 0U) << "less than a quarter";
  EXPECT_EQ(bypassed_mib(1000 * kMib, 0, 1000 * kMib), 1000U);
  EXPECT_EQ(bypassed_mib(5000 * kMib, 4990 * kMib, 1000 * kMib), 0U) << "the pager's own reads";
}

}  // namespace
}  // namespace resid::run

// The frame itself, with verbs made for the purpose.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "cli/cli.hpp"

namespace resid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FrameTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("RESIDCTL_DEPTH");
    ::unsetenv("RESIDCTL_EAGER");
    Verb& run = frame_.add("start", "Start a program");
    run.takes_program();
    run.app().add_option("--ram", ram_);
    run.action([this](const Context& context) -> Result<int> {
      program_ = context.program;
      json_ = context.json;
      return 7;
    });
    Verb& set = frame_.add("settle", "Settle settings");
    depth_ = &set.setting("depth", count_or_value(1, 9, {"auto"}), "auto", "Depth");
    eager_ = &set.setting("eager", switch_value(), "", "Eager");
    width_ = &set.setting("width", count_value(1, 64), "4", "Width", [] {
      return std::make_optional(std::pair<std::string, std::string>("2", "2 processors"));
    });
    set.action([](const Context&) -> Result<int> { return 0; });
    Verb& fails = frame_.add("fail", "Fail");
    fails.app().add_flag("--throw", throws_);
    fails.action([this](const Context&) -> Result<int> {
      if (throws_) throw std::runtime_error("thrown");
      return fail(Status::infeasible, "budget", "is too small");
    });
  }

  int run(std::vector<const char*> args) {
    args.insert(args.begin(), "residctl");
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = frame_.run(static_cast<int>(args.size()), args.data());
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  Frame frame_;
  std::string ram_;
  std::vector<std::string> program_;
  bool json_ = false;
  bool throws_ = false;
  const Setting* depth_ = nullptr;
  const Setting* eager_ = nullptr;
  const Setting* width_ = nullptr;
  std::string out_;
  std::string err_;
};

TEST_F(FrameTest, AProgramIsHandedOverUnread) {
  EXPECT_EQ(run({"start", "--ram", "6GiB", "--", "prog", "--json", "--ram", "x", "settle", "--",
                 "-h", ""}),
            7);
  EXPECT_EQ(ram_, "6GiB");
  EXPECT_FALSE(json_);
  EXPECT_THAT(program_, ElementsAre("prog", "--json", "--ram", "x", "settle", "--", "-h", ""));
}

TEST_F(FrameTest, NothingBehindTheDashesIsNoProgram) {
  EXPECT_EQ(run({"start", "--"}), 7);
  EXPECT_THAT(program_, IsEmpty());
  EXPECT_EQ(run({"start"}), 7);
  EXPECT_THAT(program_, IsEmpty());
}

TEST_F(FrameTest, AProgramWithoutDashesIsExplained) {
  EXPECT_EQ(run({"start", "prog", "--flag"}), 2);
  EXPECT_EQ(err_,
            "residctl: start : unexpected argument 'prog' : write the program behind two dashes: "
            "residctl start [OPTIONS] -- PROGRAM [ARGS]\n");
}

TEST_F(FrameTest, JsonMayStandBeforeOrBehindTheVerb) {
  run({"--json", "start"});
  EXPECT_TRUE(json_);
  json_ = false;
  Frame other;
  other.add("start", "Start").action([this](const Context& context) -> Result<int> {
    json_ = context.json;
    return 0;
  });
  const char* args[] = {"residctl", "start", "--json"};
  other.run(3, args);
  EXPECT_TRUE(json_);
}

TEST_F(FrameTest, SettingsAreSettledBeforeTheVerbRuns) {
  ASSERT_EQ(run({"settle"}), 0) << err_;
  EXPECT_EQ(depth_->value, "auto");
  EXPECT_EQ(depth_->source, Source::built_in);
  EXPECT_FALSE(eager_->is_on());
  EXPECT_EQ(width_->count(), 2U);
  EXPECT_EQ(width_->source, Source::platform);
  EXPECT_EQ(width_->origin, "2 processors");
}

TEST_F(FrameTest, TheCommandLineSettles) {
  ASSERT_EQ(run({"settle", "--depth=3", "--eager", "--width", "8"}), 0) << err_;
  EXPECT_EQ(depth_->value, "3");
  EXPECT_EQ(depth_->origin, "--depth");
  EXPECT_TRUE(eager_->is_on());
  EXPECT_EQ(eager_->source, Source::command_line);
  EXPECT_EQ(width_->source, Source::command_line);
}

TEST_F(FrameTest, TheEnvironmentSettles) {
  ::setenv("RESIDCTL_DEPTH", "5", 1);
  ::setenv("RESIDCTL_EAGER", "on", 1);
  const int code = run({"settle"});
  ::unsetenv("RESIDCTL_DEPTH");
  ::unsetenv("RESIDCTL_EAGER");
  ASSERT_EQ(code, 0) << err_;
  EXPECT_EQ(depth_->value, "5");
  EXPECT_EQ(eager_->value, "true");
  EXPECT_EQ(eager_->source, Source::environment);
}

TEST_F(FrameTest, AValueThatIsWrongIsWrongUsage) {
  EXPECT_EQ(run({"settle", "--depth", "99"}), 2);
  EXPECT_EQ(err_, "residctl: --depth : 99 is out of range : give 1 to 9, or auto\n");
}

TEST_F(FrameTest, AFailureGivesTheExitCodeOfItsStatus) {
  EXPECT_EQ(run({"fail"}), 4);
  EXPECT_EQ(err_, "residctl: budget : is too small : raise --ram or pin less\n");
}

TEST_F(FrameTest, AnExceptionIsABugThatIsNamed) {
  EXPECT_EQ(run({"fail", "--throw"}), 1);
  EXPECT_THAT(err_, HasSubstr("residctl: residctl : thrown : this is a bug in residctl"));
}

TEST_F(FrameTest, HelpShowsDefaultsAndKinds) {
  EXPECT_EQ(run({"settle", "--help"}), 0);
  EXPECT_THAT(out_, HasSubstr("--depth N|auto"));
  EXPECT_THAT(out_, HasSubstr("--width N"));
}

TEST(Nearest, FindsSlipsAndBeginningsOnly) {
  const std::vector<std::string> words{"run", "inspect", "synth"};
  EXPECT_EQ(nearest("snyth", words), "synth");
  EXPECT_EQ(nearest("insp", words), "inspect");
  EXPECT_EQ(nearest("frobnicate", words), std::nullopt);
  EXPECT_EQ(nearest("", words), std::nullopt);
}

}  // namespace
}  // namespace resid::cli

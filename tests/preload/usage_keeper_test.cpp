// A run's counts reach the history: once, all of them, whatever goes wrong meanwhile.

#include "run/usage_keeper.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "expert/usage_file.hpp"

namespace resid::run {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Keeper : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "keeper-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "h.usage").string();
    area_->experts = 4;
    area_->has_experts[2] = area_->has_experts[3] = 1;
    area_->model = 77;
  }
  void TearDown() override { fs::remove_all(folder_); }
  // `n` tokens at both layers, all of which choose expert `e`.
  void route(ExpertId e, int n = 1) {
    for (const std::uint32_t layer : {2U, 3U}) {
      for (int i = 0; i < n; ++i)
        area_->board.use(layer, e);
      bump(area_->board.layers[layer].tokens, static_cast<std::uint64_t>(n));
    }
  }
  UsageKeeper::Tell tell() {
    return [this](std::string_view text) { told_.emplace_back(text); };
  }
  void run_once(const std::string& place) {
    UsageKeeper keeper(*area_, place, tell());
    keeper.start();
    keeper.finish();
  }
  std::unique_ptr<ExpertArea> area_ = std::make_unique<ExpertArea>();
  std::vector<std::string> told_;
  fs::path folder_;
  std::string path_;
};

TEST_F(Keeper, AddsWhatTheRunCounted) {
  route(1, 5);
  route(3, 2);
  run_once(path_);
  const auto history = read_usage(path_);
  ASSERT_TRUE(history) << history.error().line();
  EXPECT_EQ(history->model, 77U);
  EXPECT_EQ(history->usage.layers, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(history->usage.tokens, (std::vector<double>{7, 7}));
  EXPECT_EQ(history->usage.uses, (std::vector<float>{0, 5, 0, 2, 0, 5, 0, 2}));
  EXPECT_TRUE(told_.empty());
}

TEST_F(Keeper, AddsEachTokenOnceThoughItAddsWhileTheRunGoesOn) {
  UsageKeeper keeper(*area_, path_, tell());
  keeper.start(std::chrono::milliseconds(1));
  for (int i = 0; i < 50; ++i) {
    route(2);
    ::usleep(500);
  }
  keeper.finish();
  keeper.finish();
  const auto history = read_usage(path_);
  ASSERT_TRUE(history);
  EXPECT_NEAR(history->usage.tokens[1], 50, 0.1) << "faded by 50 of 16384";
  EXPECT_NEAR(history->usage.uses[2], 50, 0.1);
}

TEST_F(Keeper, WritesNothingForNothing) {
  run_once(path_);
  EXPECT_FALSE(fs::exists(path_)) << "no token";
  route(1);
  run_once("off");
  area_->model = 0;
  run_once(path_);
  EXPECT_TRUE(fs::is_empty(folder_)) << "off, and no model with experts";
  EXPECT_TRUE(told_.empty());
}

TEST_F(Keeper, TellsOnceWhatWentWrongAndAddsItLater) {
  route(1, 3);
  {
    UsageKeeper keeper(*area_, (folder_ / "not" / "h.usage").string(), tell());
    keeper.finish();
    keeper.finish();
    ASSERT_EQ(told_.size(), 1U);
    EXPECT_THAT(told_[0], HasSubstr("No such file"));
    fs::create_directory(folder_ / "not");
    keeper.finish();
  }
  const auto history = read_usage((folder_ / "not" / "h.usage").string());
  ASSERT_TRUE(history);
  EXPECT_EQ(history->usage.uses[1], 3);
}

TEST_F(Keeper, NamesWhatItSetsAside) {
  std::ofstream(path_) << "a diary";
  route(1);
  run_once(path_);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr(path_ + ".damaged"));
  EXPECT_TRUE(read_usage(path_));
}

TEST_F(Keeper, KeepsNothingOfTwoModelsAtOnce) {
  route(1);
  area_->other_model = 1;
  run_once(path_);
  EXPECT_FALSE(fs::exists(path_));
  ASSERT_EQ(told_.size(), 1U);
}

TEST_F(Keeper, TellsTheProgramWhereHistoriesLie) {
  const auto told = [&](const std::string& place) {
    const UsageKeeper keeper(*area_, place, tell());
    return std::string(area_->history.data());
  };
  ::setenv("XDG_STATE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(told("auto"), folder_.string() + "/residctl/experts/");
  EXPECT_EQ(told("/a/b"), "/a/b");
  EXPECT_EQ(told("b"), fs::current_path().string() + "/b");
  area_->history.fill('\0');
  EXPECT_EQ(told("off"), "");
  route(1);
  run_once("auto");
  EXPECT_TRUE(read_usage(folder_.string() + "/residctl/experts/" + usage_file_name(77)));
  ::unsetenv("XDG_STATE_HOME");
}

TEST_F(Keeper, WithoutAHomeTheRunGoesOnAndIsToldOnlyWhereItMatters) {
  ::unsetenv("XDG_STATE_HOME");
  const std::string home = ::getenv("HOME") == nullptr ? "" : ::getenv("HOME");
  ::unsetenv("HOME");
  run_once("auto");
  EXPECT_TRUE(told_.empty()) << "no experts were used";
  route(1);
  run_once("auto");
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("HOME"));
  ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace resid::run

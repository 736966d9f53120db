// What the program's end says of its model's history, and takes from it.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "expert/usage_file.hpp"
#include "preload/usage.hpp"

namespace resid::preload {
namespace {

namespace fs = std::filesystem;

class RememberedUsage : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "remembered-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const auto model = open_model(kModel);
    ASSERT_TRUE(model);
    file_ = model->files[0];
    counted_ = UsageHistory::of(*model).value();
    counted_.usage.tokens.assign(6, 10);
    counted_.usage.uses[7] = 9;
    place(folder_.string() + "/");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void place(const std::string& where) {
    std::memcpy(area_->history.data(), where.c_str(), where.size() + 1);
  }
  std::string path() const { return (folder_ / usage_file_name(counted_.model)).string(); }

  static constexpr const char* kModel = RESID_SOURCE_DIR "/models/linnet-moe-q4.gguf";
  std::unique_ptr<ExpertArea> area_ = std::make_unique<ExpertArea>();
  ModelFile file_;
  UsageHistory counted_;
  fs::path folder_;
};

TEST_F(RememberedUsage, NamesTheModelThoughNothingIsKnownYet) {
  EXPECT_TRUE(remembered_usage(*area_, file_).empty());
  EXPECT_EQ(area_->model.load(), counted_.model);
  EXPECT_EQ(area_->experts, 32U);
  EXPECT_EQ(area_->has_experts[5], 1);
  EXPECT_EQ(area_->has_experts[6], 0);
  EXPECT_TRUE(fs::is_empty(folder_)) << "the program writes nothing";
}

TEST_F(RememberedUsage, IsReadFromTheFolderOrTheFile) {
  ASSERT_TRUE(add_usage(path(), counted_, std::chrono::milliseconds(0)));
  EXPECT_EQ(remembered_usage(*area_, file_).uses, counted_.usage.uses);
  fs::rename(path(), folder_ / "mine");
  place((folder_ / "mine").string());
  EXPECT_EQ(remembered_usage(*area_, file_).uses, counted_.usage.uses);
}

TEST_F(RememberedUsage, IsNotTakenFromAnotherModelsOrADamagedFile) {
  UsageHistory other = counted_;
  ++other.model;
  std::ofstream(path()) << encode(other);
  EXPECT_TRUE(remembered_usage(*area_, file_).empty());
  std::ofstream(path()) << encode(counted_).substr(1);
  EXPECT_TRUE(remembered_usage(*area_, file_).empty());
}

TEST_F(RememberedUsage, NothingIsSaidWhereNoHistoryIsKept) {
  area_->history[0] = '\0';
  EXPECT_TRUE(remembered_usage(*area_, file_).empty());
  EXPECT_EQ(area_->model.load(), 0U);
}

TEST_F(RememberedUsage, ASecondModelIsToldOfButNotASecondLookAtTheFirst) {
  (void)remembered_usage(*area_, file_);
  (void)remembered_usage(*area_, file_);
  EXPECT_EQ(area_->other_model.load(), 0U);
  const fs::path copy = folder_ / "other.gguf";
  fs::copy_file(kModel, copy);
  fs::resize_file(copy, fs::file_size(copy) + 32);
  (void)remembered_usage(*area_, open_model(copy.string())->files[0]);
  EXPECT_NE(area_->other_model.load(), 0U);
  EXPECT_EQ(area_->model.load(), counted_.model);
}

}  // namespace
}  // namespace resid::preload

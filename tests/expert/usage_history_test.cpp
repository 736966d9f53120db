// A history of use: what it says of a model, and that nothing but it is taken for one.

#include "expert/usage_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/hash.hpp"

namespace resid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

UsageHistory sample() {
  UsageHistory history;
  history.model = 0x0123456789abcdefULL;
  history.usage = {
      .experts = 3, .layers = {1, 4}, .tokens = {100, 90}, .uses = {50, 25, 25, 0, 45, 45}};
  return history;
}

void expect_equal(const UsageHistory& a, const UsageHistory& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.usage.experts, b.usage.experts);
  EXPECT_EQ(a.usage.layers, b.usage.layers);
  EXPECT_EQ(a.usage.tokens, b.usage.tokens);
  EXPECT_EQ(a.usage.uses, b.usage.uses);
}

TEST(UsageHistory, ComesBackAsItWasWritten) {
  const auto back = decode_usage(encode(sample()), "h");
  ASSERT_TRUE(back) << back.error().line();
  expect_equal(*back, sample());
}

TEST(UsageHistory, IsRefusedWithAnyByteChangedOrCutOffOrAdded) {
  const std::string good = encode(sample());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_FALSE(decode_usage(bad, "h")) << i;
    EXPECT_FALSE(decode_usage(good.substr(0, i), "h")) << i;
  }
  EXPECT_FALSE(decode_usage(good + '\0', "h"));
}

// With a checksum that fits, as a hostile or mistaken writer may give it.
TEST(UsageHistory, IsRefusedWhereItsNumbersMakeNoSense) {
  const auto forged = [](auto&& change) {
    UsageHistory history = sample();
    change(history);
    return decode_usage(encode(history), "h");
  };
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.layers = {4, 1}; }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.layers = {4, 4}; }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.layers = {4, 512}; }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.uses[2] = -1; }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.tokens[0] = std::strtod("nan", nullptr); }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.experts = 2000; }));
  EXPECT_FALSE(forged([](UsageHistory& h) { h.usage.experts = 4; }));
  EXPECT_TRUE(forged([](UsageHistory&) {}));
}

TEST(UsageHistory, OfALaterVersionIsNamedAsSuch) {
  std::string later = encode(sample());
  later[8] = 2;
  const auto read = decode_usage(later, "h");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().status, Status::unsupported);
  EXPECT_THAT(read.error().line(), HasSubstr("version 2"));
}

TEST(UsageHistory, KeepsHalfOfWhatWasCountedAHalfLifeAgo) {
  UsageHistory history = sample();
  UsageHistory newer = sample();
  newer.usage.tokens = {UsageHistory::kHalfLife, 0};
  newer.usage.uses = {0, 0, 8, 0, 0, 0};
  history.add(newer);
  EXPECT_NEAR(history.usage.tokens[0], 50 + UsageHistory::kHalfLife, 1e-3);
  EXPECT_FLOAT_EQ(history.usage.uses[0], 25);
  EXPECT_FLOAT_EQ(history.usage.uses[2], 12.5 + 8);
  EXPECT_EQ(history.usage.tokens[1], 90) << "a layer that saw nothing forgets nothing";
  EXPECT_EQ(history.usage.uses[4], 45);
  // What nobody uses any more goes to zero, not to ever smaller numbers.
  newer.usage.uses.assign(6, 0);
  for (int i = 0; i < 40; ++i)
    history.add(newer);
  EXPECT_EQ(history.usage.uses[0], 0);
  EXPECT_LT(history.usage.tokens[0], 2 * UsageHistory::kHalfLife + 1);
}

class UsageIdentity : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "usage-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::copy_file(kModel, folder_ / "m.gguf");
  }
  void TearDown() override { fs::remove_all(folder_); }
  static UsageHistory of(const fs::path& path) {
    const auto model = open_model(path.string());
    EXPECT_TRUE(model);
    const auto history = UsageHistory::of(*model);
    EXPECT_TRUE(history) << history.error().line();
    return *history;
  }
  void change(std::uint64_t offset) const {
    std::fstream file(folder_ / "m.gguf", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  static constexpr const char* kModel = RESID_SOURCE_DIR "/models/linnet-moe-q4.gguf";
  fs::path folder_;
};

TEST_F(UsageIdentity, IsThatOfTheContentWhereverItLies) {
  const UsageHistory here = of(kModel);
  EXPECT_EQ(here.usage.layers, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(here.usage.experts, 32U);
  EXPECT_NE(here.model, 0U);
  EXPECT_EQ(of(folder_ / "m.gguf").model, here.model);
  fs::last_write_time(folder_ / "m.gguf", fs::file_time_type::clock::now() - std::chrono::hours(5));
  fs::rename(folder_ / "m.gguf", folder_ / "other.gguf");
  EXPECT_EQ(of(folder_ / "other.gguf").model, here.model);
}

TEST_F(UsageIdentity, ChangesWithTheRouterTheHeaderAndTheSize) {
  const UsageHistory before = of(kModel);
  const auto model = open_model(kModel);
  for (const Tensor& tensor : model->files[0].tensors) {
    if (tensor.role != Role::router) continue;
    change(tensor.offset + tensor.bytes / 2);
    break;
  }
  const UsageHistory router = of(folder_ / "m.gguf");
  EXPECT_NE(router.model, before.model);
  fs::resize_file(folder_ / "m.gguf", fs::file_size(folder_ / "m.gguf") + 32);
  const UsageHistory longer = of(folder_ / "m.gguf");
  EXPECT_NE(longer.model, router.model);
  // A letter of the model's name.
  std::ifstream file(folder_ / "m.gguf", std::ios::binary);
  std::string head(4096, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::size_t at = head.find(model->files[0].model_name);
  ASSERT_NE(at, std::string::npos);
  change(at);
  EXPECT_NE(of(folder_ / "m.gguf").model, longer.model);
}

TEST_F(UsageIdentity, OfAModelWithoutExpertsThereIsNoHistory) {
  Model dense;
  dense.files.emplace_back();
  const auto history = UsageHistory::of(dense);
  ASSERT_TRUE(history);
  EXPECT_TRUE(history->usage.empty());
}

}  // namespace
}  // namespace resid

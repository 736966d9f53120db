// Sizes as people write them.

#include <gtest/gtest.h>

#include "base/units.hpp"

namespace resid {
namespace {

struct Case {
  const char* text;
  std::uint64_t bytes;
};
class GoodSizes : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, GoodSizes,
                         ::testing::Values(Case{"0", 0}, Case{"4096", 4096},
                                           Case{"512MiB", 512ULL << 20}, Case{"4GiB", 4ULL << 30},
                                           Case{"6G", 6'000'000'000}, Case{"6GB", 6'000'000'000},
                                           Case{"1.5GiB", 3ULL << 29}, Case{"2 MiB", 2ULL << 20},
                                           Case{"1k", 1000}, Case{"8Ki", 8192},
                                           Case{"1TiB", 1ULL << 40}));
TEST_P(GoodSizes, AreRead) {
  const auto size = parse_bytes(GetParam().text, "--ram");
  ASSERT_TRUE(size) << size.error().line();
  EXPECT_EQ(*size, GetParam().bytes);
}

class BadSizes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, BadSizes,
                         ::testing::Values("", " ", "MiB", "-1", "-5GiB", "4GiBx", "4 gigs", "nan",
                                           "inf", "1e30", "99999999TiB", "4G iB", "50%%", "1001%",
                                           "-1%"));
TEST_P(BadSizes, AreRefusedWithTheSettingTheTextAndTheRemedy) {
  const auto size = parse_size(GetParam(), "--ram");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().status, Status::usage);
  const std::string line = size.error().line();
  EXPECT_NE(line.find("--ram"), std::string::npos) << line;
  EXPECT_NE(line.find(std::string("'") + GetParam() + "'"), std::string::npos) << line;
  EXPECT_NE(line.find("4GiB, 6G or 50%"), std::string::npos) << line;
}

TEST(Sizes, APercentageIsOfTheModel) {
  const auto size = parse_size("37.5%", "--ram");
  ASSERT_TRUE(size);
  EXPECT_EQ(size->resolve(8000), 3000U);
  EXPECT_FALSE(parse_bytes("37.5%", "--chunk-max"));
}

TEST(Sizes, AreShownInBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(3ULL << 30), "3.00 GiB");
}

TEST(Pages, RoundBothWays) {
  EXPECT_EQ(page_down(4095), 0U);
  EXPECT_EQ(page_up(1), 4096U);
  EXPECT_EQ(page_up(4096), 4096U);
}

}  // namespace
}  // namespace resid

// The C++ layer: handles release what they hold, failures are thrown with their message.

#include <cstring>

#include <gtest/gtest.h>

#include "resid/resid.hpp"

namespace {

const std::string kModel = std::string(RESID_SOURCE_DIR) + "/models/linnet-moe-q4.gguf";

TEST(CppInterface, MapsPinsAndCounts) {
  resid::pager pager(8 << 20);
  const auto view = pager.map(kModel);
  ASSERT_GT(view.size(), 20U << 20);
  EXPECT_EQ(std::memcmp(view.data(), "GGUF", 4), 0);
  {
    const resid::pin pin = pager.pin(view.subspan(2 << 20, 1 << 20));
    EXPECT_EQ(pager.resident(view.subspan(2 << 20, 1 << 20)), 1U << 20);
  }
  EXPECT_GT(pager.stats().fetches, 0U);
  EXPECT_LE(pager.stats().resident_peak_bytes, 8U << 20);
}

TEST(CppInterface, AFailureIsThrownWithItsWholeMessage) {
  resid::pager pager(8 << 20);
  try {
    pager.map("/nowhere");
    FAIL() << "no exception";
  } catch (const resid::error& e) {
    EXPECT_EQ(e.status(), RESID_NO_SUCH_FILE);
    EXPECT_NE(std::string(e.what()).find("/nowhere"), std::string::npos);
  }
}

TEST(CppInterface, AnUnknownPolicyIsRefused) {
  auto options = resid::pager::options(8 << 20);
  options.policy = "best";
  EXPECT_THROW(resid::pager{options}, resid::error);
}

}  // namespace

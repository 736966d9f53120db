// When a large chunk is mapped by one entry, and when that is left to the first touch.

#include "pager/map_cost.hpp"

#include <gtest/gtest.h>

namespace resid {
namespace {

TEST(MapCost, QuickBeforeAnythingWasMeasured) {
  MapCost cost;
  EXPECT_TRUE(cost.quick());
  EXPECT_TRUE(cost.worthwhile());
}

TEST(MapCost, NotLeftToTheFirstTouchWhereItAlwaysTakesLong) {
  MapCost cost;
  for (int i = 0; i < 20; ++i)
    cost.took(120'000);
  EXPECT_FALSE(cost.quick());
  EXPECT_TRUE(cost.worthwhile());  // page by page takes as long
  for (int i = 0; i < 100; ++i)
    cost.took(5'000);
  EXPECT_TRUE(cost.quick());
}

TEST(MapCost, OneSlowCallPausesItAndIsForgottenAfterwards) {
  MapCost cost;
  for (int i = 0; i < 20; ++i)
    cost.took(2'000);
  cost.took(80'000'000);
  EXPECT_TRUE(cost.quick());
  for (std::uint32_t i = 0; i < MapCost::kPause; ++i)
    EXPECT_FALSE(cost.worthwhile());
  EXPECT_TRUE(cost.worthwhile());
}

}  // namespace
}  // namespace resid

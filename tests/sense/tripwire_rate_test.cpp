// How many tripwires a pass may have.

#include "sense/tripwire_rate.hpp"

#include <gtest/gtest.h>

namespace resid {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(TripwireRate, NoneBeforeAPassWasTimed) {
  TripwireRate rate;
  EXPECT_FALSE(rate.cycle(0, 0));
  EXPECT_FALSE(rate.cycle(1, 100 * kMs));
  EXPECT_EQ(rate.most(), 0U);
}

TEST(TripwireRate, AHundredthOfAPass) {
  TripwireRate rate;
  rate.cycle(1, 0);
  EXPECT_TRUE(rate.cycle(2, 120 * kMs));
  EXPECT_EQ(rate.most() * TripwireRate::kBesideNs, 120 * kMs / 100);
}

TEST(TripwireRate, FewerWhereTheyCostMore) {
  TripwireRate rate;
  rate.cycle(1, 0);
  for (int i = 0; i < 200; ++i)
    rate.tripped(4 * TripwireRate::kBesideNs);
  rate.cycle(2, 120 * kMs);
  EXPECT_NEAR(rate.most() * TripwireRate::kBesideNs * 5, 120 * kMs / 100, 5e5);
}

TEST(TripwireRate, PassesThatWereNotSeenApartAreCountedAll) {
  TripwireRate rate;
  rate.cycle(1, 0);
  rate.cycle(4, 360 * kMs);
  EXPECT_EQ(rate.pass_ns(), 120 * kMs);
}

TEST(TripwireRate, FollowsAPassThatGetsLongerAndKeepsStillForTrifles) {
  TripwireRate rate;
  std::uint64_t now = 0;
  std::uint64_t cycles = 1;
  rate.cycle(cycles, now);
  const auto pass = [&](std::uint64_t ms) { return rate.cycle(++cycles, now += ms * kMs); };
  pass(120);
  const std::uint32_t before = rate.most();
  EXPECT_FALSE(pass(125));
  EXPECT_FALSE(pass(115));
  EXPECT_EQ(rate.most(), before);
  for (int i = 0; i < 20; ++i)
    pass(1200);
  EXPECT_GT(rate.most(), before * 7);
}

}  // namespace
}  // namespace resid

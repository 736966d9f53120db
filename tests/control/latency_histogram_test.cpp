#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "pager/stats.hpp"

namespace resid {
namespace {

using Histogram = LatencyHistogram;

// Durations of every magnitude, not only those near 2^63.
rc::Gen<std::uint64_t> duration() {
  return rc::gen::map(rc::gen::pair(rc::gen::arbitrary<std::uint64_t>(), rc::gen::inRange(0, 64)),
                      [](const std::pair<std::uint64_t, int>& p) { return p.first >> p.second; });
}

RC_GTEST_PROP(LatencyHistogram, ABucketHoldsItsValueWithin12Percent, ()) {
  const std::uint64_t ns = *duration();
  const std::uint32_t index = Histogram::bucket(ns);
  RC_ASSERT(index < Histogram::kBuckets);
  const std::uint64_t upper = Histogram::upper(index);
  RC_ASSERT(upper >= ns);
  RC_ASSERT(static_cast<long double>(upper) <= 1.125L * static_cast<long double>(ns));
  RC_ASSERT(Histogram::bucket(upper) == index);
  if (upper != ~0ULL) RC_ASSERT(Histogram::bucket(upper + 1) == index + 1);
}

TEST(LatencyHistogram, SmallValuesAreExact) {
  for (std::uint64_t ns = 0; ns < 16; ++ns) {
    EXPECT_EQ(Histogram::upper(Histogram::bucket(ns)), ns);
  }
}

TEST(LatencyHistogram, EveryBucketThatAValueCanReachRoundTrips) {
  const std::uint32_t last = Histogram::bucket(~0ULL);
  std::uint64_t before = 0;
  for (std::uint32_t i = 0; i <= last; ++i) {
    const std::uint64_t upper = Histogram::upper(i);
    EXPECT_EQ(Histogram::bucket(upper), i);
    if (i > 0) {
      EXPECT_GT(upper, before);
    }
    before = upper;
  }
  EXPECT_EQ(before, ~0ULL);
}

TEST(LatencyHistogram, WithoutRecordsIsZero) {
  const auto histogram = std::make_unique<Histogram>();
  EXPECT_EQ(histogram->count(), 0U);
  EXPECT_EQ(histogram->quantile(0.5), 0U);
}

RC_GTEST_PROP(LatencyHistogram, QuantilesFollowASortedReference, ()) {
  auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(duration()));
  const auto histogram = std::make_unique<Histogram>();
  for (const std::uint64_t ns : values)
    histogram->record(ns);
  std::sort(values.begin(), values.end());
  RC_ASSERT(histogram->count() == values.size());
  RC_ASSERT(histogram->max_ns.load() == values.back());
  for (const double fraction : {0.0, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = std::min(
        static_cast<std::size_t>(fraction * static_cast<double>(values.size())), values.size() - 1);
    const std::uint64_t quantile = histogram->quantile(fraction);
    RC_ASSERT(quantile >= values[rank]);
    RC_ASSERT(static_cast<long double>(quantile) <=
              1.125L * static_cast<long double>(values[rank]));
    RC_ASSERT(quantile <= values.back());
  }
}

}  // namespace
}  // namespace resid

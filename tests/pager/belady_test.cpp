// T-5: the solver against the provable floor and against brute force.

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trace/belady.hpp"

namespace resid {
namespace {

// Looks ahead by scanning: O(n^2), nothing clever to get wrong.
std::uint64_t naive(const std::vector<std::uint32_t>& accesses, std::uint64_t capacity) {
  std::set<std::uint32_t> held;
  std::uint64_t misses = 0;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (held.count(accesses[i]) != 0) continue;
    ++misses;
    if (held.size() == capacity) {
      const auto next_use = [&](std::uint32_t chunk) {
        return std::find(accesses.begin() + static_cast<std::ptrdiff_t>(i) + 1, accesses.end(),
                         chunk);
      };
      held.erase(*std::max_element(held.begin(), held.end(), [&](std::uint32_t a, std::uint32_t b) {
        return next_use(a) < next_use(b);
      }));
    }
    held.insert(accesses[i]);
  }
  return misses;
}

RC_GTEST_PROP(T5BeladySanity, EqualsTheNaiveScan, ()) {
  const auto chunks = *rc::gen::inRange<std::uint32_t>(1, 12);
  const auto accesses =
      *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, chunks));
  const auto capacity = *rc::gen::inRange<std::uint64_t>(1, 12);
  const auto result = optimum_misses(accesses, chunks, capacity, TraceKind::reference);
  RC_ASSERT(result.has_value());
  RC_ASSERT(result->misses == naive(accesses, capacity));
}

TEST(T5BeladySanity, ReachesTheCyclicFloorExactly) {
  for (std::uint32_t n = 1; n <= 40; ++n) {
    for (std::uint32_t k = 1; k <= n + 1; ++k) {
      std::vector<std::uint32_t> accesses;
      for (int pass = 0; pass < 5; ++pass) {
        for (std::uint32_t i = 0; i < n; ++i)
          accesses.push_back(i);
      }
      const auto result = optimum_misses(accesses, n, k, TraceKind::reference);
      ASSERT_TRUE(result);
      ASSERT_GE(result->misses, cyclic_floor(n, k, 5)) << n << " chunks, room for " << k;
      // Demand paging must hold what it has just read, so k = 1 keeps nothing else: the floor is
      // reached from k = 2 on up to one chunk of the window a pass.
      ASSERT_LE(result->misses, cyclic_floor(n, k > 1 ? k - 1 : 0, 5));
    }
  }
}

TEST(T5BeladySanity, RefusesAFaultTrace) {
  const std::vector<std::uint32_t> accesses{0, 1, 2};
  const auto result = optimum_misses(accesses, 3, 2, TraceKind::fault);
  ASSERT_FALSE(result);
  EXPECT_EQ(exit_code(result.error().status), 2);
}

TEST(T5BeladySanity, RefusesAChunkThatDoesNotExist) {
  const std::vector<std::uint32_t> accesses{0, 9};
  EXPECT_FALSE(optimum_misses(accesses, 3, 2, TraceKind::reference));
}

}  // namespace
}  // namespace resid

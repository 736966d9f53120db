// T-5: the solver against the provable floor and against brute force.

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trace/belady.hpp"
#include "trace/use_set.hpp"

namespace resid {
namespace {

using Ids = std::vector<std::uint32_t>;

// From `low` to `high`, both included. Not smaller at first, as rapidcheck would have it: instances
// that are too small to go wrong find nothing.
template <class T>
T between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}
Ids some_ids(std::size_t n, std::uint32_t chunks) {
  return *rc::gen::container<Ids>(
      n, rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(0, chunks)));
}

// Looks ahead by scanning: O(n^2), nothing clever to get wrong.
std::uint64_t naive(const Ids& accesses, std::uint64_t capacity) {
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

// Tries every victim: not even Belady's rule is taken for granted.
std::uint64_t least(const Ids& accesses, std::size_t at, const std::set<std::uint32_t>& held,
                    std::uint64_t capacity) {
  if (at == accesses.size()) return 0;
  std::set<std::uint32_t> then = held;
  if (!then.insert(accesses[at]).second) return least(accesses, at + 1, then, capacity);
  if (held.size() < capacity) return 1 + least(accesses, at + 1, then, capacity);
  std::uint64_t best = accesses.size();
  for (const std::uint32_t victim : held) {
    std::set<std::uint32_t> without = then;
    without.erase(victim);
    best = std::min(best, 1 + least(accesses, at + 1, without, capacity));
  }
  return best;
}

template <class Set>
std::uint64_t counted(const Ids& accesses, std::uint32_t chunks, std::uint64_t capacity) {
  const auto next = solver::next_uses(accesses, chunks);
  return solver::count_misses<Set>(*next, capacity, [](std::uint32_t) {});
}

// The property that holds the solver to the naive scan.
template <class Set>
void equals_the_naive_scan() {
  const auto chunks = between<std::uint32_t>(1, 12);
  const auto accesses = some_ids(between<std::size_t>(50, 100), chunks);
  const auto capacity = between<std::uint64_t>(1, 12);
  RC_ASSERT(counted<Set>(accesses, chunks, capacity) == naive(accesses, capacity));
}

RC_GTEST_PROP(T5BeladySanity, EqualsTheNaiveScan, ()) {
  equals_the_naive_scan<UseSet>();
}

RC_GTEST_PROP(T5BeladySanity, EqualsTheBestOfAllChoices, ()) {
  const auto chunks = between<std::uint32_t>(2, 6);
  const auto n = between<std::size_t>(5, 16);
  const auto accesses = some_ids(n, chunks);
  const auto capacity = between<std::uint64_t>(1, 4);
  const auto result = optimum_misses(accesses, chunks, capacity, TraceKind::reference);
  RC_ASSERT(result.has_value());
  RC_ASSERT(result->accesses == n);
  RC_ASSERT(result->misses == least(accesses, 0, {}, capacity));
}

// The property must be able to fail: errors by one, planted where the victim is chosen.
struct SecondFurthest : UseSet {
  using UseSet::UseSet;
  std::uint32_t furthest() const {
    const std::uint32_t second = before(UseSet::furthest());
    return second == kNone ? UseSet::furthest() : second;
  }
};
struct LastPositionUnseen : UseSet {
  explicit LastPositionUnseen(std::uint32_t bound) : UseSet(bound), last_(bound - 1) {}
  std::uint32_t furthest() const {
    const std::uint32_t seen = before(last_);
    return seen == kNone ? last_ : seen;
  }
  std::uint32_t last_;
};

// The second error shows in one of twenty instances; a round is a hundred.
template <class Set>
bool falsified(const char* planted) {
  for (int round = 0; round < 10; ++round) {
    if (!rc::check(planted, equals_the_naive_scan<Set>)) return true;
  }
  return false;
}

TEST(T5BeladySanity, TheNaiveScanFindsAPlantedErrorByOne) {
  EXPECT_TRUE(falsified<SecondFurthest>("planted, must be falsified: the second furthest goes"));
  EXPECT_TRUE(falsified<LastPositionUnseen>("planted, must be falsified: the last is not seen"));
}

RC_GTEST_PROP(UseSet, IsASet, ()) {
  // Around the borders of words and levels.
  const auto bound = *rc::gen::element<std::uint32_t>(1, 63, 64, 65, 4096, 4097, 300000);
  const auto some = some_ids(200, bound);
  UseSet set(bound);
  std::set<std::uint32_t> model;
  for (const std::uint32_t at : some) {
    if (model.insert(at).second) {
      set.insert(at);
    } else {
      model.erase(at);
      set.erase(at);
    }
    RC_ASSERT(set.contains(at) == (model.count(at) != 0));
    RC_ASSERT(set.furthest() == (model.empty() ? UseSet::kNone : *model.rbegin()));
    const auto above = model.lower_bound(at);
    RC_ASSERT(set.before(at) == (above == model.begin() ? UseSet::kNone : *std::prev(above)));
  }
}

TEST(T5BeladySanity, ReachesTheCyclicFloorExactly) {
  for (std::uint32_t n = 1; n <= 40; ++n) {
    for (std::uint32_t k = 1; k <= n + 1; ++k) {
      Ids accesses;
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
  const Ids accesses{0, 1, 2};
  for (const TraceKind kind : {TraceKind::fault, TraceKind::fetch, TraceKind::victim}) {
    const auto result = optimum_misses(accesses, 3, 2, kind);
    ASSERT_FALSE(result);
    EXPECT_EQ(exit_code(result.error().status), 2);
  }
}

TEST(T5BeladySanity, RefusesAChunkThatDoesNotExist) {
  const Ids accesses{0, 9};
  EXPECT_FALSE(optimum_misses(accesses, 3, 2, TraceKind::reference));
}

TEST(T5BeladySanity, RefusesToHoldNothing) {
  const Ids accesses{0};
  EXPECT_FALSE(optimum_misses(accesses, 1, 0, TraceKind::reference));
}

}  // namespace
}  // namespace resid

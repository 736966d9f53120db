#include "policy/index_set.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

namespace resid {
namespace {

std::uint32_t previous(const std::set<std::uint32_t>& members, std::uint32_t index) {
  const auto found = members.lower_bound(index);
  return found == members.begin() ? IndexSet::kNone : *std::prev(found);
}

std::uint32_t next(const std::set<std::uint32_t>& members, std::uint32_t index) {
  const auto found = members.lower_bound(index);
  return found == members.end() ? IndexSet::kNone : *found;
}

// Bounds around every change of the number of levels and words.
const std::vector<std::uint32_t> kBounds{1,    2,    63,   64,   65,     127,    128,   129,
                                         4095, 4096, 4097, 8192, 262143, 262144, 262145};

RC_GTEST_PROP(IndexSet, behaves_as_std_set, ()) {
  const auto bound = *rc::gen::elementOf(kBounds);
  IndexSet set;
  set.resize(bound);
  std::set<std::uint32_t> reference;
  const auto index = rc::gen::inRange<std::uint32_t>(0, bound);
  for (const auto& [op, near] : *rc::gen::container<std::vector<std::pair<int, std::uint32_t>>>(
           rc::gen::pair(rc::gen::inRange(0, 4), index))) {
    // Mostly few indices, so that inserts meet erases.
    const std::uint32_t at = op % 2 == 0 ? near : near / 64 * 64;
    if (op < 2) {
      set.insert(at);
      reference.insert(at);
    } else {
      set.erase(at);
      reference.erase(at);
    }
    RC_ASSERT(set.contains(at) == reference.contains(at));
    for (const std::uint32_t from : {std::uint32_t{0}, at, at + 1, near, bound}) {
      RC_ASSERT(set.previous(from) == previous(reference, from));
      RC_ASSERT(set.next(from) == next(reference, from));
      const bool below = !reference.empty() && *reference.begin() < from;
      const bool above = !reference.empty() && *reference.rbegin() >= from;
      RC_ASSERT(set.previous_around(from) == previous(reference, below ? from : bound));
      RC_ASSERT(set.next_around(from) == next(reference, above ? from : 0));
    }
  }
}

TEST(IndexSet, finds_the_one_member_from_every_index_above_it) {
  for (const std::uint32_t bound : {64U, 4096U, 5000U}) {
    for (const std::uint32_t member : {0U, 1U, 63U}) {
      IndexSet set;
      set.resize(bound);
      set.insert(member);
      for (std::uint32_t from = 0; from <= bound; ++from) {
        ASSERT_EQ(set.previous(from), from > member ? member : IndexSet::kNone) << from;
        ASSERT_EQ(set.next(from), from <= member ? member : IndexSet::kNone) << from;
      }
    }
  }
}

TEST(IndexSet, walks_all_members_backwards_when_full) {
  IndexSet set;
  set.resize(70'000);
  for (std::uint32_t i = 0; i < set.bound(); ++i)
    set.insert(i);
  for (std::uint32_t i = set.bound(); i > 0; --i) {
    ASSERT_EQ(set.previous(i), i - 1);
    ASSERT_EQ(set.next(i - 1), i - 1);
  }
}

TEST(IndexSet, is_empty_at_bound_zero) {
  IndexSet set;
  set.resize(0);
  EXPECT_EQ(set.previous(0), IndexSet::kNone);
  EXPECT_EQ(set.next(0), IndexSet::kNone);
  EXPECT_EQ(set.next_around(0), IndexSet::kNone);
  EXPECT_EQ(set.previous_around(0), IndexSet::kNone);
}

TEST(IndexSet, clear_empties_it_and_keeps_the_bound) {
  IndexSet set;
  set.resize(5000);
  set.insert(7);
  set.insert(4999);
  set.clear();
  EXPECT_EQ(set.next(0), IndexSet::kNone);
  EXPECT_EQ(set.bound(), 5000U);
  set.insert(4999);
  EXPECT_EQ(set.next(0), 4999U);
}

TEST(IndexSet, resize_empties_it) {
  IndexSet set;
  set.resize(100);
  set.insert(7);
  set.resize(5000);
  EXPECT_EQ(set.previous(5000), IndexSet::kNone);
  EXPECT_FALSE(set.contains(7));
}

}  // namespace
}  // namespace resid

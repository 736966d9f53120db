#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "policy/order_policy.hpp"
#include "policy/order_record.hpp"
#include "policy/policy.hpp"

namespace resid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Mode = OrderReport::Mode;

constexpr std::uint32_t kPageBytes = 4096;

std::unique_ptr<Policy> make(std::uint32_t chunks) {
  auto made = make_policy("layer_order_spread");
  if (!made) return nullptr;
  (*made)->grow(std::vector<std::uint32_t>(chunks, kPageBytes));
  return std::move(*made);
}

std::vector<ChunkId> straight(std::uint32_t n) {
  std::vector<ChunkId> order(n);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

// Declared order 0, 1, ... n-1; `stay` of them stay, with a window of two.
std::unique_ptr<Policy> planned(std::uint32_t n, std::uint32_t stay, std::uint32_t more = 0) {
  auto policy = make(n + more);
  policy->declare_sequence(straight(n));
  policy->set_room((stay + 2ULL) * kPageBytes, 2ULL * kPageBytes);
  return policy;
}

std::vector<ChunkId> upcoming(Policy& policy, std::size_t most) {
  std::vector<ChunkId> out(most);
  out.resize(policy.upcoming(out));
  return out;
}

std::vector<ChunkId> to_arm(Policy& policy, std::size_t most = 64) {
  std::vector<ChunkId> out(most);
  out.resize(policy.to_arm(out));
  return out;
}

// What streams, in the order of the positions.
std::vector<ChunkId> streamed(Policy& policy, std::uint32_t n) {
  std::vector<ChunkId> all = upcoming(policy, n);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Spread, before_the_first_signal_the_streamed_ones_come_from_the_beginning) {
  auto policy = planned(40, 35);
  EXPECT_EQ(policy->order_report().mode, Mode::cyclic);
  const std::vector<ChunkId> all = upcoming(*policy, 40);
  EXPECT_EQ(all.size(), 5U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.front(), 0U) << "the first entry is still to come";
  policy->on_access(all[1]);
  EXPECT_THAT(upcoming(*policy, 3), ElementsAre(all[2], all[3], all[4]));
  EXPECT_EQ(policy->order_report().fixed_bytes, 35U * kPageBytes);
  EXPECT_EQ(policy->order_report().streamed_bytes, 5U * kPageBytes);
}

TEST(Spread, gives_up_what_has_passed_then_strangers_then_what_stays_then_what_is_read) {
  auto policy = planned(40, 36, 2);
  const std::vector<ChunkId> all = streamed(*policy, 40);
  ASSERT_EQ(all.size(), 4U);
  ChunkId fixed = 1;
  while (std::binary_search(all.begin(), all.end(), fixed))
    ++fixed;
  policy->on_access(all[1]);
  for (const ChunkId chunk : {all[0], all[1], all[2], all[3], fixed, 41U, 40U})
    policy->candidate(chunk);
  for (const ChunkId expected : {all[0], 41U, 40U, all[3], all[2], fixed, all[1]}) {
    ASSERT_EQ(policy->select_victim(), expected);
    policy->withdraw(expected);
  }
  EXPECT_EQ(policy->select_victim(), kNoChunk);
}

TEST(Spread, nothing_of_what_comes_next_is_spent) {
  auto policy = planned(40, 30, 1);
  const std::vector<ChunkId> all = streamed(*policy, 40);
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(policy->spent(), kNoChunk);
  policy->on_access(all[2]);
  for (const std::size_t next : {3U, 4U, 5U, 6U})
    policy->candidate(all[next]);
  policy->candidate(all[2]);
  EXPECT_EQ(policy->spent(), kNoChunk);
  policy->candidate(1);
  EXPECT_EQ(policy->spent(), kNoChunk) << "that one stays";
  policy->candidate(40);
  EXPECT_EQ(policy->spent(), 40U);
  policy->candidate(all[1]);
  policy->candidate(all[0]);
  EXPECT_EQ(policy->spent(), all[1]);
  policy->withdraw(all[1]);
  EXPECT_EQ(policy->spent(), all[0]);
}

TEST(Spread, nothing_is_spent_when_everything_fits) {
  auto policy = planned(40, 40, 1);
  policy->on_access(3);
  policy->candidate(40);
  for (ChunkId chunk = 0; chunk < 40; ++chunk)
    policy->candidate(chunk);
  EXPECT_EQ(policy->spent(), kNoChunk);
  EXPECT_THAT(upcoming(*policy, 4), IsEmpty());
}

TEST(Spread, a_late_signal_moves_nothing) {
  auto policy = planned(100, 50);
  policy->on_access(20);
  for (ChunkId chunk = 19; chunk + kStepBack >= 20; --chunk)
    policy->on_access(chunk);
  EXPECT_EQ(policy->next_use_distance(20), 0);
  EXPECT_EQ(policy->order_report().surprises, 0U);
  EXPECT_EQ(policy->order_report().streams, 1U);
}

TEST(Spread, the_distance_is_from_the_nearest_stream) {
  auto policy = planned(400, 0);
  policy->on_access(10);
  policy->on_access(200);
  EXPECT_EQ(policy->order_report().streams, 2U);
  EXPECT_EQ(policy->order_report().surprises, 1U);
  EXPECT_EQ(policy->next_use_distance(15), 5);
  EXPECT_EQ(policy->next_use_distance(210), 10);
  EXPECT_EQ(policy->next_use_distance(8), 208);
  EXPECT_EQ(policy->next_use_distance(9), 0);  // beside what is being read
  EXPECT_THAT(upcoming(*policy, 4), testing::UnorderedElementsAre(11, 201, 12, 202));
}

TEST(Spread, tripwires_are_behind_the_streamed_ones_first) {
  auto policy = planned(100, 90);
  const std::vector<ChunkId> all = streamed(*policy, 100);
  policy->set_tripwires(10);
  policy->on_access(0);
  std::set<ChunkId> armed;
  for (ChunkId chunk = 1; chunk <= 100; ++chunk) {
    policy->on_access(chunk % 100);
    for (const ChunkId each : to_arm(*policy)) {
      EXPECT_TRUE(armed.insert(each).second) << "twice in a cycle";
      EXPECT_LE(each + 2, chunk) << "too near to the reader";
    }
  }
  std::set<ChunkId> expected;
  for (const ChunkId chunk : all)
    expected.insert(chunk + 1 == 100 ? 0 : chunk + 1);
  expected.erase(99);
  armed.erase(99);
  EXPECT_EQ(armed, expected);
}

TEST(Spread, more_tripwires_are_spread_evenly_and_never_more_than_asked_for) {
  for (const std::uint32_t most : {0U, 1U, 7U, 30U, 60U, 500U}) {
    auto policy = planned(300, 280);
    const std::vector<ChunkId> all = streamed(*policy, 300);
    policy->set_tripwires(most);
    std::vector<ChunkId> armed;
    for (ChunkId chunk = 0; chunk < 303; ++chunk) {
      policy->on_access(chunk % 300);
      for (const ChunkId each : to_arm(*policy))
        armed.push_back(each);
    }
    EXPECT_EQ(armed.size(), std::min(most, 280U)) << most;
    for (const ChunkId each : armed)
      EXPECT_FALSE(std::binary_search(all.begin(), all.end(), each));
    if (most != 60) continue;
    ChunkId last = armed.front();
    for (const ChunkId each : armed) {
      EXPECT_LE(each - last, 16U);
      last = each;
    }
  }
}

TEST(Spread, what_could_not_be_written_is_armed_by_the_next_call) {
  auto policy = planned(300, 200);
  policy->set_tripwires(50);
  policy->on_access(0);
  std::vector<ChunkId> one_by_one;
  for (ChunkId chunk = 10; chunk <= 280; chunk += 10)
    policy->on_access(chunk);
  for (std::vector<ChunkId> some = to_arm(*policy, 3); !some.empty(); some = to_arm(*policy, 3))
    one_by_one.insert(one_by_one.end(), some.begin(), some.end());
  ASSERT_GE(one_by_one.size(), 45U);
  EXPECT_TRUE(std::is_sorted(one_by_one.begin(), one_by_one.end()));
  EXPECT_LE(one_by_one.back(), 278U);
  EXPECT_THAT(to_arm(*policy), IsEmpty());
}

TEST(Spread, while_learning_the_chunk_just_read_goes) {
  auto policy = make(10);
  EXPECT_EQ(policy->order_report().mode, Mode::learning);
  EXPECT_FALSE(policy->plans());
  for (const ChunkId chunk : {3U, 1U, 7U}) {
    policy->on_fault(chunk);
    policy->on_access(chunk);
    policy->candidate(chunk);
  }
  EXPECT_EQ(policy->select_victim(), 1U) << "7 is being read";
  policy->withdraw(7);
  policy->withdraw(3);
  EXPECT_EQ(policy->select_victim(), 1U) << "it is the only one";
  EXPECT_EQ(policy->next_use_distance(3), kNeverUsed);
  EXPECT_EQ(policy->spent(), kNoChunk);
}

TEST(Spread, a_chunk_read_twice_in_the_first_pass_does_not_end_the_learning) {
  auto policy = make(60);
  for (ChunkId chunk = 0; chunk < 30; ++chunk)
    policy->on_access(chunk);
  policy->on_access(5);
  for (ChunkId chunk = 30; chunk < 60; ++chunk)
    policy->on_access(chunk);
  EXPECT_EQ(policy->order_report().mode, Mode::learning);
  policy->on_access(20);  // what is before is resident
  EXPECT_THAT(upcoming(*policy, 2), ElementsAre(21, 22));
  for (ChunkId chunk = 21; chunk < 30; ++chunk)
    policy->on_access(chunk);
  EXPECT_EQ(policy->order_report().mode, Mode::cyclic);
  EXPECT_EQ(policy->next_use_distance(29), 0);
  EXPECT_EQ(policy->next_use_distance(27), 58);
  EXPECT_EQ(policy->predict_next(59), 0U);
}

TEST(Spread, random_reads_without_an_order_end_in_recency) {
  auto policy = make(500);
  std::uint32_t random = 1;
  std::uint32_t signals = 0;
  while (policy->order_report().mode == Mode::learning && signals < 1000) {
    random = random * 1664525U + 1013904223U;
    policy->on_access((random >> 8) % 500);
    ++signals;
  }
  EXPECT_EQ(policy->order_report().mode, Mode::recency);
  EXPECT_EQ(policy->order_report().fallbacks, 1U);
  EXPECT_LE(signals, 500U);
  policy->candidate(4);
  policy->candidate(2);
  EXPECT_EQ(policy->select_victim(), 4U);
}

// The pager makes a new policy for a larger set of chunks and tells it everything at once.
RC_GTEST_PROP(Spread, the_order_of_what_it_is_told_does_not_matter, ()) {
  const auto number = [](std::uint32_t low, std::uint32_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high));
  };
  const std::uint32_t chunks = number(1, 80);
  const std::vector<std::uint32_t> bytes(chunks, kPageBytes);
  std::vector<ChunkId> order;
  for (ChunkId chunk = 0; chunk < chunks; ++chunk) {
    if (number(0, 8) != 0) order.push_back(chunk);
  }
  const std::vector<ChunkId> resident = *rc::gen::resize(
      rc::kNominalSize, rc::gen::container<std::vector<ChunkId>>(rc::gen::inRange(0U, chunks)));
  const std::uint64_t budget = std::uint64_t{number(0, chunks + 2)} * kPageBytes;
  const auto told = [&](const std::vector<int>& in_turn) {
    auto policy = make(number(0, 3));
    policy->grow(bytes);
    for (const int step : in_turn) {
      if (step == 0) policy->declare_sequence(order);
      if (step == 1) policy->set_room(budget, 2ULL * kPageBytes);
      if (step == 2) policy->set_tripwires(7);
      if (step == 3) {
        for (const ChunkId chunk : resident)
          policy->candidate(chunk);
      }
    }
    return policy;
  };
  auto one = told({0, 1, 2, 3});
  std::vector<int> steps{0, 1, 2, 3};
  for (std::uint32_t i = number(0, 24); i > 0; --i)
    std::next_permutation(steps.begin(), steps.end());
  auto other = told(steps);
  for (std::uint32_t i = 0; i < 2 * chunks; ++i) {
    RC_ASSERT(upcoming(*one, 5) == upcoming(*other, 5));
    RC_ASSERT(to_arm(*one) == to_arm(*other));
    RC_ASSERT(one->spent() == other->spent());
    const ChunkId victim = one->select_victim();
    RC_ASSERT(victim == other->select_victim());
    one->withdraw(victim);
    other->withdraw(victim);
    one->on_access(i % chunks);
    other->on_access(i % chunks);
  }
}

TEST(OrderRecord, what_was_silent_in_the_first_cycle_does_not_undo_it) {
  OrderRecord record;
  record.grow(200);
  for (ChunkId chunk = 0; chunk < 100; chunk += 2)
    record.note(chunk);
  for (ChunkId chunk = 0; chunk < 20; chunk += 2)
    record.note(chunk);
  EXPECT_TRUE(record.closed(8));
  for (ChunkId chunk = 20; chunk < 60; ++chunk)
    record.note(chunk);
  EXPECT_TRUE(record.closed(25));
  EXPECT_EQ(record.entries().size(), 50U);
  EXPECT_EQ(record.restarts(), 0U);
}

TEST(OrderRecord, an_order_after_disorder_is_on_record_a_cycle_later) {
  OrderRecord record;
  record.grow(300);
  std::uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    random = random * 1664525U + 1013904223U;
    record.note((random >> 8) % 300);
    ASSERT_FALSE(record.closed(64));
  }
  EXPECT_GT(record.restarts(), 0U);
  int signals = 0;
  for (; !record.closed(64) && signals < 1200; ++signals)
    record.note(static_cast<ChunkId>(signals) % 300);
  EXPECT_LE(signals, 700);
  EXPECT_GE(record.entries().size(), 290U);
}

}  // namespace
}  // namespace resid

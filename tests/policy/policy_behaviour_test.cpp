#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "policy/order_policy.hpp"
#include "policy/policy.hpp"

namespace resid {
namespace {

std::unique_ptr<Policy> make(std::string_view name, std::uint32_t chunks) {
  auto made = make_policy(name);
  if (!made) return nullptr;
  (*made)->grow(std::vector<std::uint32_t>(chunks, 4096));
  return std::move(*made);
}

// Declared order 0, 1, ... n-1, all of them candidates.
std::unique_ptr<Policy> declared(std::uint32_t n) {
  auto policy = make("layer_order_declared", n);
  std::vector<ChunkId> order(n);
  std::iota(order.begin(), order.end(), 0U);
  policy->declare_sequence(order);
  for (ChunkId chunk = 0; chunk < n; ++chunk)
    policy->candidate(chunk);
  return policy;
}

TEST(MakePolicy, makes_every_policy_it_names) {
  EXPECT_THAT(
      policy_names(),
      testing::ElementsAre("lru", "layer_order_learned", "layer_order_declared",
                           "layer_order_spread", "expert_lru", "expert_lfru", "expert_foresight"));
  for (const std::string_view name : policy_names()) {
    auto policy = make_policy(name);
    ASSERT_TRUE(policy.has_value()) << name;
    EXPECT_EQ((*policy)->name(), name);
  }
}

TEST(MakePolicy, refuses_an_unknown_name_and_lists_the_known_ones) {
  for (const char* name : {"", "LRU", "belady"}) {
    auto policy = make_policy(name);
    ASSERT_FALSE(policy.has_value());
    EXPECT_EQ(policy.error().status, Status::usage);
    for (const std::string_view known : policy_names()) {
      EXPECT_THAT(policy.error().line(), testing::HasSubstr(std::string(known)));
    }
  }
}

class EveryPolicy : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryPolicy, has_no_victim_without_candidates) {
  auto policy = make(GetParam(), 4);
  EXPECT_EQ(policy->select_victim(), kNoChunk);
  policy->on_fault(1);
  policy->candidate(1);
  EXPECT_EQ(policy->select_victim(), 1U);
  EXPECT_EQ(policy->select_victim(), 1U) << "choosing must not withdraw";
  policy->withdraw(1);
  EXPECT_EQ(policy->select_victim(), kNoChunk);
}

TEST_P(EveryPolicy, works_before_anything_is_grown) {
  auto policy = make(GetParam(), 0);
  policy->on_fault(0);
  policy->on_access(kNoChunk);
  policy->candidate(3);
  policy->withdraw(3);
  policy->declare_sequence({});
  policy->set_protect_current(true);
  EXPECT_EQ(policy->select_victim(), kNoChunk);
  EXPECT_EQ(policy->predict_next(0), kNoChunk);
  EXPECT_EQ(policy->next_use_distance(0), kNeverUsed);
}

TEST_P(EveryPolicy, takes_repeated_news_once) {
  auto policy = make(GetParam(), 4);
  policy->on_fault(1);
  policy->candidate(1);
  policy->candidate(1);
  policy->withdraw(1);
  EXPECT_EQ(policy->select_victim(), kNoChunk);
  policy->withdraw(1);
  policy->candidate(1);
  EXPECT_EQ(policy->select_victim(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, testing::ValuesIn(policy_names()),
                         [](const auto& each) { return std::string(each.param); });

TEST(Lru, ages_by_fault_and_not_by_the_end_of_the_fetch) {
  auto policy = make("lru", 3);
  policy->on_fault(2);
  policy->on_fault(0);
  policy->candidate(0);
  policy->candidate(2);
  EXPECT_EQ(policy->select_victim(), 2U);
}

TEST(Lru, reads_no_access_signal) {
  auto policy = make("lru", 3);
  for (const ChunkId chunk : {0U, 1U}) {
    policy->on_fault(chunk);
    policy->candidate(chunk);
  }
  policy->on_access(0);
  EXPECT_EQ(policy->select_victim(), 0U);
}

TEST(Lru, a_prefetched_chunk_is_as_young_as_its_arrival) {
  auto policy = make("lru", 3);
  policy->on_fault(0);
  policy->candidate(0);
  policy->withdraw(0);  // evicted
  policy->on_fault(1);
  policy->candidate(1);
  policy->candidate(0);  // back without a fault
  EXPECT_EQ(policy->select_victim(), 1U);
}

TEST(Lru, knows_no_next_use) {
  auto policy = make("lru", 3);
  policy->declare_sequence(std::vector<ChunkId>{0, 1, 2});
  policy->on_fault(0);
  EXPECT_EQ(policy->next_use_distance(0), kNeverUsed);
  EXPECT_EQ(policy->predict_next(0), kNoChunk);
}

TEST(Declared, before_use_counts_from_the_position_itself) {
  auto policy = declared(20);
  policy->on_access(12);
  EXPECT_EQ(policy->next_use_distance(12), 0);
  EXPECT_EQ(policy->next_use_distance(13), 1);
  EXPECT_EQ(policy->next_use_distance(11), 19);
  EXPECT_EQ(policy->select_victim(), 11U);
}

TEST(Declared, after_use_puts_the_position_a_full_cycle_away) {
  auto policy = declared(20);
  policy->set_signal_mode(SignalMode::after_use);
  policy->on_access(12);
  EXPECT_EQ(policy->next_use_distance(12), 20);
  EXPECT_EQ(policy->next_use_distance(13), 1);
  EXPECT_EQ(policy->select_victim(), 12U);
}

TEST(Declared, entry_0_comes_next_before_the_first_signal_in_both_modes) {
  auto policy = declared(20);
  EXPECT_EQ(policy->next_use_distance(0), 0);
  EXPECT_EQ(policy->select_victim(), 19U);
  policy->set_signal_mode(SignalMode::after_use);
  EXPECT_EQ(policy->next_use_distance(0), 1);
  EXPECT_EQ(policy->select_victim(), 19U);
}

TEST(Declared, protects_the_position_and_the_one_before_it) {
  for (const SignalMode mode : {SignalMode::before_use, SignalMode::after_use}) {
    auto policy = declared(20);
    policy->set_signal_mode(mode);
    policy->set_protect_current(true);
    policy->on_access(12);
    EXPECT_EQ(policy->next_use_distance(12), 0);
    EXPECT_EQ(policy->next_use_distance(11), 0);
    EXPECT_EQ(policy->select_victim(), 10U);
  }
}

TEST(Declared, gives_up_protected_chunks_when_nothing_else_is_left) {
  auto policy = declared(20);
  policy->set_protect_current(true);
  policy->on_access(11);
  policy->on_access(12);
  for (ChunkId chunk = 0; chunk < 20; ++chunk) {
    if (chunk != 11 && chunk != 12) policy->withdraw(chunk);
  }
  EXPECT_EQ(policy->select_victim(), 11U) << "the least recently used of the two";
  policy->withdraw(11);
  EXPECT_EQ(policy->select_victim(), 12U);
}

TEST(Declared, a_fault_does_not_move_the_position) {
  auto policy = declared(20);
  policy->on_access(5);
  policy->on_fault(17);
  EXPECT_EQ(policy->next_use_distance(5), 0);
}

TEST(Declared, a_small_step_back_moves_nothing_and_a_large_one_goes_round) {
  auto policy = declared(40);
  policy->on_access(20);
  policy->on_access(20 - kStepBack);
  EXPECT_EQ(policy->next_use_distance(20), 0);
  policy->on_access(20 - kStepBack - 1);
  EXPECT_EQ(policy->next_use_distance(20 - kStepBack - 1), 0);
}

TEST(Declared, a_step_back_is_taken_for_one_only_when_it_is_the_shorter_way) {
  auto policy = declared(5);
  policy->on_access(0);
  policy->on_access(1);  // four back, one ahead
  EXPECT_EQ(policy->next_use_distance(1), 0);
  policy->on_access(4);  // two back, three ahead
  EXPECT_EQ(policy->next_use_distance(1), 0);
}

TEST(Declared, the_first_signal_is_never_a_step_back) {
  auto policy = declared(20);
  policy->on_access(18);
  EXPECT_EQ(policy->next_use_distance(18), 0);
}

TEST(Declared, a_chunk_outside_the_order_changes_nothing_and_goes_first_the_oldest_before) {
  auto policy = make("layer_order_declared", 10);
  policy->declare_sequence(std::vector<ChunkId>{0, 1, 2, 3});
  policy->on_access(2);
  for (const ChunkId chunk : {8U, 7U}) {
    policy->on_fault(chunk);
    policy->on_access(chunk);
  }
  for (const ChunkId chunk : {0U, 1U, 7U, 8U})
    policy->candidate(chunk);
  EXPECT_EQ(policy->next_use_distance(2), 0);
  EXPECT_EQ(policy->next_use_distance(8), kNeverUsed);
  for (const ChunkId expected : {8U, 7U, 1U, 0U}) {
    ASSERT_EQ(policy->select_victim(), expected);
    policy->withdraw(expected);
  }
}

TEST(Declared, the_next_use_of_a_repeated_chunk_is_its_nearest_place_ahead) {
  auto policy = make("layer_order_declared", 5);
  policy->declare_sequence(std::vector<ChunkId>{0, 1, 0, 2, 3, 0, 4});
  for (ChunkId chunk = 0; chunk < 5; ++chunk)
    policy->candidate(chunk);
  policy->on_access(1);
  EXPECT_EQ(policy->next_use_distance(0), 1);
  EXPECT_EQ(policy->select_victim(), 4U) << "the place of 0 furthest away is not its next use";
  EXPECT_EQ(policy->predict_next(0), 2U);
  policy->on_access(3);
  EXPECT_EQ(policy->predict_next(0), 4U);
  EXPECT_EQ(policy->select_victim(), 2U);
}

TEST(Declared, upcoming_goes_through_repeats_where_predict_next_goes_round) {
  auto policy = make("layer_order_declared", 3);
  policy->declare_sequence(std::vector<ChunkId>{0, 1, 0, 2});
  policy->on_access(0);
  std::vector<ChunkId> ahead(9, kNoChunk);
  EXPECT_EQ(policy->upcoming(ahead), 4U);
  ahead.resize(4);
  EXPECT_THAT(ahead, testing::ElementsAre(1, 0, 2, 0));
}

TEST(Declared, a_new_order_keeps_the_candidates) {
  auto policy = declared(6);
  policy->on_access(3);
  policy->declare_sequence(std::vector<ChunkId>{5, 4, 3, 2});
  for (const ChunkId expected : {0U, 1U, 2U, 3U, 4U, 5U}) {
    ASSERT_EQ(policy->select_victim(), expected);
    policy->withdraw(expected);
  }
}

TEST(Declared, ids_that_do_not_exist_are_left_out_of_the_order) {
  auto policy = make("layer_order_declared", 3);
  policy->declare_sequence(std::vector<ChunkId>{0, 99, 1, kNoChunk, 2});
  EXPECT_EQ(policy->next_use_distance(2), 2);
  EXPECT_EQ(policy->predict_next(0), 1U);
}

TEST(Learned, the_order_is_that_of_first_faults) {
  auto policy = make("layer_order_learned", 8);
  for (const ChunkId chunk : {5U, 1U, 7U})
    policy->on_fault(chunk);
  EXPECT_EQ(policy->predict_next(5), 1U);
  EXPECT_EQ(policy->predict_next(1), 7U);
  EXPECT_EQ(policy->predict_next(7), kNoChunk) << "nothing has started over yet";
  EXPECT_EQ(policy->next_use_distance(7), 0);
  EXPECT_EQ(policy->next_use_distance(5), 1);
  EXPECT_EQ(policy->next_use_distance(0), kNeverUsed);
  policy->on_fault(5);
  EXPECT_EQ(policy->predict_next(7), 5U);
}

TEST(Learned, resident_chunks_in_between_stay_in_the_order) {
  auto policy = make("layer_order_learned", 40);
  for (ChunkId chunk = 0; chunk < 40; ++chunk)
    policy->on_fault(chunk);
  for (const ChunkId chunk : {3U, 20U, 39U, 3U, 20U})
    policy->on_fault(chunk);
  for (ChunkId chunk = 0; chunk < 40; ++chunk) {
    EXPECT_EQ(policy->predict_next(chunk), (chunk + 1) % 40);
  }
}

TEST(Learned, a_late_joiner_goes_in_after_the_chunk_reached_last) {
  auto policy = make("layer_order_learned", 8);
  for (const ChunkId chunk : {0U, 1U, 2U, 3U, 0U, 1U})
    policy->on_fault(chunk);
  policy->on_fault(7);
  EXPECT_EQ(policy->predict_next(1), 7U);
  EXPECT_EQ(policy->predict_next(7), 2U);
}

TEST(Learned, a_chunk_read_twice_in_the_first_pass_does_not_end_the_learning) {
  auto policy = make("layer_order_learned", 40);
  for (ChunkId chunk = 0; chunk < 20; ++chunk)
    policy->on_fault(chunk);
  policy->on_fault(2);  // far behind: more than a step back
  for (ChunkId chunk = 20; chunk < 40; ++chunk)
    policy->on_fault(chunk);
  EXPECT_EQ(policy->predict_next(2), 20U);
  for (ChunkId chunk = 20; chunk < 39; ++chunk)
    EXPECT_EQ(policy->predict_next(chunk), chunk + 1);
}

TEST(Learned, a_chunk_that_joins_while_resident_takes_its_place_among_the_candidates) {
  auto policy = make("layer_order_learned", 4);
  for (const ChunkId chunk : {0U, 1U}) {
    policy->on_fault(chunk);
    policy->candidate(chunk);
  }
  policy->candidate(3);  // prefetched: outside the order
  EXPECT_EQ(policy->select_victim(), 3U);
  policy->on_fault(3);
  EXPECT_EQ(policy->select_victim(), 1U) << "3 is at the position now, 1 just behind it";
}

TEST(Learned, reads_no_signal_and_no_declaration) {
  auto policy = make("layer_order_learned", 4);
  policy->declare_sequence(std::vector<ChunkId>{3, 2, 1, 0});
  policy->set_signal_mode(SignalMode::after_use);
  for (const ChunkId chunk : {0U, 1U, 2U})
    policy->on_fault(chunk);
  policy->on_access(0);
  EXPECT_EQ(policy->next_use_distance(2), 0);
  EXPECT_EQ(policy->next_use_distance(3), kNeverUsed);
}

}  // namespace
}  // namespace resid

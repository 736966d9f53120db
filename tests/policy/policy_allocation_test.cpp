// I-13: nothing that the fault thread or a fetch worker calls may allocate.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "../count_allocations.hpp"
#include "policy/policy.hpp"

namespace resid {
namespace {

class Allocation : public testing::TestWithParam<std::string_view> {};

TEST_P(Allocation, only_grow_and_declare_allocate) {
  constexpr std::uint32_t kChunks = 3000;
  auto made = make_policy(GetParam());
  ASSERT_TRUE(made.has_value());
  Policy& policy = **made;
  const std::size_t at_start = allocations;
  policy.grow(std::vector<std::uint32_t>(kChunks, 4096));
  EXPECT_GT(allocations, at_start) << "the counter does not count";
  std::vector<ChunkId> sequence;
  for (ChunkId chunk = 0; chunk < kChunks; chunk += 2) {
    sequence.push_back(chunk);
    if (chunk % 3 == 0) sequence.push_back(kChunks - 2 - chunk);
  }
  policy.declare_sequence(sequence);

  std::array<ChunkId, 16> ahead{};
  std::uint32_t random = 1;
  const std::size_t before = allocations;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    random = random * 1664525U + 1013904223U;
    const ChunkId chunk = (random >> 8) % kChunks;
    switch (i % 6) {
      case 0:
        policy.on_fault(chunk);
        break;
      case 1:
        policy.on_access(chunk);
        break;
      case 2:
      case 3:
        policy.candidate(chunk);
        break;
      case 4:
        policy.withdraw(policy.select_victim());
        break;
      default:
        (void)policy.predict_next(chunk);
        (void)policy.next_use_distance(chunk);
        (void)policy.upcoming(ahead);
        policy.set_protect_current(i % 4 == 1);
        policy.set_signal_mode(i % 4 == 1 ? SignalMode::after_use : SignalMode::before_use);
        (void)policy.spent();
        (void)policy.plans();
        (void)policy.to_arm(ahead);
        (void)policy.order_report();
        if (i % 1000 == 5) policy.set_room((random >> 8) % kChunks * 4096, 8 * 4096);
        if (i % 1000 == 5) policy.set_tripwires(i % 100);
    }
  }
  EXPECT_EQ(allocations, before);
}

// Through every mode of layer_order_spread: an order learned, joined later, left for random reads,
// learned anew, cut down to a stretch and widened again.
TEST(SpreadAllocation, no_change_of_mind_allocates) {
  constexpr std::uint32_t kChunks = 2000;
  auto made = make_policy("layer_order_spread");
  ASSERT_TRUE(made.has_value());
  Policy& policy = **made;
  policy.grow(std::vector<std::uint32_t>(kChunks, 4096));
  policy.set_room(kChunks / 2 * 4096, 4 * 4096);
  policy.set_tripwires(100);
  std::vector<bool> resident(kChunks, false);
  std::vector<ChunkId> order(kChunks);
  for (ChunkId i = 0; i < kChunks; ++i)
    order[i] = i * 7 % kChunks;
  std::array<ChunkId, 16> ahead{};
  std::uint32_t used = 0;
  const auto read = [&](ChunkId chunk) {
    if (resident[chunk]) return;
    policy.on_fault(chunk);
    policy.on_access(chunk);
    (void)policy.to_arm(ahead);
    (void)policy.upcoming(ahead);
    (void)policy.spent();
    if (used == kChunks / 2) {
      const ChunkId victim = policy.select_victim();
      policy.withdraw(victim);
      resident[victim] = false;
      --used;
    }
    resident[chunk] = true;
    ++used;
    policy.candidate(chunk);
  };
  const auto scan = [&](std::uint32_t first, std::uint32_t end, std::uint32_t passes, bool all) {
    for (; passes > 0; --passes) {
      for (std::uint32_t i = first; i < end; ++i) {
        if (all || i % 50 != 7) read(order[i]);
      }
    }
  };
  const std::size_t before = allocations;
  using Mode = OrderReport::Mode;
  EXPECT_EQ(policy.order_report().mode, Mode::learning);
  scan(0, kChunks, 3, false);
  EXPECT_EQ(policy.order_report().mode, Mode::cyclic);
  scan(0, kChunks, 3, true);
  EXPECT_NE(policy.next_use_distance(order[7]), kNeverUsed) << "it has not joined";
  const std::uint64_t whole = policy.order_report().replans;
  scan(200, 1700, 5, true);
  EXPECT_GT(policy.order_report().replans, whole);
  EXPECT_EQ(policy.next_use_distance(order[50]), kNeverUsed) << "the path is still the whole order";
  scan(0, kChunks, 2, true);
  EXPECT_NE(policy.next_use_distance(order[50]), kNeverUsed);
  std::uint32_t random = 1;
  for (std::uint32_t i = 0; i < 4 * kChunks; ++i) {
    random = random * 1664525U + 1013904223U;
    read((random >> 8) % kChunks);
  }
  EXPECT_EQ(policy.order_report().mode, Mode::recency);
  for (ChunkId i = 0; i < kChunks; ++i)
    order[i] = i * 11 % kChunks;
  scan(0, kChunks, 4, true);
  EXPECT_EQ(policy.order_report().mode, Mode::cyclic);
  EXPECT_EQ(allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Policies, Allocation, testing::ValuesIn(policy_names()),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace resid

// I-13: nothing that the fault thread or a fetch worker calls may allocate.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "policy/policy.hpp"

namespace {
std::size_t allocations = 0;
}

// Not inlined: gcc would take free() of what operator new returned for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

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
    }
  }
  EXPECT_EQ(allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Policies, Allocation, testing::ValuesIn(policy_names()),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace resid

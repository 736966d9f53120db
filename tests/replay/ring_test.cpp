// The ring that carries events out of the pager.

#include "trace/ring.hpp"

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace resid {
namespace {

std::unique_ptr<TraceRing> ring_of(TraceKind kind) {
  auto ring = std::make_unique<TraceRing>();
  ring->wanted = TraceRing::bit(kind);
  ring->start_ns = 1000;
  return ring;
}

TEST(TheRing, GivesEventsBackInOrder) {
  auto ring = ring_of(TraceKind::fault);
  ring->push(TraceKind::fault, 1500, 7, 1);
  ring->push(TraceKind::fault, 900, 8, 0);  // before the start: time 0
  std::array<TraceEvent, 4> out;
  ASSERT_EQ(ring->pop(out), 2U);
  EXPECT_EQ(out[0].record, (TraceRecord{500, 7, 1}));
  EXPECT_EQ(out[1].record, (TraceRecord{0, 8, 0}));
  EXPECT_EQ(ring->pop(out), 0U);
}

TEST(TheRing, TakesOnlyWhatIsWanted) {
  auto ring = ring_of(TraceKind::victim);
  ring->push(TraceKind::fault, 1500, 7, 0);
  std::array<TraceEvent, 4> out;
  EXPECT_EQ(ring->pop(out), 0U);
}

TEST(TheRing, DropsAndCountsWhenItIsFull) {
  auto ring = ring_of(TraceKind::fetch);
  for (std::uint32_t i = 0; i < TraceRing::kEvents + 5; ++i)
    ring->push(TraceKind::fetch, 2000, i, 0);
  EXPECT_EQ(ring->dropped.load(), 5U);
  std::array<TraceEvent, 1> out;
  ASSERT_EQ(ring->pop(out), 1U);
  EXPECT_EQ(out[0].record.chunk, 0U);
  ring->push(TraceKind::fetch, 2000, 99, 0);  // there is room again
  EXPECT_EQ(ring->dropped.load(), 5U);
}

// The area is shared with a program that may write anything.
TEST(TheRing, NeverGivesMoreThanItHolds) {
  auto ring = ring_of(TraceKind::fetch);
  ring->pushed = std::uint64_t{1} << 62;
  std::vector<TraceEvent> out(2 * TraceRing::kEvents);
  EXPECT_LE(ring->pop(out), TraceRing::kEvents);
}

TEST(TheRing, LosesNothingBetweenTwoThreads) {
  auto ring = ring_of(TraceKind::fault);
  constexpr std::uint32_t kCount = 1'000'000;
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < kCount;) {
      if (ring->pushed - ring->popped == TraceRing::kEvents) {
        std::this_thread::yield();
        continue;
      }
      ring->push(TraceKind::fault, 1000 + i, i, i ^ 0x5555U);
      ++i;
    }
  });
  std::array<TraceEvent, 300> out;
  std::uint32_t next = 0;
  std::uint32_t wrong = 0;
  while (next < kCount) {
    const std::size_t n = ring->pop(out);
    for (std::size_t i = 0; i < n; ++i, ++next) {
      wrong += !(out[i].record == TraceRecord{next, next, next ^ 0x5555U});
    }
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(ring->dropped.load(), 0U);
}

}  // namespace
}  // namespace resid

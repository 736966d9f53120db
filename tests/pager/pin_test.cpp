// Pins: what is pinned stays, whatever the pressure; and pins cannot starve the pager.

#include <chrono>
#include <random>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

TEST(Pins, APinnedRangeIsFetchedAndSurvivesAScan) {
  const StoreFile store(32 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  auto pin = rig.pager->pin(rig.view + 5 * kChunk + 100, 2 * kChunk);  // touches chunks 5, 6, 7
  ASSERT_TRUE(pin) << pin.error().line();
  for (int pass = 0; pass < 3; ++pass)
    store.mismatches(rig.view, 0, store.bytes());
  for (const ChunkId c : {5U, 6U, 7U}) {
    EXPECT_TRUE(rig.pager->resident(c));
    EXPECT_FALSE(rig.pager->evict(c));
  }
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Pins, AReleasedPinCanBeEvicted) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  {
    auto pin = rig.pager->pin(rig.view, kChunk);
    ASSERT_TRUE(pin);
    Pin moved = std::move(*pin);
    EXPECT_FALSE(rig.pager->evict(0));
  }
  EXPECT_TRUE(rig.pager->evict(0));
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 0U);
}

TEST(Pins, TwoPinsOfOneChunkCountOnceAndHoldUntilTheLastIsGone) {
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  auto a = rig.pager->pin(rig.view, kChunk);
  auto b = rig.pager->pin(rig.view, kChunk);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(rig.pager->impl()->budget.pinned, kChunk);
  *a = Pin();
  EXPECT_FALSE(rig.pager->evict(0));
  *b = Pin();
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 0U);
  EXPECT_TRUE(rig.pager->evict(0));
}

TEST(Pins, APinThatWouldStarveDemandIsRefusedAndChangesNothing) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  auto most = rig.pager->pin(rig.view, 6 * kChunk);
  ASSERT_TRUE(most) << most.error().line();
  auto more = rig.pager->pin(rig.view + 7 * kChunk, kChunk);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().status, Status::infeasible);
  EXPECT_EQ(exit_code(more.error().status), 4);
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 6 * kChunk);
  // With two chunks left everything can still be read.
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Pins, ARangeOutsideAnyViewIsRefused) {
  const StoreFile store(4 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  int x = 0;
  EXPECT_FALSE(rig.pager->pin(&x, sizeof x));
  EXPECT_FALSE(rig.pager->pin(rig.view + 3 * kChunk, 2 * kChunk));
}

TEST(Pins, ALengthThatWrapsRoundIsRefused) {
  const StoreFile store(4 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  EXPECT_FALSE(rig.pager->pin(rig.view + kChunk, ~0ULL));
}

TEST(Pins, AStoreWithLargerChunksIsRefusedWhenPinsLeaveNoRoomForTwo) {
  const StoreFile store(16 * kChunk);
  const StoreFile other(16 * kChunk, 2);
  Rig rig(store, eager(8 * kChunk), kChunk);
  auto most = rig.pager->pin(rig.view, 6 * kChunk);
  ASSERT_TRUE(most) << most.error().line();
  auto plan = ChunkPlan::uniform(other.bytes(), 4 * kChunk);
  ASSERT_TRUE(plan);
  auto added = rig.pager->add_region(other.fd(), other.path(), raw_file(other), std::move(*plan));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().status, Status::budget_too_small);
}

int slow_read(std::uint64_t, std::uint64_t, bool) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return 0;
}

TEST(Pins, APinUnderWayKeepsItsClaimWhenAnotherOnTheSameChunkIsReleased) {
  const StoreFile store(16 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  auto first = rig.pager->pin(rig.view + 5 * kChunk, kChunk);
  ASSERT_TRUE(first);
  g_read_fault_hook.store(&slow_read);
  std::thread longer([&] {
    auto all = rig.pager->pin(rig.view, 6 * kChunk);
    EXPECT_TRUE(all);
  });
  const auto held = [&] {
    const Lock lock(rig.pager->impl()->mutex);
    return rig.pager->impl()->budget.held();
  };
  while (held() == kChunk)
    std::this_thread::yield();
  *first = Pin();
  // 6 of 8 chunks are claimed by the pin under way; two must stay free.
  EXPECT_FALSE(rig.pager->pin(rig.view + 8 * kChunk, kChunk));
  longer.join();
  g_read_fault_hook.store(nullptr);
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 0U);
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Pins, ManyThreadsPinAndReadUnderPressureAndTheAccountComesOutEven) {
  const StoreFile store(64 * kChunk);
  Rig rig(store, eager(16 * kChunk), kChunk);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> pinned{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < 150; ++i) {
        const std::uint64_t c = random() % 62;
        if (t < 3) {
          auto pin = rig.pager->pin(rig.view + c * kChunk, 2 * kChunk);
          if (!pin) continue;  // refused while others hold theirs
          pinned.fetch_add(1);
          if (!rig.pager->resident(static_cast<ChunkId>(c))) wrong += 1;
          wrong += store.mismatches(rig.view, c * kChunk, (c + 2) * kChunk);
        } else {
          wrong += store.mismatches(rig.view, c * kChunk, c * kChunk + kPage);
        }
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(pinned.load(), 0U);
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 0U);
  rig.expect_clean(16 * kChunk, kChunk);
}

}  // namespace
}  // namespace resid::test

// Pins: what is pinned stays, whatever the pressure; and pins cannot starve the pager.

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

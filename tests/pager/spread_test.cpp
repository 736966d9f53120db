// The plan at work: what a scan reads, tripwires, large chunks, budgets that change, no order.

#include <sys/mman.h>

#include <atomic>
#include <random>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;
constexpr std::uint64_t kChunks = 96;

PagerConfig spread(std::uint64_t budget, std::uint32_t depth) {
  PagerConfig config = eager(budget, "layer_order_spread");
  config.prefetch_depth = depth;
  return config;
}

class Depth : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Depth, ::testing::Values(0U, 1U, 2U, 8U));

TEST_P(Depth, AScanReadsWhatIsMissingAndAWindow) {
  const StoreFile store(kChunks * kChunk);
  for (const std::uint64_t stay : {24U, 48U, 72U}) {
    Rig rig(store, spread(stay * kChunk, GetParam()), kChunk);
    std::uint64_t before = 0;
    for (int pass = 0; pass < 8; ++pass) {
      before = rig.stats.bytes_fetched.load();
      EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
      rig.settle();
    }
    const std::uint64_t pass = rig.stats.bytes_fetched.load() - before;
    EXPECT_GE(pass, (kChunks - stay) * kChunk) << stay;
    EXPECT_EQ(rig.pager->order_report().mode, OrderReport::Mode::cyclic);
    EXPECT_EQ(rig.pager->order_report().fallbacks, 0U);
    rig.expect_clean(stay * kChunk, kChunk);
    // The window is three runs at most here, a run a chunk and two seams; one chunk of rounding;
    // and what a slow machine makes of it. Deeper than the window, some of what was read ahead
    // gives way again; how much is chance. By age it would be every chunk.
    if (GetParam() > 2) continue;
    EXPECT_LE(pass, (kChunks - stay + 12) * kChunk)
        << stay << ": issued " << rig.stats.prefetch_issued << " late " << rig.stats.prefetch_late
        << " wasted " << rig.stats.prefetch_wasted << " declined " << rig.stats.prefetch_declined
        << " pins broken " << rig.stats.prefetch_pin_broken << " plan broken "
        << rig.stats.plan_broken << " wanted back " << rig.stats.wanted_back;
  }
}

TEST_P(Depth, TwoReadersAtTwoPlacesReadWhatTheyShouldAndNoFallBack) {
  const StoreFile store(kChunks * kChunk);
  Rig rig(store, spread(60 * kChunk, GetParam()), kChunk);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (const std::uint64_t start : {std::uint64_t{0}, kChunks / 2}) {
    readers.emplace_back([&, start] {
      for (std::uint64_t i = 0; i < 6 * kChunks; ++i) {
        const std::uint64_t at = (start + i) % kChunks * kChunk;
        wrong += store.mismatches(rig.view, at, at + kChunk);
      }
    });
  }
  for (std::thread& t : readers)
    t.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(rig.pager->order_report().fallbacks, 0U);
  rig.expect_clean(60 * kChunk, kChunk);
}

TEST(Spread, TripwiresTellAndReadNothing) {
  const StoreFile store(kChunks * kChunk);
  Rig rig(store, spread(90 * kChunk, 0), kChunk);
  // Rationed by what a pass takes: one of some tens of milliseconds has a few.
  for (int pass = 0; pass < 40; ++pass) {
    for (std::uint64_t at = 0; at < store.bytes(); at += kChunk) {
      ASSERT_EQ(store.mismatches(rig.view, at, at + kChunk), 0U);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }
  rig.settle();
  EXPECT_GT(rig.stats.armed.load(), 0U);
  EXPECT_GT(rig.stats.tripwires.load(), 0U);
  EXPECT_LE(rig.stats.tripwires.load(), rig.stats.armed.load());
  EXPECT_LE(rig.stats.bytes_fetched.load(), (kChunks + 40 * (kChunks - 90 + 3)) * kChunk);
  rig.expect_clean(90 * kChunk, kChunk);
}

TEST(Spread, ArmedByHandAChunkIsRightInEveryView) {
  for (const std::uint64_t chunk : {kChunk, 2 * MiB}) {
    const StoreFile store(12 * MiB + 777);
    Rig rig(store, spread(9 * MiB, 0), chunk);
    const std::uint8_t* second = rig.map(rig.region, 8 * MiB, 4096);  // not aligned like the file
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
      for (std::uint64_t at = 4096; at < 8 * MiB; at += 8) {
        ASSERT_EQ(std::memcmp(second + at - 4096, rig.view + at, 8), 0) << at;
      }
      auto& p = *rig.pager->impl();
      for (ChunkId id = 0; id < rig.pager->info(rig.region).chunks; ++id) {
        {
          const Lock lock(p.mutex);
          if (p.state(id).phase() != ChunkPhase::resident) continue;
          p.state(id).set_armed(lock, true);
        }
        ::madvise(const_cast<std::uint8_t*>(rig.view) + id * chunk, kPage, MADV_DONTNEED);
      }
    }
    EXPECT_GT(rig.stats.tripwires.load(), 0U);
    rig.expect_clean(9 * MiB, chunk);
  }
}

TEST(Spread, ABudgetThatChangesUnderAReader) {
  const StoreFile store(kChunks * kChunk);
  Rig rig(store, spread(80 * kChunk, 2), kChunk);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::thread reader([&] {
    while (!stop.load())
      wrong += store.mismatches(rig.view, 0, store.bytes());
  });
  for (const std::uint64_t chunks : {20U, 90U, 8U, 50U, 96U, 4U, 70U}) {
    ASSERT_TRUE(rig.pager->set_budget(chunks * kChunk).has_value()) << chunks;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_LE(rig.pager->resident_bytes(), chunks * kChunk);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0U);
  rig.expect_clean(96 * kChunk, kChunk);
}

TEST(Spread, ReadsWithoutAnOrderGoByAgeAndTheReportSaysSo) {
  constexpr std::uint64_t kSmall = 8192;  // many of them: in a short order nothing is far away
  const StoreFile store(1024 * kSmall);
  Rig rig(store, spread(400 * kSmall, 2), kSmall);
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t at = random() % 1024 * kSmall;
    ASSERT_EQ(store.mismatches(rig.view, at, at + kSmall), 0U);
  }
  rig.settle();
  EXPECT_GT(rig.pager->order_report().fallbacks, 0U);
  EXPECT_GT(rig.stats.order_fallbacks.load(), 0U);
  rig.expect_clean(400 * kSmall, kSmall);
}

// Slots of two sizes: a large run must get one although small prefetches wait in all that would do.
TEST(Spread, TwoRegionsOfDifferentChunks) {
  const StoreFile small(32 * kChunk, 1);
  const StoreFile large(12 * MiB, 2);
  Rig rig(small, spread(6 * MiB, 8), kChunk);
  const RegionId id = rig.add(large, 2 * MiB);
  const std::uint8_t* view = rig.map(id, large.bytes());
  for (int pass = 0; pass < 4; ++pass) {
    EXPECT_EQ(small.mismatches(rig.view, 0, small.bytes()), 0U);
    EXPECT_EQ(large.mismatches(view, 0, large.bytes()), 0U);
  }
  rig.expect_clean(6 * MiB, 2 * MiB);
}

}  // namespace
}  // namespace resid::test

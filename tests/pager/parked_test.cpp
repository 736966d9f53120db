// A prefetch that has been read and finds no room waits in its slot. Nobody else may wait for it.

#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

PagerConfig spread(std::uint64_t budget, std::uint32_t depth) {
  PagerConfig config = eager(budget, "layer_order_spread");
  config.prefetch_depth = depth;
  return config;
}

// A scan that has gone on for a while, so that the plan's part is resident and the window full.
void read_on(Rig& rig, std::uint64_t chunks) {
  for (int pass = 0; pass < 2; ++pass) {
    for (std::uint64_t i = 0; i < chunks; ++i)
      rig.store.mismatches(rig.view, i * kChunk, i * kChunk + 8);
  }
  rig.settle();
}

ChunkId parked(Rig& rig) {
  const Lock lock(rig.pager->impl()->mutex);
  const Slot* slot = rig.pager->impl()->staging.first_prefetch();
  return slot == nullptr ? kNoChunk : slot->head;
}

TEST(Parked, IsPinned) {
  const StoreFile store(64 * kChunk);
  Rig rig(store, spread(8 * kChunk, 4), kChunk);
  read_on(rig, 64);
  std::uint64_t at = 0;
  for (; at < 64 && parked(rig) == kNoChunk; ++at) {
    rig.store.mismatches(rig.view, at * kChunk, at * kChunk + 8);
    rig.settle();
  }
  const ChunkId chunk = parked(rig);
  if (chunk == kNoChunk) GTEST_SKIP() << "no prefetch had to wait";
  const auto pin = rig.pager->pin(rig.view + chunk * kChunk, kChunk);
  ASSERT_TRUE(pin.has_value()) << pin.error().line();
  EXPECT_EQ(store.mismatches(rig.view, chunk * kChunk, (chunk + 1) * kChunk), 0U);
}

TEST(Parked, HintsBeyondTheBudgetAreDroppedAndSettle) {
  for (const char* policy : {"lru", "layer_order_declared", "layer_order_spread"}) {
    const StoreFile store(64 * kChunk);
    Rig rig(store, eager(8 * kChunk, policy), kChunk);
    read_on(rig, 16);
    rig.pager->will_need(rig.view + 20 * kChunk, 40 * kChunk);
    rig.settle();
    EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
    rig.expect_clean(8 * kChunk, kChunk);
  }
}

TEST(Parked, GoesOnWhenTheBudgetIsRaised) {
  const StoreFile store(64 * kChunk);
  Rig rig(store, eager(8 * kChunk, "layer_order_declared"), kChunk);
  read_on(rig, 8);
  rig.pager->will_need(rig.view + 8 * kChunk, 2 * kChunk);
  rig.settle();
  ASSERT_TRUE(rig.pager->set_budget(32 * kChunk).has_value());
  rig.settle();
  EXPECT_EQ(parked(rig), kNoChunk);
}

// Slots of two sizes: prefetches fill all the large ones and find no room; a large demand comes.
TEST(Parked, GivesWayToADemandThatFitsNowhereElse) {
  const StoreFile small(64 * kChunk, 1);
  const StoreFile large(24 * MiB, 2);
  for (const char* policy : {"layer_order_declared", "layer_order_spread"}) {
    PagerConfig config = eager(9 * MiB / 2, policy);
    config.prefetch_depth = 16;
    Rig rig(small, config, kChunk);
    const RegionId id = rig.add(large, 2 * MiB);
    const std::uint8_t* view = rig.map(id, large.bytes());
    for (int round = 0; round < 3; ++round) {
      rig.pager->will_need(view + 8 * MiB, 16 * MiB);
      rig.pager->will_need(rig.view, small.bytes());
      EXPECT_EQ(large.mismatches(view, 0, 6 * MiB), 0U);
      EXPECT_EQ(small.mismatches(rig.view, 0, small.bytes()), 0U);
      EXPECT_EQ(large.mismatches(view, 0, large.bytes()), 0U);
    }
    rig.expect_clean(9 * MiB / 2, 2 * MiB);
  }
}

TEST(Parked, APinOfAPageMakesNoNewPlan) {
  const StoreFile store(64 * kChunk);
  Rig rig(store, spread(40 * kChunk, 0), kChunk);
  read_on(rig, 64);
  const std::uint64_t before = rig.pager->order_report().replans;
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(rig.pager->pin(rig.view + kChunk, 8).has_value());
  EXPECT_EQ(rig.pager->order_report().replans, before);
}

// A limit on the size of files is the program's own affair; mappings are not files.
TEST(Filled, WhateverTheProgramsLimitOnFilesIs) {
  const StoreFile store(16 * MiB);
  Rig rig(store, eager(9 * MiB), 2 * MiB);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = MiB;
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::uint64_t wrong = store.mismatches(rig.view, 0, store.bytes());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(wrong, 0U);
  rig.expect_clean(9 * MiB, 2 * MiB);
}

}  // namespace
}  // namespace resid::test

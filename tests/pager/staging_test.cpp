// Slots: who gets one, in which order they are worked off, and that they grow under the reads.

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

struct Slots {
  explicit Slots(std::uint64_t run_bytes) { grow(run_bytes); }
  void grow(std::uint64_t run_bytes) {
    Staging::Slots made = Staging::make_slots(run_bytes, 1024 * MiB);
    staging.adopt(lock, made, run_bytes);
  }
  std::mutex mutex;
  Lock lock{mutex};
  Staging staging;
};

TEST(Staging, ASixteenthOfTheBudgetAndNoMoreThanSixteenMebibytes) {
  EXPECT_EQ(Staging::slots_for(64 * 1024, 1024 * MiB), 64U);
  EXPECT_EQ(Staging::slots_for(64 * 1024, 16 * MiB), 16U);
  EXPECT_EQ(Staging::slots_for(2 * MiB + 2 * kPage, 1024 * MiB), 7U);
  EXPECT_EQ(Staging::slots_for(2 * MiB + 2 * kPage, 8 * MiB), 4U);
  EXPECT_EQ(Staging::slots_for(64 * MiB, 1024 * MiB), 2U);
}

TEST(Staging, MemoryIsThereFromTheStartAndNoMoreThanAsked) {
  const Slots s(2 * MiB + 2 * kPage);
  EXPECT_EQ(s.staging.bytes(), 7 * (2 * MiB + 2 * kPage));
}

TEST(Staging, PrefetchLeavesSlotsForDemand) {
  Slots s(8 * MiB);
  ASSERT_NE(s.staging.take(s.lock, MiB, false), nullptr);
  EXPECT_EQ(s.staging.take(s.lock, MiB, false), nullptr);
  EXPECT_NE(s.staging.take(s.lock, MiB, true), nullptr);
  EXPECT_EQ(s.staging.take(s.lock, MiB, true), nullptr);
}

TEST(Staging, WhatIsReadFirstIsFilledInFirstAndWhatFindsNoRoomKeepsItsPlace) {
  Slots s(64 * 1024);
  Slot* a = s.staging.take(s.lock, kPage, false);
  Slot* b = s.staging.take(s.lock, kPage, false);
  s.staging.read_done(s.lock, *b);
  s.staging.read_done(s.lock, *a);
  EXPECT_EQ(s.staging.first_prefetch(), b);
  s.staging.begin_fill(s.lock, *b);
  EXPECT_EQ(s.staging.first_prefetch(), a);
  s.staging.put_back(s.lock, *b);
  EXPECT_EQ(s.staging.first_prefetch(), b);
  EXPECT_EQ(s.staging.reading(), 0U);
  EXPECT_EQ(s.staging.waiting(), 2U);
}

TEST(Staging, APrefetchThatIsWantedBecomesADemandAtEveryStage) {
  Slots s(64 * 1024);
  Slot* reading = s.staging.take(s.lock, kPage, false);
  Slot* staged = s.staging.take(s.lock, kPage, false);
  Slot* filling = s.staging.take(s.lock, kPage, false);
  s.staging.read_done(s.lock, *staged);
  s.staging.read_done(s.lock, *filling);
  s.staging.begin_fill(s.lock, *filling);
  for (Slot* slot : {reading, staged, filling})
    s.staging.make_demand(s.lock, *slot);
  EXPECT_EQ(s.staging.first_demand(), staged);
  s.staging.begin_fill(s.lock, *staged);
  s.staging.read_done(s.lock, *reading);
  EXPECT_EQ(s.staging.first_demand(), reading);
  s.staging.put_back(s.lock, *filling);
  EXPECT_EQ(s.staging.first_demand(), filling);
  EXPECT_EQ(s.staging.first_prefetch(), nullptr);
}

TEST(Staging, ASlotInUseGrowsWhenItIsGivenBack) {
  Slots s(8 * MiB);
  Slot* slot = s.staging.take(s.lock, MiB, true);
  std::uint8_t* memory = slot->area.data();
  s.grow(16 * MiB);
  EXPECT_EQ(slot->area.data(), memory);
  s.staging.read_done(s.lock, *slot);
  s.staging.begin_fill(s.lock, *slot);
  s.staging.give_back(s.lock, *slot);
  EXPECT_GE(slot->area.bytes(), 16 * MiB);
  EXPECT_EQ(s.staging.bytes(), 2 * 16 * MiB);
  EXPECT_NE(s.staging.take(s.lock, 16 * MiB, true), nullptr);
}

TEST(Staging, ARunThatNoFreeSlotHoldsWaits) {
  Slots s(8 * MiB);
  Slot* small = s.staging.take(s.lock, MiB, true);
  s.grow(16 * MiB);
  EXPECT_NE(s.staging.take(s.lock, 16 * MiB, true), nullptr);
  EXPECT_EQ(s.staging.take(s.lock, 16 * MiB, true), nullptr);
  EXPECT_NE(small, nullptr);
}

}  // namespace
}  // namespace resid::test

// The workload's threads, over plain memory.

#include "replay/driver.hpp"

#include <cstring>
#include <mutex>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "replay_support.hpp"

namespace resid {
namespace {

using test::GeneratedStore;
using test::MiB;

// Memory that holds the store, and a log of what the driver said.
class LoggingArm final : public Arm {
 public:
  explicit LoggingArm(std::uint64_t bytes) : words_(bytes / 8) {
    for (std::uint64_t i = 0; i < words_.size(); ++i)
      words_[i] = generated_word(i);
  }
  const std::uint8_t* view() const override {
    return reinterpret_cast<const std::uint8_t*>(words_.data());
  }
  void before(std::uint32_t chunk) override {
    started.push_back(chunk);
    most_ahead = std::max(most_ahead, started.size() - consumed_.size());
  }
  void consumed(std::uint32_t chunk) override { consumed_.push_back(chunk); }
  std::uint64_t bytes_read() const override { return consumed_.size(); }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> started;
  std::vector<std::uint32_t> consumed_;
  std::size_t most_ahead = 0;
};

struct Drive {
  Drive(const Workload& w, const DriveConfig& config, Arm& arm)
      : references(w.sequence.size() * config.passes), read_by_pass(config.passes) {
    record.references = references.data();
    record.read_by_pass = read_by_pass.data();
    auto driver = Driver::make(w, config, arm, record);
    if (!driver) {
      ADD_FAILURE() << driver.error().line();
      return;
    }
    (*driver)->run();
  }
  std::vector<TraceRecord> references;
  std::vector<std::uint64_t> read_by_pass;
  DriveRecord record;
};

class DriverTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 4 * MiB;
  static constexpr std::uint32_t kChunks = 64;
  GeneratedStore store_{kBytes};
  Workload workload_ = Workload::scan(store_.path(), kBytes / kChunks).value();
};

TEST_F(DriverTest, ConsumesEveryByteOfEveryPass) {
  LoggingArm arm(kBytes);
  DriveConfig config;
  config.passes = 3;
  const Drive run(workload_, config, arm);
  EXPECT_EQ(run.record.mismatches, 0U);
  EXPECT_EQ(run.record.consumed, 3 * kChunks);
  EXPECT_EQ(arm.consumed_.size(), 3 * kChunks);
  EXPECT_EQ(run.read_by_pass, (std::vector<std::uint64_t>{64, 128, 192}));
}

// A byte anywhere, seen by whichever thread has its slice, in every pass.
TEST_F(DriverTest, NoticesAnyWrongByte) {
  for (const std::uint32_t threads : {1U, 3U}) {
    for (std::uint64_t at = 5; at < kBytes; at += kBytes / 7) {
      LoggingArm arm(kBytes);
      reinterpret_cast<std::uint8_t*>(arm.words_.data())[at] ^= 1;
      DriveConfig config;
      config.passes = 2;
      config.threads = threads;
      const Drive run(workload_, config, arm);
      EXPECT_EQ(run.record.mismatches, 2U) << "byte " << at << ", " << threads << " threads";
      EXPECT_EQ(run.record.first_mismatch, at / (kBytes / kChunks));
    }
  }
}

// Another page's bytes, and a hole's zeros, are what a broken pager would show.
TEST_F(DriverTest, NoticesAPageOfAnotherPlaceAndAHole) {
  LoggingArm swapped(kBytes);
  std::swap_ranges(swapped.words_.begin(), swapped.words_.begin() + 512,
                   swapped.words_.begin() + 512);
  DriveConfig config;
  config.passes = 1;
  EXPECT_EQ(Drive(workload_, config, swapped).record.mismatches, 1U);
  LoggingArm hole(kBytes);
  std::memset(hole.words_.data() + 512 * 40, 0, 4096);
  EXPECT_EQ(Drive(workload_, config, hole).record.mismatches, 1U);
}

TEST_F(DriverTest, RecordsFirstTouchesInTheOrderOfTheSequence) {
  for (const std::uint32_t threads : {1U, 2U, 5U}) {
    for (const std::uint32_t lookahead : {0U, 3U, 1000U}) {
      LoggingArm arm(kBytes);
      DriveConfig config;
      config.passes = 2;
      config.threads = threads;
      config.lookahead = lookahead;
      const Drive run(workload_, config, arm);
      ASSERT_EQ(run.record.started, 2 * kChunks);
      for (std::uint64_t i = 0; i < 2 * kChunks; ++i) {
        EXPECT_EQ(run.references[i].chunk, i % kChunks);
        EXPECT_EQ(arm.started[i], i % kChunks);
        EXPECT_EQ(arm.consumed_[i], i % kChunks);
        EXPECT_LT(run.references[i].detail, threads);
        if (i > 0) {
          EXPECT_GE(run.references[i].time_ns, run.references[i - 1].time_ns);
        }
      }
      EXPECT_LE(arm.most_ahead, lookahead + 1);
    }
  }
}

TEST_F(DriverTest, SignalsWhenThread0IsDoneIfToldSo) {
  LoggingArm arm(kBytes);
  DriveConfig config;
  config.passes = 2;
  config.threads = 2;
  config.lookahead = 8;
  config.signal = ConsumptionSignal::thread0;
  const Drive run(workload_, config, arm);
  ASSERT_EQ(arm.consumed_.size(), 2 * kChunks);
  for (std::uint64_t i = 0; i < 2 * kChunks; ++i)
    EXPECT_EQ(arm.consumed_[i], i % kChunks);
}

TEST_F(DriverTest, ComputesForAsLongAsItIsTold) {
  LoggingArm arm(kBytes);
  DriveConfig config;
  config.passes = 1;
  config.compute_ns_per_mib = 5'000'000;
  const Drive run(workload_, config, arm);
  EXPECT_GE(run.record.wall_ns, 4 * 5'000'000U);
}

// Threads that were made and never let go end with their driver.
TEST_F(DriverTest, GoesAwayWithoutHavingRun) {
  LoggingArm arm(kBytes);
  DriveConfig config;
  config.threads = 4;
  std::vector<TraceRecord> references(kChunks * config.passes);
  std::vector<std::uint64_t> read_by_pass(config.passes);
  DriveRecord record;
  record.references = references.data();
  record.read_by_pass = read_by_pass.data();
  { ASSERT_TRUE(Driver::make(workload_, config, arm, record)); }
  EXPECT_EQ(record.started, 0U);
}

TEST_F(DriverTest, StopsAtTheNextChunk) {
  for (const std::uint32_t threads : {1U, 3U}) {
    LoggingArm arm(kBytes);
    std::atomic<bool> stop{true};
    DriveConfig config;
    config.threads = threads;
    config.lookahead = 2;
    config.stop = &stop;
    const Drive run(workload_, config, arm);
    EXPECT_EQ(run.record.consumed, 0U);
  }
}

TEST(Slices, CoverAChunkOnce) {
  for (const std::uint32_t pages : {1U, 2U, 7U, 512U}) {
    for (const std::uint32_t threads : {1U, 2U, 3U, 8U}) {
      const Chunk chunk{.offset = 40960, .bytes = pages * 4096};
      std::uint64_t next = 10;
      for (std::uint32_t t = 0; t < threads; ++t) {
        const PageRange range = slice(chunk, t, threads);
        EXPECT_EQ(range.begin, next);
        next = range.end;
      }
      EXPECT_EQ(next, 10U + pages);
    }
  }
}

}  // namespace
}  // namespace resid

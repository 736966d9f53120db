// Misses of a cyclic scan of n equal chunks with k resident, through the pager's own sequence of
// calls. No policy misses fewer than n - k a pass: that many chunks are absent when it starts.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "policy/policy.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kChunks = 500;
constexpr std::uint32_t kWarmPasses = 2;  // one to learn, one to settle
constexpr std::uint32_t kMeasuredPasses = 4;

enum class Signal {
  faults,     // nothing but demand faults: a program that knows nothing of us
  every_use,  // every use is signalled, before it
  after_use,  // every use is signalled, when the reader is done with the chunk
};

struct Scan {
  std::string_view policy;
  std::uint32_t resident = 0;  // k
  std::uint32_t readers = 1;
  bool jitter = false;  // readers come late by a random time
  bool protect = false;
  std::uint32_t prefetch = 0;  // chunks of upcoming() fetched after every fault
  Signal signal = Signal::faults;
};

struct Outcome {
  std::uint32_t most = 0;  // fetches of the worst measured pass, demand and prefetch
  double mean = 0;         // of the measured passes
  bool infeasible = false;
};

// The pager in small: demand paging, one fetch at a time.
class Machine {
 public:
  explicit Machine(const Scan& scan) : scan_(scan), resident_(kChunks), held_(kChunks) {
    auto made = make_policy(scan.policy);
    if (made) policy_ = std::move(*made);
    policy_->grow(std::vector<std::uint32_t>(kChunks, 4096));
    // Ids are no help: the order is a permutation of them.
    for (ChunkId i = 0; i < kChunks; ++i)
      order_.push_back(i * 137 % kChunks);
    policy_->declare_sequence(order_);
    policy_->set_protect_current(scan.protect);
    if (scan.signal == Signal::after_use) policy_->set_signal_mode(SignalMode::after_use);
  }

  Outcome run() {
    struct Reader {
      ChunkId holds = kNoChunk;
      ChunkId takes = kNoChunk;
    };
    std::vector<Reader> readers(scan_.readers);
    std::mt19937 random(12345);
    Outcome outcome;
    const std::uint64_t end = std::uint64_t{kChunks} * (kWarmPasses + kMeasuredPasses);
    std::uint64_t counter = 0;  // shared by the readers
    std::uint64_t pass_start = 0;
    const auto end_pass = [&] {
      if (counter > std::uint64_t{kChunks} * kWarmPasses) {
        const auto fetched = static_cast<std::uint32_t>(fetches_ - pass_start);
        outcome.most = std::max(outcome.most, fetched);
        outcome.mean += static_cast<double>(fetched) / kMeasuredPasses;
      }
      pass_start = fetches_;
    };
    while (!infeasible_) {
      // In turn, or whichever the scheduler likes.
      Reader& reader = readers[scan_.jitter ? random() % readers.size() : counter % readers.size()];
      if (reader.takes == kNoChunk) {
        if (counter != 0 && counter % kChunks == 0) end_pass();
        if (counter == end) break;
        if (reader.holds != kNoChunk) release(reader.holds);
        reader.holds = kNoChunk;
        reader.takes = order_[counter++ % kChunks];
        if (scan_.jitter) continue;
      }
      touch(reader.takes);
      reader.holds = std::exchange(reader.takes, kNoChunk);
    }
    outcome.infeasible = infeasible_;
    return outcome;
  }

 private:
  void touch(ChunkId chunk) {
    if (scan_.signal == Signal::every_use) policy_->on_access(chunk);
    if (!resident_[chunk]) {
      policy_->on_fault(chunk);
      if (scan_.signal == Signal::faults) policy_->on_access(chunk);
      if (!fetch(chunk)) infeasible_ = true;
      if (infeasible_) return;
      policy_->candidate(chunk);
      std::vector<ChunkId> ahead(scan_.prefetch);
      ahead.resize(policy_->upcoming(ahead));
      for (const ChunkId next : ahead) {
        if (!resident_[next] && fetch(next)) policy_->candidate(next);
      }
    }
    policy_->withdraw(chunk);
    held_[chunk] = true;
  }

  void release(ChunkId chunk) {
    held_[chunk] = false;
    if (scan_.signal == Signal::after_use) policy_->on_access(chunk);
    policy_->candidate(chunk);
  }

  bool fetch(ChunkId chunk) {
    if (used_ == scan_.resident) {
      const ChunkId victim = policy_->select_victim();
      if (victim == kNoChunk) return false;
      EXPECT_TRUE(resident_[victim] && !held_[victim]);
      policy_->withdraw(victim);
      resident_[victim] = false;
      --used_;
    }
    resident_[chunk] = true;
    ++used_;
    ++fetches_;
    return true;
  }

  Scan scan_;
  std::unique_ptr<Policy> policy_;
  std::vector<ChunkId> order_;
  std::vector<bool> resident_;
  std::vector<bool> held_;
  std::uint32_t used_ = 0;
  std::uint64_t fetches_ = 0;
  bool infeasible_ = false;
};

const char* name(Signal signal) {
  switch (signal) {
    case Signal::faults:
      return "faults";
    case Signal::every_use:
      return "before";
    case Signal::after_use:
      return "after";
  }
  return "";
}

void print_header() {
  std::printf("fetches a pass, n = %u\n%-21s %-7s %-7s %-8s |%8s%8s%8s%8s%8s | most over n - k\n",
              kChunks, "policy", "readers", "signal", "prefetch", "least k", "k=50", "k=250",
              "k=450", "k=495");
}

// Prints one line of the table (means) and demands, for k from `least` to n, at most n - k +
// `slack` fetches in every measured pass. All k near both ends, where the windows matter, and every
// `stride`-th between.
void expect_near_floor(Scan scan, std::uint32_t least, std::uint32_t slack,
                       std::uint32_t stride = 10) {
  std::string row;
  std::int64_t worst = -std::int64_t{kChunks};
  std::uint32_t worst_k = 0;
  for (std::uint32_t k = least; k <= kChunks; ++k) {
    if (k > 40 && k < kChunks - 20 && k % stride != 0) continue;
    scan.resident = k;
    const Outcome outcome = Machine(scan).run();
    ASSERT_FALSE(outcome.infeasible) << "k = " << k;
    EXPECT_LE(outcome.most, kChunks - k + slack) << "k = " << k;
    const std::int64_t over = std::int64_t{outcome.most} - (kChunks - k);
    if (over > worst) {
      worst = over;
      worst_k = k;
    }
    if (k == least || k == 50 || k == 250 || k == 450 || k == 495) {
      std::array<char, 32> cell{};
      std::snprintf(cell.data(), cell.size(), "%8.1f", outcome.mean);
      row += cell.data();
    }
  }
  std::printf("%-21s %-7s %-7s %-8u |%s | %lld at k=%u%s\n", std::string(scan.policy).c_str(),
              (std::to_string(scan.readers) + (scan.jitter ? " late" : "")).c_str(),
              name(scan.signal), scan.prefetch, row.c_str(), static_cast<long long>(worst), worst_k,
              scan.protect ? ", protect current" : "");
}

Scan scan_of(std::string_view policy) {
  Scan scan;
  scan.policy = policy;
  return scan;
}

class OrderedScan : public testing::TestWithParam<std::string_view> {
 protected:
  static void SetUpTestSuite() { print_header(); }
  Scan scan_ = scan_of(GetParam());
};

TEST_P(OrderedScan, misses_n_minus_k_plus_1) {
  expect_near_floor(scan_, 2, 1, 1);
}

TEST_P(OrderedScan, misses_n_minus_k_plus_3_when_the_current_chunk_is_protected) {
  scan_.protect = true;
  expect_near_floor(scan_, 2, 3);
}

// A held chunk cannot be given up, so each further reader takes one chunk out of the choice.
TEST_P(OrderedScan, misses_one_more_for_each_further_reader) {
  for (const std::uint32_t readers : {2U, 4U}) {
    scan_.readers = readers;
    expect_near_floor(scan_, readers + 1, readers);
  }
}

// Each reader takes the next chunk and touches it a random time later, while others go on. What is
// just behind the position is furthest from use, and may be given up before a late reader has come
// to it: that is the price. It stays a few chunks a pass, far from the n of LRU.
TEST_P(OrderedScan, misses_little_more_when_readers_come_late) {
  scan_.jitter = true;
  scan_.readers = 2;
  expect_near_floor(scan_, 3, 12);
  scan_.readers = 4;
  expect_near_floor(scan_, 5, kChunks / 20);
}

TEST_P(OrderedScan, fetches_little_more_when_prefetch_hides_the_faults) {
  scan_.prefetch = 2;
  expect_near_floor(scan_, 8, 8);
}

INSTANTIATE_TEST_SUITE_P(Policies, OrderedScan,
                         testing::Values("layer_order_learned", "layer_order_declared"),
                         [](const auto& each) { return std::string(each.param); });

TEST(DeclaredScan, misses_n_minus_k_plus_1_with_a_signal_for_every_use) {
  Scan scan = scan_of("layer_order_declared");
  for (const Signal signal : {Signal::every_use, Signal::after_use}) {
    scan.signal = signal;
    expect_near_floor(scan, 2, 1);
  }
}

TEST(LruScan, misses_every_chunk_whenever_one_does_not_fit) {
  Scan scan = scan_of("lru");
  for (scan.resident = 1; scan.resident < kChunks; ++scan.resident) {
    const Outcome outcome = Machine(scan).run();
    ASSERT_EQ(outcome.most, kChunks) << "k = " << scan.resident;
    ASSERT_EQ(outcome.mean, kChunks) << "k = " << scan.resident;
  }
  std::printf("lru: %u for every k < n\n", kChunks);
}

}  // namespace
}  // namespace resid

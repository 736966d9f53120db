// Misses of a cyclic scan of n equal chunks with k resident, through the pager's own sequence of
// calls. No policy misses fewer than n - k a pass: that many chunks are absent when it starts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "policy/policy.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kChunks = 500;
constexpr std::uint32_t kWarmPasses = 4;
constexpr std::uint32_t kMeasuredPasses = 6;

struct Setup {
  std::string_view policy;
  std::uint32_t resident = 0;  // k
  std::uint32_t readers = 1;
  bool jitter = false;  // readers come late by a random time
  bool protect = false;
  std::uint32_t prefetch = 0;  // chunks of upcoming() fetched after every fault
};

struct Outcome {
  double fetches = 0;  // a pass, demand and prefetch
  double faults = 0;   // a pass
  bool infeasible = false;
};

// The pager in small: demand paging, one fetch at a time.
class Machine {
 public:
  explicit Machine(const Setup& setup) : setup_(setup), resident_(kChunks), held_(kChunks) {
    auto made = make_policy(setup.policy);
    if (made) policy_ = std::move(*made);
    policy_->grow(std::vector<std::uint32_t>(kChunks, 4096));
    // Ids are no help: the order is a permutation of them.
    for (ChunkId i = 0; i < kChunks; ++i)
      order_.push_back(i * 137 % kChunks);
    policy_->declare_sequence(order_);
    policy_->set_protect_current(setup.protect);
  }

  Outcome run() {
    struct Reader {
      ChunkId holds = kNoChunk;
      ChunkId takes = kNoChunk;
    };
    std::vector<Reader> readers(setup_.readers);
    std::mt19937 random(12345);
    Outcome outcome;
    const std::uint64_t end = std::uint64_t{kChunks} * (kWarmPasses + kMeasuredPasses);
    std::uint64_t counter = 0;  // shared by the readers
    while (counter < end && !infeasible_) {
      if (counter == std::uint64_t{kChunks} * kWarmPasses) {
        outcome.fetches = -static_cast<double>(fetches_);
        outcome.faults = -static_cast<double>(faults_);
      }
      // In turn, or whichever the scheduler likes.
      Reader& reader =
          readers[setup_.jitter ? random() % readers.size() : counter % readers.size()];
      if (reader.takes == kNoChunk) {
        if (reader.holds != kNoChunk) release(reader.holds);
        reader.holds = kNoChunk;
        reader.takes = order_[counter++ % kChunks];
        if (setup_.jitter) continue;
      }
      touch(reader.takes);
      reader.holds = std::exchange(reader.takes, kNoChunk);
    }
    outcome.fetches = (outcome.fetches + static_cast<double>(fetches_)) / kMeasuredPasses;
    outcome.faults = (outcome.faults + static_cast<double>(faults_)) / kMeasuredPasses;
    outcome.infeasible = infeasible_;
    return outcome;
  }

 private:
  void touch(ChunkId chunk) {
    if (!resident_[chunk]) {
      ++faults_;
      policy_->on_fault(chunk);
      policy_->on_access(chunk);
      if (!fetch(chunk)) infeasible_ = true;
      if (infeasible_) return;
      policy_->candidate(chunk);
      std::vector<ChunkId> ahead(setup_.prefetch);
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
    policy_->candidate(chunk);
  }

  bool fetch(ChunkId chunk) {
    if (used_ == setup_.resident) {
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

  Setup setup_;
  std::unique_ptr<Policy> policy_;
  std::vector<ChunkId> order_;
  std::vector<bool> resident_;
  std::vector<bool> held_;
  std::uint32_t used_ = 0;
  std::uint64_t fetches_ = 0;
  std::uint64_t faults_ = 0;
  bool infeasible_ = false;
};

// Prints one line of the table and, for every k from `least` to n, demands at most n - k + `slack`
// fetches a pass.
void expect_near_floor(Setup setup, std::uint32_t least, double slack) {
  std::string row;
  double worst = -1e9;
  std::uint32_t worst_k = 0;
  for (std::uint32_t k = least; k <= kChunks; ++k) {
    setup.resident = k;
    const Outcome outcome = Machine(setup).run();
    ASSERT_FALSE(outcome.infeasible) << "k = " << k;
    const double over = outcome.fetches - (kChunks - k);
    EXPECT_LE(over, slack) << "k = " << k;
    if (over > worst) {
      worst = over;
      worst_k = k;
    }
    if (k == least || k == 50 || k == 250 || k == 450 || k == 495 || k == kChunks) {
      char cell[64];
      std::snprintf(cell, sizeof cell, "  k=%u: %.1f", k, outcome.fetches);
      row += cell;
    }
  }
  std::printf("%-21s readers %u%s%s prefetch %u |%s | most over n-k: %.1f at k=%u\n",
              std::string(setup.policy).c_str(), setup.readers, setup.jitter ? " jitter" : "",
              setup.protect ? " protect" : "", setup.prefetch, row.c_str(), worst, worst_k);
}

class OrderedScan : public testing::TestWithParam<std::string_view> {};

TEST_P(OrderedScan, misses_n_minus_k_plus_1) {
  expect_near_floor({.policy = GetParam()}, 2, 1);
}

TEST_P(OrderedScan, misses_n_minus_k_plus_3_when_the_current_chunk_is_protected) {
  expect_near_floor({.policy = GetParam(), .protect = true}, 2, 3);
}

// A held chunk cannot be given up, so each further reader takes one chunk out of the choice.
TEST_P(OrderedScan, misses_one_more_for_each_further_reader) {
  expect_near_floor({.policy = GetParam(), .readers = 2}, 3, 2);
  expect_near_floor({.policy = GetParam(), .readers = 4}, 5, 4);
}

TEST_P(OrderedScan, misses_little_more_when_readers_come_late) {
  expect_near_floor({.policy = GetParam(), .readers = 2, .jitter = true}, 3, 8);
  expect_near_floor({.policy = GetParam(), .readers = 4, .jitter = true}, 5, 8);
}

TEST_P(OrderedScan, fetches_little_more_when_prefetch_hides_the_faults) {
  expect_near_floor({.policy = GetParam(), .prefetch = 2}, 8, 8);
}

INSTANTIATE_TEST_SUITE_P(Policies, OrderedScan,
                         testing::Values("layer_order_learned", "layer_order_declared"),
                         [](const auto& each) { return std::string(each.param); });

TEST(LruScan, misses_every_chunk_whenever_one_does_not_fit) {
  for (std::uint32_t k = 1; k < kChunks; ++k) {
    const Outcome outcome = Machine({.policy = "lru", .resident = k}).run();
    ASSERT_EQ(outcome.fetches, kChunks) << "k = " << k;
  }
  EXPECT_EQ(Machine({.policy = "lru", .resident = kChunks}).run().fetches, 0);
  std::printf("%-21s readers 1 prefetch 0 |  every k < n: %u\n", "lru", kChunks);
}

}  // namespace
}  // namespace resid

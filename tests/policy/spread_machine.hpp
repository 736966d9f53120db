#pragma once
// The pager in small, for the tests of layer_order_spread: demand paging, reading ahead into the
// window, tripwires, and of all reads only those signalled that a pager gets to know of.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

inline constexpr std::uint32_t kLargeChunk = 2U << 20;

struct DenseModel {
  std::vector<std::uint32_t> bytes;
  std::vector<ChunkId> order;
  std::uint64_t total = 0;
  std::uint64_t largest = 0;

  void name(ChunkId chunk) { order.push_back(chunk); }
  ChunkId add(std::uint32_t size) {
    bytes.push_back(size);
    total += size;
    largest = std::max<std::uint64_t>(largest, size);
    return static_cast<ChunkId>(bytes.size() - 1);
  }
};

inline DenseModel equal_chunks(std::uint32_t count) {
  DenseModel model;
  for (std::uint32_t i = 0; i < count; ++i)
    model.name(model.add(kLargeChunk));
  return model;
}

// As a plan cuts it: tensors in pieces, the last of them smaller, seams between the tensors, some
// of which are named again where the neighbour is read, norms of a few pages. The header, which the
// order does not name, comes last.
inline DenseModel dense_model(std::uint32_t layers) {
  DenseModel model;
  constexpr std::array<std::uint32_t, 7> kPieces{3, 1, 1, 3, 8, 8, 7};
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    ChunkId seam = kNoChunk;
    const ChunkId norm = model.add(4 * 4096);
    model.name(norm);
    for (const std::uint32_t pieces : kPieces) {
      if (seam != kNoChunk && pieces != 1) model.name(seam);  // else named once, before it
      for (std::uint32_t i = 0; i < pieces; ++i)
        model.name(model.add(kLargeChunk));
      model.name(model.add(4096 * (100 + 50 * pieces)));
      seam = model.add(4096);
      model.name(seam);
    }
  }
  return model;
}

struct MachineOptions {
  std::uint64_t budget = 0;
  std::uint64_t window = 3 * kLargeChunk;
  std::uint32_t prefetch = 0;   // chunks of upcoming() kept on their way
  std::uint32_t tripwires = 0;  // a cycle
  std::uint32_t keep = 2;       // what is being read stays (pager/current.cpp)
  bool declared = true;
  std::string_view policy = "layer_order_spread";
};

class SpreadMachine {
 public:
  SpreadMachine(const DenseModel& model, const MachineOptions& options)
      : model_(model), options_(options), chunks_(model.bytes.size()) {
    auto made = make_policy(options.policy);
    if (made) policy_ = std::move(*made);
    policy_->grow(model.bytes);
    policy_->set_room(options.budget, options.window);
    if (options.declared) policy_->declare_sequence(model.order);
    policy_->set_tripwires(options.tripwires);
  }

  void read(ChunkId chunk) {
    Chunk& c = chunks_[chunk];
    if (!c.resident) {
      policy_->on_fault(chunk);
      signal(chunk);
      fetch(chunk, true);
      policy_->candidate(chunk);
      keep(chunk);
      look_ahead();
    } else if (c.untouched) {
      c.untouched = false;
      std::erase(ahead_, chunk);
      policy_->candidate(chunk);
      signal(chunk);
      keep(chunk);
      look_ahead();
    } else if (c.armed) {
      c.armed = false;
      signal(chunk);
      look_ahead();
    }
  }
  void read_all(std::span<const ChunkId> chunks) {
    for (const ChunkId chunk : chunks)
      read(chunk);
  }
  // Bytes read from the store for these.
  std::uint64_t cost(std::span<const ChunkId> chunks) {
    const std::uint64_t before = fetched_;
    read_all(chunks);
    return fetched_ - before;
  }

  void set_budget(std::uint64_t budget) {
    options_.budget = budget;
    policy_->set_room(budget, options_.window);
    while (used_ > budget) {
      if (!make_room(true)) break;
    }
  }

  std::uint64_t fetched() const { return fetched_; }
  std::uint64_t signals() const { return signals_; }
  std::uint64_t armed() const { return armed_; }
  std::uint64_t demand() const { return demand_; }  // bytes
  OrderReport report() const { return policy_->order_report(); }
  Policy& policy() { return *policy_; }
  bool resident(ChunkId chunk) const { return chunks_[chunk].resident; }

 private:
  struct Chunk {
    bool resident = false;
    bool untouched = false;  // came ahead of need, and is pinned until it is read
    bool armed = false;
    bool kept = false;
  };

  void signal(ChunkId chunk) {
    ++signals_;
    policy_->on_access(chunk);
    std::array<ChunkId, 16> out{};
    for (;;) {
      const std::size_t n = policy_->to_arm(out);
      for (std::size_t i = 0; i < n; ++i) {
        if (!chunks_[out[i]].resident || chunks_[out[i]].armed) continue;
        chunks_[out[i]].armed = true;
        ++armed_;
      }
      if (n < out.size()) break;
    }
  }

  void look_ahead() {
    std::vector<ChunkId> next(options_.prefetch);
    next.resize(policy_->upcoming(next));
    for (const ChunkId chunk : next) {
      if (chunks_[chunk].resident) continue;
      if (ahead_.size() >= options_.prefetch) break;  // others are not read yet
      if (!fetch(chunk, false)) break;
      chunks_[chunk].untouched = true;
      ahead_.push_back(chunk);
    }
  }

  bool fetch(ChunkId chunk, bool demand) {
    const std::uint64_t bytes = model_.bytes[chunk];
    while (used_ + bytes > options_.budget) {
      if (make_room(demand)) continue;
      EXPECT_FALSE(demand) << "no room for a demand";
      return false;
    }
    used_ += bytes;
    fetched_ += bytes;
    if (demand) demand_ += bytes;
    chunks_[chunk].resident = true;
    return true;
  }

  bool make_room(bool demand) {
    const ChunkId victim = demand ? policy_->select_victim() : policy_->spent();
    if (victim != kNoChunk) {
      EXPECT_TRUE(chunks_[victim].resident && !chunks_[victim].kept && !chunks_[victim].untouched);
      policy_->withdraw(victim);
      chunks_[victim] = {};
      used_ -= model_.bytes[victim];
      return true;
    }
    if (!demand) return false;
    if (!ahead_.empty()) {
      chunks_[ahead_.front()].untouched = false;
      policy_->candidate(ahead_.front());
      ahead_.pop_front();
      return true;
    }
    if (kept_.empty()) return false;
    let_go();
    return true;
  }

  void keep(ChunkId chunk) {
    if (options_.keep == 0) return;
    while (kept_.size() >= options_.keep)
      let_go();
    policy_->withdraw(chunk);
    chunks_[chunk].kept = true;
    kept_.push_back(chunk);
  }
  void let_go() {
    chunks_[kept_.front()].kept = false;
    policy_->candidate(kept_.front());
    kept_.pop_front();
  }

  const DenseModel& model_;
  MachineOptions options_;
  std::unique_ptr<Policy> policy_;
  std::vector<Chunk> chunks_;
  std::deque<ChunkId> kept_;
  std::deque<ChunkId> ahead_;
  std::uint64_t used_ = 0;
  std::uint64_t fetched_ = 0;
  std::uint64_t demand_ = 0;
  std::uint64_t signals_ = 0;
  std::uint64_t armed_ = 0;
};

}  // namespace resid

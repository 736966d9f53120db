#pragma once
// Furthest next use, over an order that is declared (CyclicOrder) or learned (LearnedOrder).
//
// Victims, first to last: candidates outside the order, the least recently used first, since
// nothing says that they will be used at all; then the candidate whose next use is furthest. For a
// cyclic scan of n equal chunks with k resident this is Belady's choice: n - k misses a pass and at
// most one more.
//
// Sizes are not weighed. A chunk of a few KiB (a seam, a norm) costs a request of its own to fetch
// again, but gives way only in its turn, and all of them together are far below one large chunk:
// sparing them would gain little and cost the guarantee above.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "policy/age_queue.hpp"
#include "policy/policy.hpp"

namespace resid {

// A signal up to this many entries behind the position is a step back and moves nothing; a real
// backward jump is further. It covers what threads that share a tensor do to the order of their
// signals: every one is within one chunk of the place where it took its work, so eight threads may
// report up to seven entries late. Taken for a jump, such a step would send the position a whole
// cycle ahead, and the chunks about to be read would seem the ones furthest from use.
inline constexpr std::uint32_t kStepBack = 8;

template <class Order>
class OrderPolicy : public Policy {
 public:
  void grow(std::span<const std::uint32_t> bytes) override {
    const auto chunks = static_cast<std::uint32_t>(bytes.size());
    order_.grow(chunks);
    ages_.grow(chunks);
  }
  void set_protect_current(bool on) override { protect_ = on; }

  void candidate(ChunkId chunk) override {
    if (!known(chunk) || is_candidate(chunk)) return;
    ages_.arrive(chunk);
    admit(chunk);
  }

  void withdraw(ChunkId chunk) override {
    if (!known(chunk) || !is_candidate(chunk)) return;
    ages_.leave(chunk);
    if (ages_.contains(chunk)) {
      ages_.erase(chunk);
    } else {
      order_.erase(chunk);
    }
  }

  ChunkId select_victim() override {
    if (const ChunkId outside = ages_.oldest(); outside != kNoChunk) return outside;
    if (!protect_) return order_.furthest(mode_, kNoChunk, kNoChunk);
    const ChunkId current = order_.current(mode_);
    const ChunkId previous = order_.previous(mode_);
    const ChunkId victim = order_.furthest(mode_, current, previous);
    if (victim != kNoChunk || current == kNoChunk) return victim;
    // Only protected chunks are left, both at distance 0. They are a preference, not a pin.
    const bool has_current = order_.is_candidate(current);
    const bool has_previous = order_.is_candidate(previous);
    if (has_current && has_previous) return ages_.older(previous, current) ? previous : current;
    if (has_current) return current;
    return has_previous ? previous : kNoChunk;
  }

  ChunkId predict_next(ChunkId chunk) const override {
    return known(chunk) ? order_.next(chunk, mode_) : kNoChunk;
  }

  std::size_t upcoming(std::span<ChunkId> out) const override {
    return order_.upcoming(out, mode_);
  }

  std::int64_t next_use_distance(ChunkId chunk) const override {
    if (!known(chunk) || !order_.contains(chunk)) return kNeverUsed;
    if (protect_ && (chunk == order_.current(mode_) || chunk == order_.previous(mode_))) return 0;
    return order_.distance(chunk, mode_);
  }

 protected:
  // Ids that grow() has not made room for are ignored everywhere.
  bool known(ChunkId chunk) const { return chunk < ages_.chunks(); }
  bool is_candidate(ChunkId chunk) const {
    return ages_.contains(chunk) || order_.is_candidate(chunk);
  }
  void admit(ChunkId chunk) {
    if (order_.contains(chunk)) {
      order_.insert(chunk, mode_);
    } else {
      ages_.insert(chunk);
    }
  }

  Order order_;
  AgeQueue ages_;  // ages of all chunks; members: the candidates outside the order
  SignalMode mode_ = SignalMode::before_use;
  bool protect_ = false;
};

}  // namespace resid

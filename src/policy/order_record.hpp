#pragma once
// The order in which chunks signal for the first time, until the workload is seen to start over.
//
// Invariants:
//   R-1  A signal of a chunk that is on record, further back than a step back, may be the start of
//        the next cycle. It need not name the first entry: what is resident is silent.
//   R-2  It was the start when the signals that follow keep to the record. When a chunk follows
//        that is not on record, before some have, it was not: then that one signal was a repeat,
//        and the record goes on. Later, such a chunk was resident when the others went on record:
//        it is left out (and joins the order once there is one).
//   R-3  A record that keeps being contradicted is of no use and starts anew, at that chunk. So an
//        order that begins after a time of disorder is on record one cycle later.
//
// Only grow() allocates; every other call is O(1) but upcoming(), which is O(1) for each entry.

#include <cstdint>
#include <span>
#include <vector>

#include "policy/order_policy.hpp"
#include "policy/policy.hpp"

namespace resid {

class OrderRecord {
 public:
  void grow(std::uint32_t chunks) {
    if (chunks <= places_.size()) return;
    entries_.reserve(chunks);
    places_.resize(chunks, 0);
    entries_.resize(chunks, kNoChunk);
  }

  void restart() {
    size_ = cursor_ = confirmed_ = contradictions_ = 0;
    returned_ = false;
  }

  void note(ChunkId chunk) {
    if (!contains(chunk)) {
      if (returned_ && confirmed_ >= kBelieved) return;
      if (returned_ && contradicted(chunk)) return;
      returned_ = false;
      confirmed_ = 0;
      append(chunk);
      return;
    }
    const std::uint32_t place = places_[chunk];
    const std::uint32_t ahead = steps(cursor_, place);
    const std::uint32_t back = steps(place, cursor_);
    if (back <= kStepBack && (!returned_ || back < ahead || back == 0)) return;
    if (!returned_) {
      returned_ = true;
      confirmed_ = 0;
    } else if (ahead <= kReach) {
      ++confirmed_;
    } else {
      confirmed_ -= confirmed_ < kPenalty ? confirmed_ : kPenalty;
      if (contradicted(chunk)) return;
    }
    cursor_ = place;
  }

  // The record is one cycle, and that many signals of the next have confirmed it, or as many as the
  // record is long. Of ten signals one may have contradicted it.
  bool closed(std::uint32_t confirmations) const {
    return returned_ && confirmed_ > 0 &&
           confirmed_ >= (confirmations < size_ ? confirmations : size_);
  }
  std::span<const ChunkId> entries() const { return std::span(entries_).first(size_); }
  std::uint64_t restarts() const { return restarts_; }  // by R-3

  // What the record names next: nothing until the workload has started over.
  std::size_t upcoming(std::span<ChunkId> out) const {
    if (!returned_) return 0;
    std::size_t count = 0;
    for (std::uint32_t i = next(cursor_); count < out.size() && i != cursor_; i = next(i))
      out[count++] = entries_[i];
    return count;
  }

 private:
  static constexpr std::uint32_t kReach = 16;    // entries that may be silent between two signals
  static constexpr std::uint32_t kPenalty = 10;  // confirmations that a contradiction outweighs
  static constexpr std::uint32_t kBelieved = 4;  // confirmations
  static constexpr std::uint32_t kContradictions = 4;  // and one for every 16 entries

  // Of an entry that was valid before a restart the place is stale: both must agree, so that a
  // restart need not clear anything.
  bool contains(ChunkId chunk) const {
    return places_[chunk] < size_ && entries_[places_[chunk]] == chunk;
  }
  std::uint32_t next(std::uint32_t place) const { return place + 1 == size_ ? 0 : place + 1; }
  std::uint32_t steps(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + (size_ - from);
  }
  void append(ChunkId chunk) {
    cursor_ = places_[chunk] = size_;
    entries_[size_++] = chunk;
  }
  bool contradicted(ChunkId chunk) {
    if (++contradictions_ <= kContradictions + size_ / 16) return false;
    ++restarts_;
    restart();
    append(chunk);
    return true;
  }

  std::vector<std::uint32_t> places_;  // by chunk
  std::vector<ChunkId> entries_;
  std::uint32_t size_ = 0;
  std::uint32_t cursor_ = 0;  // the entry reached last
  std::uint32_t confirmed_ = 0;
  std::uint32_t contradictions_ = 0;
  std::uint64_t restarts_ = 0;
  bool returned_ = false;
};

}  // namespace resid

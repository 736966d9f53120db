#pragma once
// How long ago every chunk was last used, and the oldest of those that are members.
//
// A binary heap over the members, with each member's place in it, so that any member can leave or
// be renewed in O(log n). New stamps are always the largest, so joining after a use is O(1).
// Only grow() allocates.

#include <cstdint>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

class AgeQueue {
 public:
  // Makes room for chunk ids below `chunks`. On bad_alloc the queue is as it was.
  void grow(std::uint32_t chunks);
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(stamp_.size()); }

  // The chunk is being used now. Its age counts from here, member or not.
  void touch(ChunkId chunk);
  // The chunk becomes evictable. When it was not touched since it last was (see leave()) it came
  // without a fault, by prefetch, or a pin was lifted, and is as young as if it were used now:
  // otherwise a prefetched chunk would carry the age of its last eviction and be the first to go.
  void arrive(ChunkId chunk);
  // The chunk stops being evictable.
  void leave(ChunkId chunk) { stamp_[chunk] &= ~std::uint64_t{1}; }
  // Whether `a` was used longer ago than `b`; a chunk never used is the oldest, smaller ids first.
  bool older(ChunkId a, ChunkId b) const {
    return stamp_[a] != stamp_[b] ? stamp_[a] < stamp_[b] : a < b;
  }

  bool contains(ChunkId chunk) const { return place_[chunk] != kOut; }
  void insert(ChunkId chunk);  // not a member
  void erase(ChunkId chunk);   // a member
  // The member used longest ago, kNoChunk when there is none.
  ChunkId oldest() const { return size_ == 0 ? kNoChunk : heap_[0]; }

 private:
  static constexpr std::uint32_t kOut = 0xffffffffU;

  void put(std::uint32_t place, ChunkId chunk) {
    heap_[place] = chunk;
    place_[chunk] = place;
  }
  void rise(std::uint32_t place);
  void sink(std::uint32_t place);

  std::vector<std::uint64_t> stamp_;  // by chunk; the lowest bit: touched since leave()
  std::vector<std::uint32_t> place_;  // by chunk; index in heap_
  std::vector<ChunkId> heap_;         // the first size_ are in use
  std::uint32_t size_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace resid

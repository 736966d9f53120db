#pragma once
// Chunks in the order of their last use, as a list through an array.
//
// Whoever joins or is used goes to the young end, so the list is always in the order of age without
// keeping any stamp, both ends are at hand in O(1), and a walk from the old end can deal the
// members out to other lists in their order: that is how a new plan keeps the ages. AgeQueue orders
// by the time of the fault instead, for which it needs O(log n).
//
// Only grow() allocates.

#include <cstdint>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

class AgeList {
 public:
  // Makes room for chunk ids below `chunks`; on bad_alloc the list is as it was.
  void grow(std::uint32_t chunks) {
    if (chunks > links_.size()) links_.resize(chunks);
  }

  bool contains(ChunkId chunk) const { return links_[chunk].member; }
  ChunkId oldest() const { return oldest_; }      // kNoChunk when empty, as all of these
  ChunkId youngest() const { return youngest_; }  //
  ChunkId younger(ChunkId chunk) const { return links_[chunk].younger; }
  ChunkId older(ChunkId chunk) const { return links_[chunk].older; }

  void push(ChunkId chunk) {  // no member; the youngest from now on
    links_[chunk] = {youngest_, kNoChunk, true};
    if (youngest_ == kNoChunk) {
      oldest_ = chunk;
    } else {
      links_[youngest_].younger = chunk;
    }
    youngest_ = chunk;
  }
  void erase(ChunkId chunk) {  // a member
    const Link link = links_[chunk];
    (link.older == kNoChunk ? oldest_ : links_[link.older].younger) = link.younger;
    (link.younger == kNoChunk ? youngest_ : links_[link.younger].older) = link.older;
    links_[chunk] = {};
  }
  void touch(ChunkId chunk) {  // a member is being used
    erase(chunk);
    push(chunk);
  }
  void clear() {
    while (oldest_ != kNoChunk)
      erase(oldest_);
  }

 private:
  struct Link {
    ChunkId older = kNoChunk;
    ChunkId younger = kNoChunk;
    bool member = false;
  };

  std::vector<Link> links_;  // by chunk
  ChunkId oldest_ = kNoChunk;
  ChunkId youngest_ = kNoChunk;
};

}  // namespace resid

#pragma once
// A declared cyclic order of chunks, a position in it, and the candidates among them.
//
// Every candidate carries one mark, on an occurrence of it in the sequence. The next use is the
// nearest occurrence, so a mark is never nearer than the next use, and the furthest candidate can
// be found lazily: look at the furthest mark; when its chunk has a nearer occurrence, move the mark
// there and look on; else that chunk is the answer. Marks go out of date only as the position
// passes occurrences, and each is moved once for that: furthest() is O(log m) amortised over the
// positions passed, and O(log m) outright when no chunk is named twice.
//
// assign() and grow() allocate, nothing else does.

#include <cstdint>
#include <span>
#include <vector>

#include "policy/index_set.hpp"
#include "policy/occurrences.hpp"
#include "policy/policy.hpp"

namespace resid {

class CyclicOrder {
 public:
  void grow(std::uint32_t chunks);
  // Replaces the sequence and forgets the candidates. Ids not below grow()'s are left out. The
  // position is before the first entry until the first seek().
  void assign(std::span<const ChunkId> sequence);

  std::uint32_t length() const { return static_cast<std::uint32_t>(sequence_.size()); }
  bool contains(ChunkId chunk) const { return places_.contains(chunk); }

  // Where the position stands; unless seek() has moved it, just before entry 0: that is at 0 for a
  // signal before use, at the last entry for one after.
  std::uint32_t position(SignalMode mode) const;
  ChunkId current(SignalMode mode) const;   // kNoChunk when there is no sequence
  ChunkId previous(SignalMode mode) const;  // the one before current()
  // Moves the position to the occurrence of `chunk` nearest ahead, unless a step back of at most
  // `window` explains the signal and is shorter than the way ahead. `chunk` is in the order.
  void seek(ChunkId chunk, SignalMode mode, std::uint32_t window);

  // Steps until `chunk`, which is in the order, is used: 0..m-1 in before_use, 1..m in after_use.
  std::uint32_t distance(ChunkId chunk, SignalMode mode) const;
  // The chunk after the occurrence of `chunk` nearest ahead (the position itself included).
  ChunkId next(ChunkId chunk, SignalMode mode) const;
  // The entries that follow the position, nearest first; returns how many were written.
  std::size_t upcoming(std::span<ChunkId> out, SignalMode mode) const;

  bool is_candidate(ChunkId chunk) const { return marks_of_[chunk] != IndexSet::kNone; }
  void insert(ChunkId chunk, SignalMode mode);  // in the order and no candidate
  void erase(ChunkId chunk);                    // a candidate
  // The candidate of the largest distance, leaving out `keep_a` and `keep_b`; kNoChunk when none.
  ChunkId furthest(SignalMode mode, ChunkId keep_a, ChunkId keep_b);

 private:
  std::uint32_t origin(SignalMode mode) const;
  std::uint32_t steps(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + (length() - from);
  }
  std::vector<ChunkId> sequence_;
  Occurrences places_;
  std::vector<std::uint32_t> marks_of_;  // by chunk: the marked position
  IndexSet marks_;                       // positions
  std::uint32_t position_ = 0;
  bool started_ = false;
};

}  // namespace resid

#pragma once
// A cyclic order of chunks that grows by insertion, a position in it, and the candidates among
// them.
//
// A treap ordered by place, not by key: a node is a chunk, its priority a hash of the id, and every
// node counts the nodes and the candidates below it. So a chunk's place, the candidate before a
// place and an insertion anywhere are walks of expected length O(log n), and no insertion ever
// renumbers the rest, which on the fault thread it must not.
//
// The members that OrderPolicy uses mean the same as CyclicOrder's. Only grow() allocates.

#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

class LearnedOrder {
 public:
  void grow(std::uint32_t chunks);

  // The workload has reached `chunk`. A chunk not seen before goes in after the position. Moves the
  // position to it, unless a step back of at most `window` explains it and is shorter than the way
  // ahead. The chunk is no candidate when it is new.
  void reach(ChunkId chunk, std::uint32_t window);

  std::uint32_t length() const { return root_ == kNil ? 0 : nodes_[root_].nodes; }
  bool contains(ChunkId chunk) const { return nodes_[chunk].nodes != 0; }
  ChunkId current(SignalMode mode) const;
  ChunkId previous(SignalMode mode) const;
  std::uint32_t distance(ChunkId chunk, SignalMode mode) const;
  // The end of the order has a successor only once the workload was seen to start over.
  ChunkId next(ChunkId chunk, SignalMode mode) const;
  std::size_t upcoming(std::span<ChunkId> out, SignalMode mode) const;

  bool is_candidate(ChunkId chunk) const { return nodes_[chunk].candidate; }
  void insert(ChunkId chunk, SignalMode mode);
  void erase(ChunkId chunk);
  ChunkId furthest(SignalMode mode, ChunkId keep_a, ChunkId keep_b) const;

 private:
  static constexpr std::uint32_t kNil = 0xffffffffU;

  struct Node {
    std::uint32_t left = kNil;
    std::uint32_t right = kNil;
    std::uint32_t parent = kNil;
    std::uint32_t next = kNil;     // in the order; the last one's is the first
    std::uint32_t nodes = 0;       // in this subtree; 0: not in the order
    std::uint32_t candidates = 0;  // in this subtree
    bool candidate = false;
  };

  std::uint32_t nodes_of(std::uint32_t i) const { return i == kNil ? 0 : nodes_[i].nodes; }
  std::uint32_t candidates_of(std::uint32_t i) const {
    return i == kNil ? 0 : nodes_[i].candidates;
  }
  std::uint32_t rank(ChunkId chunk) const;                   // its place, from 0
  ChunkId at(std::uint32_t rank) const;                      // the chunk at a place
  std::uint32_t candidates_below(std::uint32_t rank) const;  // candidates at smaller places
  ChunkId candidate(std::uint32_t index) const;              // the index-th candidate by place
  std::uint32_t steps(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + (length() - from);
  }
  std::uint32_t origin(SignalMode mode) const;
  void insert_after_position(ChunkId chunk);
  void recount(std::uint32_t node);
  void rotate_up(std::uint32_t node);
  void count_candidate(ChunkId chunk, bool on);

  std::vector<Node> nodes_;  // by chunk
  std::uint32_t root_ = kNil;
  ChunkId last_ = kNoChunk;
  ChunkId position_ = kNoChunk;
  bool closed_ = false;
};

}  // namespace resid

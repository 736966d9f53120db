#include "policy/learned_order.hpp"

#include <algorithm>

namespace resid {

namespace {

// The finaliser of SplitMix64: neighbouring ids get unrelated priorities, so the tree is balanced
// in expectation whatever order the chunks come in, and the same in every run.
std::uint64_t priority(ChunkId chunk) {
  std::uint64_t z = chunk + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

void LearnedOrder::grow(std::uint32_t chunks) {
  if (chunks > nodes_.size()) nodes_.resize(chunks);
}

void LearnedOrder::reach(ChunkId chunk, std::uint32_t window) {
  if (!contains(chunk)) {
    insert_after_position(chunk);
    position_ = chunk;
    return;
  }
  const std::uint32_t here = rank(position_);
  const std::uint32_t there = rank(chunk);
  const std::uint32_t ahead = steps(here, there);
  const std::uint32_t back = steps(there, here);
  if (back != 0 && back <= window && back < ahead) return;
  // Going on to a smaller place means that the end was passed.
  if (there < here) closed_ = true;
  position_ = chunk;
}

void LearnedOrder::insert_after_position(ChunkId chunk) {
  Node& node = nodes_[chunk];
  node = Node{};
  node.nodes = 1;
  if (root_ == kNil) {
    root_ = last_ = chunk;
    node.next = chunk;
    return;
  }
  Node& before = nodes_[position_];
  const std::uint32_t after = before.next;
  node.next = after;
  before.next = chunk;
  // Without a right child the place after a node is that child's; with one, the successor is the
  // leftmost node below it and has no left child.
  if (before.right == kNil) {
    before.right = chunk;
    node.parent = position_;
  } else {
    nodes_[after].left = chunk;
    node.parent = after;
  }
  if (position_ == last_) last_ = chunk;
  for (std::uint32_t i = node.parent; i != kNil; i = nodes_[i].parent)
    ++nodes_[i].nodes;
  while (node.parent != kNil && priority(node.parent) < priority(chunk))
    rotate_up(chunk);
}

void LearnedOrder::recount(std::uint32_t node) {
  Node& n = nodes_[node];
  n.nodes = nodes_of(n.left) + nodes_of(n.right) + 1;
  n.candidates = candidates_of(n.left) + candidates_of(n.right) + (n.candidate ? 1U : 0U);
}

void LearnedOrder::rotate_up(std::uint32_t node) {
  Node& n = nodes_[node];
  const std::uint32_t parent = n.parent;
  Node& p = nodes_[parent];
  const std::uint32_t above = p.parent;
  std::uint32_t moved = kNil;
  if (p.left == node) {
    moved = p.left = n.right;
    n.right = parent;
  } else {
    moved = p.right = n.left;
    n.left = parent;
  }
  if (moved != kNil) nodes_[moved].parent = parent;
  p.parent = node;
  n.parent = above;
  if (above == kNil) {
    root_ = node;
  } else if (nodes_[above].left == parent) {
    nodes_[above].left = node;
  } else {
    nodes_[above].right = node;
  }
  recount(parent);
  recount(node);
}

std::uint32_t LearnedOrder::rank(ChunkId chunk) const {
  std::uint32_t place = nodes_of(nodes_[chunk].left);
  for (std::uint32_t i = chunk; nodes_[i].parent != kNil; i = nodes_[i].parent) {
    const Node& parent = nodes_[nodes_[i].parent];
    if (parent.right == i) place += nodes_of(parent.left) + 1;
  }
  return place;
}

ChunkId LearnedOrder::at(std::uint32_t rank) const {
  std::uint32_t i = root_;
  for (;;) {
    const std::uint32_t left = nodes_of(nodes_[i].left);
    if (rank == left) return i;
    if (rank < left) {
      i = nodes_[i].left;
    } else {
      rank -= left + 1;
      i = nodes_[i].right;
    }
  }
}

std::uint32_t LearnedOrder::candidates_below(std::uint32_t rank) const {
  std::uint32_t count = 0;
  std::uint32_t i = root_;
  while (i != kNil && rank != 0) {
    const Node& n = nodes_[i];
    const std::uint32_t left = nodes_of(n.left);
    if (rank <= left) {
      i = n.left;
    } else {
      count += candidates_of(n.left) + (n.candidate ? 1U : 0U);
      rank -= left + 1;
      i = n.right;
    }
  }
  return count;
}

ChunkId LearnedOrder::candidate(std::uint32_t index) const {
  std::uint32_t i = root_;
  for (;;) {
    const Node& n = nodes_[i];
    const std::uint32_t left = candidates_of(n.left);
    if (index < left) {
      i = n.left;
      continue;
    }
    index -= left;
    if (n.candidate) {
      if (index == 0) return i;
      --index;
    }
    i = n.right;
  }
}

std::uint32_t LearnedOrder::origin(SignalMode mode) const {
  const std::uint32_t here = rank(position_);
  if (mode == SignalMode::before_use) return here;
  return here + 1 == length() ? 0 : here + 1;
}

ChunkId LearnedOrder::current(SignalMode /*mode*/) const {
  return position_;
}

ChunkId LearnedOrder::previous(SignalMode /*mode*/) const {
  if (root_ == kNil) return kNoChunk;
  const std::uint32_t here = rank(position_);
  return at(here == 0 ? length() - 1 : here - 1);
}

std::uint32_t LearnedOrder::distance(ChunkId chunk, SignalMode mode) const {
  return steps(origin(mode), rank(chunk)) + (mode == SignalMode::after_use ? 1U : 0U);
}

ChunkId LearnedOrder::next(ChunkId chunk, SignalMode /*mode*/) const {
  if (!contains(chunk) || (chunk == last_ && !closed_)) return kNoChunk;
  return nodes_[chunk].next;
}

std::size_t LearnedOrder::upcoming(std::span<ChunkId> out, SignalMode mode) const {
  std::size_t count = 0;
  if (root_ == kNil) return count;
  const std::size_t most = std::min<std::size_t>(out.size(), length());
  for (ChunkId chunk = next(position_, mode); count < most && chunk != kNoChunk;
       chunk = next(chunk, mode)) {
    out[count++] = chunk;
  }
  return count;
}

void LearnedOrder::count_candidate(ChunkId chunk, bool on) {
  nodes_[chunk].candidate = on;
  for (std::uint32_t i = chunk; i != kNil; i = nodes_[i].parent) {
    nodes_[i].candidates += on ? 1U : -1U;
  }
}

void LearnedOrder::insert(ChunkId chunk, SignalMode /*mode*/) {
  count_candidate(chunk, true);
}

void LearnedOrder::erase(ChunkId chunk) {
  count_candidate(chunk, false);
}

ChunkId LearnedOrder::furthest(SignalMode mode, ChunkId keep_a, ChunkId keep_b) const {
  const std::uint32_t count = candidates_of(root_);
  if (count == 0) return kNoChunk;
  std::uint32_t index = candidates_below(origin(mode));
  // At most two are left out, so at most three are looked at.
  for (std::uint32_t looked = 0; looked < count; ++looked) {
    index = index == 0 ? count - 1 : index - 1;
    const ChunkId chunk = candidate(index);
    if (chunk != keep_a && chunk != keep_b) return chunk;
  }
  return kNoChunk;
}

}  // namespace resid

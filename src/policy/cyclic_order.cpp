#include "policy/cyclic_order.hpp"

#include <algorithm>

namespace resid {

void CyclicOrder::grow(std::uint32_t chunks) {
  if (chunks <= places_.chunks()) return;
  marks_of_.reserve(chunks);
  places_.grow(chunks, 0);
  marks_of_.resize(chunks, IndexSet::kNone);
}

void CyclicOrder::assign(std::span<const ChunkId> sequence) {
  std::vector<ChunkId> entries;
  entries.reserve(sequence.size());
  for (const ChunkId chunk : sequence) {
    if (chunk < places_.chunks()) entries.push_back(chunk);
  }
  places_.grow(places_.chunks(), entries.size());
  marks_.resize(static_cast<std::uint32_t>(entries.size()));
  // Nothing throws from here on.
  std::fill(marks_of_.begin(), marks_of_.end(), IndexSet::kNone);
  places_.index(entries);
  sequence_.swap(entries);
  position_ = 0;
  started_ = false;
}

std::uint32_t CyclicOrder::position(SignalMode mode) const {
  if (started_ || mode == SignalMode::before_use) return position_;
  return length() == 0 ? 0 : length() - 1;
}

ChunkId CyclicOrder::current(SignalMode mode) const {
  return length() == 0 ? kNoChunk : sequence_[position(mode)];
}

ChunkId CyclicOrder::previous(SignalMode mode) const {
  if (length() == 0) return kNoChunk;
  const std::uint32_t at = position(mode);
  return sequence_[at == 0 ? length() - 1 : at - 1];
}

std::uint32_t CyclicOrder::origin(SignalMode mode) const {
  const std::uint32_t at = position(mode);
  if (mode == SignalMode::before_use) return at;
  return at + 1 == length() ? 0 : at + 1;
}

void CyclicOrder::seek(ChunkId chunk, SignalMode mode, std::uint32_t window) {
  const std::uint32_t here = position(mode);
  const std::uint32_t there = places_.at_or_after(chunk, here);
  if (started_) {
    const std::uint32_t ahead = steps(here, there);
    const std::uint32_t back = steps(places_.before(chunk, here), here);
    if (back != 0 && back <= window && back < ahead) return;
  }
  position_ = there;
  started_ = true;
}

std::uint32_t CyclicOrder::distance(ChunkId chunk, SignalMode mode) const {
  const std::uint32_t from = origin(mode);
  return steps(from, places_.at_or_after(chunk, from)) + (mode == SignalMode::after_use ? 1U : 0U);
}

ChunkId CyclicOrder::next(ChunkId chunk, SignalMode mode) const {
  if (!contains(chunk)) return kNoChunk;
  const std::uint32_t at = places_.at_or_after(chunk, position(mode));
  return sequence_[at + 1 == length() ? 0 : at + 1];
}

std::size_t CyclicOrder::upcoming(std::span<ChunkId> out, SignalMode mode) const {
  const std::size_t count = std::min<std::size_t>(out.size(), length());
  // Before the first signal entry 0 is still to come; afterwards the current entry is known of.
  std::uint32_t at = started_ ? origin(SignalMode::after_use) : origin(mode);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = sequence_[at];
    at = at + 1 == length() ? 0 : at + 1;
  }
  return count;
}

void CyclicOrder::insert(ChunkId chunk, SignalMode mode) {
  const std::uint32_t at = places_.at_or_after(chunk, origin(mode));
  marks_of_[chunk] = at;
  marks_.insert(at);
}

void CyclicOrder::erase(ChunkId chunk) {
  marks_.erase(marks_of_[chunk]);
  marks_of_[chunk] = IndexSet::kNone;
}

ChunkId CyclicOrder::furthest(SignalMode mode, ChunkId keep_a, ChunkId keep_b) {
  if (length() == 0) return kNoChunk;
  const std::uint32_t from = origin(mode);
  // Backwards from the entry before the origin: first down to 0, then from the end. Whoever gets
  // back to the origin has settled every mark below it, and meets there only what is left out.
  bool wrapped = false;
  std::uint32_t at = from;
  for (;;) {
    at = marks_.previous(at);
    if (at == IndexSet::kNone && !wrapped) {
      wrapped = true;
      at = marks_.previous(length());
    }
    if (at == IndexSet::kNone) return kNoChunk;
    const ChunkId chunk = sequence_[at];
    const std::uint32_t next_use = places_.at_or_after(chunk, from);
    if (next_use != at) {
      marks_.erase(at);
      marks_.insert(next_use);
      marks_of_[chunk] = next_use;
    } else if (chunk != keep_a && chunk != keep_b) {
      return chunk;
    }
  }
}

}  // namespace resid

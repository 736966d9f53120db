#include "policy/cyclic_order.hpp"

#include <algorithm>

namespace resid {

void CyclicOrder::grow(std::uint32_t chunks) {
  if (chunks <= spans_.size()) return;
  spans_.reserve(chunks);
  marks_of_.reserve(chunks);
  marks_of_.resize(chunks, IndexSet::kNone);
  spans_.resize(chunks);
}

void CyclicOrder::assign(std::span<const ChunkId> sequence) {
  std::vector<ChunkId> entries;
  entries.reserve(sequence.size());
  for (const ChunkId chunk : sequence) {
    if (chunk < spans_.size()) entries.push_back(chunk);
  }
  std::vector<std::uint32_t> occurrences(entries.size());
  marks_.resize(static_cast<std::uint32_t>(entries.size()));
  // Nothing throws from here on.
  std::fill(spans_.begin(), spans_.end(), Span{});
  std::fill(marks_of_.begin(), marks_of_.end(), IndexSet::kNone);
  for (const ChunkId chunk : entries)
    ++spans_[chunk].count;
  std::uint32_t start = 0;
  for (Span& span : spans_) {
    span.first = start;
    start += span.count;
    span.count = 0;
  }
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    Span& span = spans_[entries[i]];
    occurrences[span.first + span.count++] = i;
  }
  sequence_.swap(entries);
  occurrences_.swap(occurrences);
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

std::uint32_t CyclicOrder::occurrence_from(ChunkId chunk, std::uint32_t from) const {
  const Span span = spans_[chunk];
  const auto first = occurrences_.begin() + span.first;
  const auto last = first + span.count;
  const auto found = std::lower_bound(first, last, from);
  return found == last ? *first : *found;
}

std::uint32_t CyclicOrder::last_before(ChunkId chunk, std::uint32_t from) const {
  const Span span = spans_[chunk];
  const auto first = occurrences_.begin() + span.first;
  const auto last = first + span.count;
  const auto found = std::lower_bound(first, last, from);
  return found == first ? *(last - 1) : *(found - 1);
}

void CyclicOrder::seek(ChunkId chunk, SignalMode mode, std::uint32_t window) {
  const std::uint32_t here = position(mode);
  const std::uint32_t there = occurrence_from(chunk, here);
  if (started_) {
    const std::uint32_t ahead = steps(here, there);
    const std::uint32_t back = steps(last_before(chunk, here), here);
    if (back != 0 && back <= window && back < ahead) return;
  }
  position_ = there;
  started_ = true;
}

std::uint32_t CyclicOrder::distance(ChunkId chunk, SignalMode mode) const {
  const std::uint32_t from = origin(mode);
  return steps(from, occurrence_from(chunk, from)) + (mode == SignalMode::after_use ? 1U : 0U);
}

ChunkId CyclicOrder::next(ChunkId chunk, SignalMode mode) const {
  if (!contains(chunk)) return kNoChunk;
  const std::uint32_t at = occurrence_from(chunk, position(mode));
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
  const std::uint32_t at = occurrence_from(chunk, origin(mode));
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
    const std::uint32_t next_use = occurrence_from(chunk, from);
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

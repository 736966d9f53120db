#include "policy/age_queue.hpp"

namespace resid {

void AgeQueue::grow(std::uint32_t chunks) {
  if (chunks <= stamp_.size()) return;
  // All memory first: the resizes below cannot throw.
  stamp_.reserve(chunks);
  place_.reserve(chunks);
  heap_.reserve(chunks);
  place_.resize(chunks, kOut);
  heap_.resize(chunks, kNoChunk);
  stamp_.resize(chunks, 0);
}

void AgeQueue::touch(ChunkId chunk) {
  stamp_[chunk] = ++clock_ << 1 | 1U;
  if (contains(chunk)) sink(place_[chunk]);
}

void AgeQueue::arrive(ChunkId chunk) {
  if ((stamp_[chunk] & 1U) != 0) return;
  stamp_[chunk] = ++clock_ << 1;
  if (contains(chunk)) sink(place_[chunk]);
}

void AgeQueue::insert(ChunkId chunk) {
  put(size_, chunk);
  rise(size_++);
}

void AgeQueue::erase(ChunkId chunk) {
  const std::uint32_t hole = place_[chunk];
  place_[chunk] = kOut;
  if (hole == --size_) return;
  put(hole, heap_[size_]);
  rise(hole);
  sink(hole);
}

void AgeQueue::rise(std::uint32_t place) {
  const ChunkId chunk = heap_[place];
  while (place > 0) {
    const std::uint32_t parent = (place - 1) / 2;
    if (!older(chunk, heap_[parent])) break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, chunk);
}

void AgeQueue::sink(std::uint32_t place) {
  const ChunkId chunk = heap_[place];
  // 64-bit: twice the place of a heap near 2^32 must not wrap.
  for (std::uint64_t child = 2ULL * place + 1; child < size_; child = 2ULL * place + 1) {
    auto least = static_cast<std::uint32_t>(child);
    if (child + 1 < size_ && older(heap_[least + 1], heap_[least])) ++least;
    if (!older(heap_[least], chunk)) break;
    put(place, heap_[least]);
    place = least;
  }
  put(place, chunk);
}

}  // namespace resid

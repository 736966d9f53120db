#pragma once
// Where the chunks of a cyclic order stand in it: for each the positions that name it, ascending.
//
// grow() allocates, and index() where it was not told of so many entries.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

class Occurrences {
 public:
  // Makes room for chunk ids below `chunks` and an order of `entries`. Never shrinks. On bad_alloc
  // all is as it was.
  void grow(std::uint32_t chunks, std::size_t entries) {
    positions_.reserve(entries);
    if (chunks > spans_.size()) spans_.resize(chunks);
  }
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(spans_.size()); }

  // O(order + chunks). Ids in `order` are below chunks().
  void index(std::span<const ChunkId> order) {
    positions_.resize(order.size());
    std::fill(spans_.begin(), spans_.end(), Span{});
    for (const ChunkId chunk : order)
      ++spans_[chunk].count;
    std::uint32_t start = 0;
    for (Span& span : spans_) {
      span.first = start;
      start += span.count;
      span.count = 0;
    }
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      Span& span = spans_[order[i]];
      positions_[span.first + span.count++] = i;
    }
  }

  bool contains(ChunkId chunk) const { return spans_[chunk].count != 0; }
  std::span<const std::uint32_t> of(ChunkId chunk) const {
    return std::span(positions_).subspan(spans_[chunk].first, spans_[chunk].count);
  }
  // The first at or after `from`, around the end if need be. O(log n). The chunk is in the order,
  // as below.
  std::uint32_t at_or_after(ChunkId chunk, std::uint32_t from) const {
    const auto all = of(chunk);
    const auto found = std::lower_bound(all.begin(), all.end(), from);
    return found == all.end() ? all.front() : *found;
  }
  // The last before `from`, around the beginning if need be.
  std::uint32_t before(ChunkId chunk, std::uint32_t from) const {
    const auto all = of(chunk);
    const auto found = std::lower_bound(all.begin(), all.end(), from);
    return found == all.begin() ? all.back() : *(found - 1);
  }

 private:
  struct Span {
    std::uint32_t first = 0;  // in positions_
    std::uint32_t count = 0;
  };
  std::vector<std::uint32_t> positions_;
  std::vector<Span> spans_;  // by chunk
};

}  // namespace resid

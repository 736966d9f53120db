#pragma once
// Which chunks stay resident for ever and which pass through the window: the plan for a cyclic
// order of n bytes under a budget of k.
//
// A pass cannot read less than n - k bytes, and any fixed set of k bytes reads just that. So the
// choice is free to serve the clock: computing takes time in proportion to the bytes computed on,
// and the disk should stream for all of it. Were the streamed part one piece at the end of the
// order, the disk would idle while the resident part is computed and the processor while the rest
// comes in. Spread evenly, each streamed chunk has the computing of its resident neighbours to
// arrive in.
//
// Invariants:
//   P-1  A chunk that the path names more than once stays: it would be read more than once a pass.
//        (When those alone are more than the budget, they are what there is to choose from.)
//   P-2  What stays is at most budget - window bytes, P-1 permitting, and less than that by not
//        more than one of the largest chunks. When everything fits into the budget nothing
//        streams: then nothing is on its way and no window is needed.
//   P-3  The largest chunks stream first, all of one size; only when all of them do, the smaller
//        ones, by falling powers of two. A read of a few KiB costs the disk nearly what one of two
//        MiB does.
//   P-5  But for one chunk: where that leaves room for a part of the last one that streams, this
//   one
//        stays and the smallest that will do streams in its place.
//   P-4  Within a class the streamed ones are spread evenly, and the choice for a larger budget is
//        a subset of the one for a smaller: a budget that changes by a few chunks changes the plan
//        by those few, P-5 aside.
//
// P-4 is by the fractional parts of i * phi, i being the ordinal in the class: the q smallest among
// the first m. The gaps between those i have at most three different lengths, two of them and their
// sum (the three-gap theorem), and for the golden ratio the longest is below 2.7 times the mean;
// the i of smaller fractions are a subset by definition. Ordinals, not bytes: for a real x the
// fraction of x * phi has a period of 0.6, and some spacing of the chunks would meet it.
//
// Only grow() allocates.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

// A stretch of a cyclic order that is itself read as a cycle; usually all of it.
struct Path {
  std::span<const ChunkId> order;
  std::uint32_t first = 0;   // position in `order`
  std::uint32_t length = 0;  // at most order.size(); reaches around the end

  std::uint32_t position(std::uint32_t step) const {
    const auto size = static_cast<std::uint32_t>(order.size());
    return step < size - first ? first + step : step - (size - first);
  }
  ChunkId chunk(std::uint32_t step) const { return order[position(step)]; }
};

enum class Part : std::uint8_t {
  outside,   // the path does not name it
  fixed,     // stays
  streamed,  // passes through the window, once a cycle
};

class StreamPlan {
 public:
  void grow(std::uint32_t chunks);

  // O(path.length + chunks), allocates nothing. Ids in `path` are below grow()'s and bytes.size().
  void make(const Path& path, std::span<const std::uint32_t> bytes, std::uint64_t budget,
            std::uint64_t window);

  Part part(ChunkId chunk) const { return part_[chunk]; }
  std::uint64_t fixed_bytes() const { return fixed_bytes_; }
  std::uint64_t streamed_bytes() const { return streamed_bytes_; }
  std::uint32_t streamed() const { return streamed_; }  // chunks
  // Whether two of them follow each other in the path and in the file.
  bool neighbours() const { return neighbours_; }
  // The most steps from one streamed chunk to the next; the path's length when there is none.
  std::uint32_t widest_gap() const { return widest_gap_; }

 private:
  // Power of two that the size is below, or kLargest: the order in which P-3 takes them is falling.
  static constexpr std::uint32_t kLargest = 33;
  static constexpr std::uint32_t kBinBits = 12;
  static constexpr std::uint32_t kLevels = 3;

  // What streams: every class above `partial`, of that one the keys up to `key`.
  struct Cut {
    std::uint32_t partial = kLargest + 1;
    std::uint64_t key = 0;
  };

  std::uint32_t class_of(std::uint32_t bytes) const;
  void classify(const Path& path, std::span<const std::uint32_t> bytes);
  Cut cut(const Path& path, std::span<const std::uint32_t> bytes, std::uint64_t need);
  std::uint64_t select(const Path& path, std::span<const std::uint32_t> bytes,
                       std::uint32_t partial, std::uint64_t need);

  // The chunk of the largest key in the class that streams in part.
  struct Last {
    ChunkId chunk = kNoChunk;
    std::uint64_t key = 0;
  };
  void exchange(const Path& path, std::span<const std::uint32_t> bytes, ChunkId last,
                std::uint64_t over);
  void survey(const Path& path);

  std::vector<Part> part_;                                 // by chunk
  std::vector<bool> once_;                                 // by chunk: the path names it once
  std::array<std::uint64_t, kLargest + 1> class_bytes_{};  // of chunks named once
  std::array<std::uint64_t, std::size_t{1} << kBinBits> bins_{};  // bytes by key, for select()
  std::uint64_t total_bytes_ = 0;
  std::uint64_t fixed_bytes_ = 0;
  std::uint64_t streamed_bytes_ = 0;
  std::uint32_t largest_ = 0;  // bytes of the largest chunk that is named once
  std::uint32_t streamed_ = 0;
  std::uint32_t widest_gap_ = 0;
  bool neighbours_ = false;
};

}  // namespace resid

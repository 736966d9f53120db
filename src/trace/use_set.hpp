#pragma once
// The next uses of what is resident: positions of a reference string, with the furthest one at
// hand.
//
// No two chunks are used at the same position, so a position stands for its chunk and a set of
// positions is all a solver needs: insert() when a chunk will be used again, erase() when that
// position is reached or the chunk is given up, furthest() for Belady's victim. Unlike a heap it
// holds no stale entries, however long the string: one bit a position, with summaries above (bit i
// of a level says that word i below is not empty), 64 ways a level. Every call is O(log64 n).

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace resid {

class UseSet {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Takes positions below `bound`. Throws std::bad_alloc; nothing else does.
  explicit UseSet(std::uint32_t bound) {
    std::size_t total = 0;
    std::size_t bits = bound;
    do {
      starts_[levels_++] = total;
      bits = (bits + 63) / 64;
      total += bits;
    } while (bits > 1);
    words_.resize(total == 0 ? 1 : total, 0);
  }

  bool contains(std::uint32_t at) const { return (words_[at / 64] >> (at % 64) & 1U) != 0; }

  void insert(std::uint32_t at) {
    std::size_t i = at;
    for (std::uint32_t level = 0; level < levels_; ++level, i /= 64) {
      std::uint64_t& word = words_[starts_[level] + i / 64];
      const bool summarised = word != 0;
      word |= std::uint64_t{1} << (i % 64);
      if (summarised) return;
    }
  }

  void erase(std::uint32_t at) {
    std::size_t i = at;
    for (std::uint32_t level = 0; level < levels_; ++level, i /= 64) {
      std::uint64_t& word = words_[starts_[level] + i / 64];
      word &= ~(std::uint64_t{1} << (i % 64));
      if (word != 0) return;
    }
  }

  // The largest member, kNone when there is none.
  std::uint32_t furthest() const {
    if (words_[starts_[levels_ - 1]] == 0) return kNone;
    return last_under(levels_, 0);
  }

  // The largest member below `at`, kNone when there is none.
  std::uint32_t before(std::uint32_t at) const {
    std::size_t i = at;
    for (std::uint32_t level = 0; level < levels_; ++level, i /= 64) {
      const std::uint64_t mask = (std::uint64_t{1} << (i % 64)) - 1;
      const std::uint64_t below = words_[starts_[level] + i / 64] & mask;
      if (below != 0) return last_under(level, i / 64 * 64 + highest(below));
    }
    return kNone;
  }

 private:
  static constexpr std::uint32_t kLevelsMost = 6;  // 64^6 > 2^32

  static std::size_t highest(std::uint64_t word) {
    return static_cast<std::size_t>(std::bit_width(word)) - 1;
  }
  // The last member under bit `i` of `level`, which is set; `levels_` and 0 for the whole set.
  std::uint32_t last_under(std::uint32_t level, std::size_t i) const {
    while (level > 0) {
      --level;
      i = i * 64 + highest(words_[starts_[level] + i]);
    }
    return static_cast<std::uint32_t>(i);
  }

  std::vector<std::uint64_t> words_;               // level 0 first
  std::array<std::size_t, kLevelsMost> starts_{};  // of each level in words_
  std::uint32_t levels_ = 0;
};

}  // namespace resid

#pragma once
// A set of integers below a bound, as a bitmap with summaries: bit i of a word on one level says
// that word i of the level below is not empty. 64 ways a level, so a million indices take four
// levels and every call but resize() and clear() touches at most that many words, twice on the way
// back down.
//
// Only resize() allocates.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace resid {

class IndexSet {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Empties the set and makes it take indices below `bound`. Strong guarantee on bad_alloc.
  void resize(std::uint32_t bound);

  std::uint32_t bound() const { return bound_; }
  bool contains(std::uint32_t index) const {
    return (words_[index / 64] >> (index % 64) & 1U) != 0;
  }
  void insert(std::uint32_t index);
  void erase(std::uint32_t index);
  // The largest member below `index`, kNone when there is none. `index` <= bound().
  std::uint32_t previous(std::uint32_t index) const;
  // The smallest member not below `index`, kNone when there is none. `index` <= bound().
  std::uint32_t next(std::uint32_t index) const;
  // The same on a circle: going on from the other end.
  std::uint32_t previous_around(std::uint32_t index) const {
    const std::uint32_t found = previous(index);
    return found == kNone ? previous(bound_) : found;
  }
  std::uint32_t next_around(std::uint32_t index) const {
    const std::uint32_t found = next(index);
    return found == kNone ? next(0) : found;
  }
  void clear();  // O(bound / 64)

 private:
  // 64^6 > 2^32
  static constexpr std::uint32_t kMaxLevels = 6;

  std::vector<std::uint64_t> words_;                   // level 0 first, then its summaries
  std::array<std::size_t, kMaxLevels> level_start_{};  // offsets into words_
  std::uint32_t levels_ = 0;
  std::uint32_t bound_ = 0;
};

}  // namespace resid

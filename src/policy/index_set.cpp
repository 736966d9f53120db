#include "policy/index_set.hpp"

#include <algorithm>
#include <bit>

namespace resid {

void IndexSet::resize(std::uint32_t bound) {
  std::array<std::size_t, kMaxLevels> starts{};
  std::uint32_t levels = 0;
  std::size_t total = 0;
  std::size_t bits = bound;
  do {
    starts[levels++] = total;
    bits = (bits + 63) / 64;
    total += bits;
  } while (bits > 1);
  std::vector<std::uint64_t> words(total, 0);
  words_.swap(words);
  level_start_ = starts;
  levels_ = levels;
  bound_ = bound;
}

void IndexSet::insert(std::uint32_t index) {
  std::size_t i = index;
  for (std::uint32_t level = 0; level < levels_; ++level, i /= 64) {
    std::uint64_t& word = words_[level_start_[level] + i / 64];
    const bool summarised = word != 0;
    word |= std::uint64_t{1} << (i % 64);
    if (summarised) return;
  }
}

void IndexSet::erase(std::uint32_t index) {
  std::size_t i = index;
  for (std::uint32_t level = 0; level < levels_; ++level, i /= 64) {
    std::uint64_t& word = words_[level_start_[level] + i / 64];
    word &= ~(std::uint64_t{1} << (i % 64));
    if (word != 0) return;
  }
}

std::uint32_t IndexSet::previous(std::uint32_t index) const {
  if (index == 0) return kNone;
  std::size_t i = index - 1;
  // Level 0 may answer with i itself; above, the word that i is in has been seen to have nothing.
  std::uint64_t eligible = ~std::uint64_t{0} >> (63 - i % 64);
  for (std::uint32_t level = 0; level < levels_; ++level) {
    const std::uint64_t below = words_[level_start_[level] + i / 64] & eligible;
    if (below != 0) {
      std::size_t found = i / 64 * 64 + static_cast<std::size_t>(std::bit_width(below)) - 1;
      while (level > 0) {
        --level;
        const std::uint64_t word = words_[level_start_[level] + found];
        found = found * 64 + static_cast<std::size_t>(std::bit_width(word)) - 1;
      }
      return static_cast<std::uint32_t>(found);
    }
    i /= 64;
    eligible = (std::uint64_t{1} << (i % 64)) - 1;
  }
  return kNone;
}

std::uint32_t IndexSet::next(std::uint32_t index) const {
  if (index >= bound_) return kNone;
  std::size_t i = index;
  // As in previous(): level 0 may answer with i itself, the levels above only with a later word.
  std::uint64_t eligible = ~std::uint64_t{0} << (i % 64);
  for (std::uint32_t level = 0; level < levels_; ++level) {
    const std::uint64_t above = words_[level_start_[level] + i / 64] & eligible;
    if (above != 0) {
      std::size_t found = i / 64 * 64 + static_cast<std::size_t>(std::countr_zero(above));
      while (level > 0) {
        --level;
        const std::uint64_t word = words_[level_start_[level] + found];
        found = found * 64 + static_cast<std::size_t>(std::countr_zero(word));
      }
      return static_cast<std::uint32_t>(found);
    }
    i /= 64;
    eligible = i % 64 == 63 ? 0 : ~std::uint64_t{0} << (i % 64 + 1);
  }
  return kNone;
}

void IndexSet::clear() {
  std::fill(words_.begin(), words_.end(), 0);
}

}  // namespace resid

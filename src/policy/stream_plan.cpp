#include "policy/stream_plan.hpp"

#include <algorithm>
#include <bit>

namespace resid {

namespace {

// The fraction of i / phi in units of 2^-64: the multiplication drops the whole part by itself.
// (1 / phi and phi have the same fraction.)
std::uint64_t golden(std::uint64_t ordinal) {
  return ordinal * 0x9e3779b97f4a7c15ULL;
}

// Of these bits the keys are compared: neighbours among the first m fractions are about 1 / (2 m)
// apart, so 36 bits tell all of 2^32 ordinals but a few from each other.
constexpr std::uint32_t kKeyBits = 36;

std::uint64_t key_of(std::uint64_t ordinal) {
  return golden(ordinal) >> (64 - kKeyBits);
}

}  // namespace

void StreamPlan::grow(std::uint32_t chunks) {
  if (chunks <= part_.size()) return;
  once_.resize(chunks, false);
  part_.resize(chunks, Part::outside);
}

std::uint32_t StreamPlan::class_of(std::uint32_t bytes) const {
  return bytes == largest_ ? kLargest : static_cast<std::uint32_t>(std::bit_width(bytes));
}

// Until cut() has spoken, `streamed` means named once and `fixed` named more than once.
void StreamPlan::classify(const Path& path, std::span<const std::uint32_t> bytes) {
  std::fill(part_.begin(), part_.end(), Part::outside);
  total_bytes_ = 0;
  for (std::uint32_t i = 0; i < path.length; ++i) {
    Part& part = part_[path.chunk(i)];
    if (part == Part::outside) {
      part = Part::streamed;
      total_bytes_ += bytes[path.chunk(i)];
    } else {
      part = Part::fixed;
    }
  }
  for (std::uint32_t i = 0; i < path.length; ++i)
    once_[path.chunk(i)] = part_[path.chunk(i)] == Part::streamed;
  class_bytes_.fill(0);
  largest_ = 0;
  std::uint64_t largest_bytes = 0;
  for (std::uint32_t i = 0; i < path.length; ++i) {
    const ChunkId chunk = path.chunk(i);
    if (part_[chunk] != Part::streamed) continue;
    const std::uint32_t size = bytes[chunk];
    if (size > largest_) largest_bytes = 0;
    largest_ = std::max(largest_, size);
    if (size == largest_) largest_bytes += size;
    class_bytes_[static_cast<std::size_t>(std::bit_width(size))] += size;
  }
  class_bytes_[static_cast<std::size_t>(std::bit_width(largest_))] -= largest_bytes;
  class_bytes_[kLargest] = largest_bytes;
}

// The smallest key such that the chunks of the class up to it have `need` bytes, which it has. By
// counting bytes into bins of the key's highest bits, then again those of the bin where the sum
// falls, and so on: three walks, and no list of keys.
std::uint64_t StreamPlan::select(const Path& path, std::span<const std::uint32_t> bytes,
                                 std::uint32_t partial, std::uint64_t need) {
  static_assert(kBinBits * kLevels == kKeyBits);
  std::uint64_t found = 0;
  for (std::uint32_t level = 1; level <= kLevels; ++level) {
    const std::uint32_t shift = kKeyBits - level * kBinBits;
    bins_.fill(0);
    std::uint64_t ordinal = 0;
    for (std::uint32_t i = 0; i < path.length; ++i) {
      const ChunkId chunk = path.chunk(i);
      if (part_[chunk] != Part::streamed || class_of(bytes[chunk]) != partial) continue;
      const std::uint64_t key = key_of(ordinal++);
      if (key >> shift >> kBinBits == found)
        bins_[key >> shift & (bins_.size() - 1)] += bytes[chunk];
    }
    std::uint64_t bin = 0;
    while (bin + 1 < bins_.size() && bins_[bin] < need)
      need -= bins_[bin++];
    found = found << kBinBits | bin;
  }
  return found;
}

StreamPlan::Cut StreamPlan::cut(const Path& path, std::span<const std::uint32_t> bytes,
                                std::uint64_t need) {
  Cut cut;
  if (need == 0) return cut;
  for (cut.partial = kLargest;; --cut.partial) {
    const std::uint64_t has = class_bytes_[cut.partial];
    if (has > need) break;
    need -= has;
    // Just all of this class, or all that may stream and that is not enough.
    if (need == 0 || cut.partial == 0) return {cut.partial, ~std::uint64_t{0}};
  }
  cut.key = select(path, bytes, cut.partial, need);
  return cut;
}

void StreamPlan::make(const Path& path, std::span<const std::uint32_t> bytes, std::uint64_t budget,
                      std::uint64_t window) {
  classify(path, bytes);
  const std::uint64_t stay = budget - std::min(budget, window);
  const bool fits = total_bytes_ <= budget;  // P-2
  const std::uint64_t need = fits ? 0 : total_bytes_ - stay;
  const Cut at = cut(path, bytes, need);

  streamed_bytes_ = 0;
  std::uint64_t ordinal = 0;
  Last last;
  for (std::uint32_t i = 0; i < path.length; ++i) {
    const ChunkId chunk = path.chunk(i);
    if (part_[chunk] != Part::streamed) continue;
    const std::uint32_t its = class_of(bytes[chunk]);
    const std::uint64_t key = its == at.partial ? key_of(ordinal++) : 0;
    if (need == 0 || its < at.partial || (its == at.partial && key > at.key)) {
      part_[chunk] = Part::fixed;
      continue;
    }
    if (its == at.partial && key >= last.key) last = {chunk, key};
    streamed_bytes_ += bytes[chunk];
  }
  if (need != 0)
    exchange(path, bytes, last.chunk, streamed_bytes_ - std::min(streamed_bytes_, need));
  fixed_bytes_ = total_bytes_ - streamed_bytes_;
  survey(path);
}

// P-5
void StreamPlan::exchange(const Path& path, std::span<const std::uint32_t> bytes, ChunkId last,
                          std::uint64_t over) {
  if (last == kNoChunk || over == 0) return;
  ChunkId smaller = kNoChunk;
  for (std::uint32_t i = 0; i < path.length; ++i) {
    const ChunkId chunk = path.chunk(i);
    if (part_[chunk] != Part::fixed || bytes[chunk] >= bytes[last]) continue;
    if (bytes[chunk] + over < bytes[last] || !once_[chunk]) continue;
    // Not beside one that streams: neighbours need a larger window (neighbours()).
    const auto streams = [&](ChunkId id) {
      return id < part_.size() && id != last && part_[id] == Part::streamed;
    };
    if (streams(chunk - 1) || streams(chunk + 1)) continue;
    if (smaller == kNoChunk || bytes[chunk] < bytes[smaller]) smaller = chunk;
  }
  if (smaller == kNoChunk) return;
  part_[last] = Part::fixed;
  part_[smaller] = Part::streamed;
  streamed_bytes_ -= bytes[last] - bytes[smaller];
}

void StreamPlan::survey(const Path& path) {
  streamed_ = 0;
  widest_gap_ = 0;
  neighbours_ = false;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < path.length; ++i) {
    const ChunkId chunk = path.chunk(i);
    if (part_[chunk] != Part::streamed) continue;
    if (streamed_ == 0) first = i;
    if (streamed_ != 0) {
      widest_gap_ = std::max(widest_gap_, i - last);
      neighbours_ |= i - last == 1 && path.chunk(last) + 1 == chunk;
    }
    last = i;
    ++streamed_;
  }
  widest_gap_ = streamed_ == 0 ? path.length : std::max(widest_gap_, path.length - last + first);
}

}  // namespace resid

#pragma once
// The offline optimum for chunks of equal size: how few fetches any policy could have needed for a
// sequence of accesses (L. A. Belady, IBM Systems Journal 5(2), 1966). optimum.hpp has the one for
// chunks of any size, and is what a trace is judged by.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "trace/trace.hpp"

namespace resid {

struct OptimumMisses {
  std::uint64_t accesses = 0;
  std::uint64_t misses = 0;
};

// The least misses for `accesses` (chunk ids below `chunks`) with room for `capacity` chunks, on
// demand paging. O(n log n), four bytes and a bit an access, whatever the capacity. usage: no
// reference trace (I-10), capacity 0, an id out of range, more than 2^32 - 2 accesses.
Result<OptimumMisses> optimum_misses(std::span<const std::uint32_t> accesses, std::uint32_t chunks,
                                     std::uint64_t capacity, TraceKind kind);

// What no policy can undercut on `passes` cyclic scans of `n` chunks with room for `k`: every chunk
// once, then n - k in every further pass, since at most k of n can have stayed.
constexpr std::uint64_t cyclic_floor(std::uint64_t n, std::uint64_t k, std::uint64_t passes) {
  if (passes == 0) return 0;
  return n + (passes - 1) * (n > k ? n - k : 0);
}

namespace solver {

inline constexpr std::uint32_t kNeverAgain = 0xffffffffU;

// For each access, the position at which the same chunk is accessed again; usage for an id out of
// range or a string too long. Throws std::bad_alloc.
Result<std::vector<std::uint32_t>> next_uses(std::span<const std::uint32_t> accesses,
                                             std::uint32_t chunks);

// I-10, for whoever takes accesses with a kind.
Result<void> check_reference(TraceKind kind);

// Every so many accesses the progress is told.
inline constexpr std::uint32_t kStride = 1U << 16;

// The misses of furthest-next-use with room for `capacity` >= 1 chunks. `Set` is a UseSet; it is a
// parameter so that a test can plant an error in it and see it found.
template <class Set, class Progress>
std::uint64_t count_misses(std::span<const std::uint32_t> next, std::uint64_t capacity,
                           const Progress& progress) {
  const auto n = static_cast<std::uint32_t>(next.size());
  Set resident(n);  // next uses; a chunk without one is dropped as soon as it has been used
  std::uint64_t held = 0;
  std::uint64_t misses = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i % kStride == 0) progress(i);
    if (resident.contains(i)) {
      resident.erase(i);
    } else {
      ++misses;
      if (held == capacity) {
        resident.erase(resident.furthest());
      } else {
        ++held;
      }
    }
    if (next[i] == kNeverAgain) {
      --held;
    } else {
      resident.insert(next[i]);
    }
  }
  return misses;
}

}  // namespace solver

}  // namespace resid

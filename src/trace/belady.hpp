#pragma once
// The offline optimum for chunks of equal size: how few fetches any policy could have needed for a
// sequence of accesses (L. A. Belady, IBM Systems Journal 5(2), 1966).

#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace resid {

// What a trace records. Only a reference trace, written by the workload for every access, may be
// judged; a fault trace holds only what one policy missed and would make the optimum circular.
enum class TraceKind : std::uint8_t { reference, fault };

struct OptimumMisses {
  std::uint64_t accesses = 0;
  std::uint64_t misses = 0;
};

// The least misses for `accesses` (chunk ids below `chunks`) with room for `capacity` chunks, on
// demand paging. O(n log capacity). usage: a fault trace, capacity 0, or an id out of range.
Result<OptimumMisses> optimum_misses(std::span<const std::uint32_t> accesses, std::uint32_t chunks,
                                     std::uint64_t capacity, TraceKind kind);

// What no policy can undercut on `passes` cyclic scans of `n` chunks with room for `k`: every chunk
// once, then n - k in every further pass, since at most k of n can have stayed.
constexpr std::uint64_t cyclic_floor(std::uint64_t n, std::uint64_t k, std::uint64_t passes) {
  if (passes == 0) return 0;
  return n + (passes - 1) * (n > k ? n - k : 0);
}

}  // namespace resid

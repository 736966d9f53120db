#pragma once
// The offline optimum in bytes, for chunks of any size: how little any policy could have read for a
// reference trace, and how that is known.
//
// The problem: when a chunk is accessed, all of it must be resident (no bypass: a page that is
// touched is in the memory that the budget counts). What is resident never exceeds the capacity.
// What is not resident is read. The bytes read are to be least.
//
// Chunks of equal size: Belady's rule is the optimum, in a capacity of floor(capacity / size).
// Chunks of unequal size: the optimum is NP-hard to find (it contains the knapsack), so there are
// two figures. No schedule of whole chunks reads less than `lower_bytes`; there is one that reads
// `upper_bytes`. Where both meet, or where the chunks are few enough to try every set of them, the
// optimum is known. docs/traces.md has the proofs.
//
// 1. `lower_bytes` is the optimum of an easier problem, in which chunks may be resident in part.
// 2. `upper_bytes` is the sum over a schedule that was carried out within the capacity.
// 3. Where the trace claims to be cyclic scans, every result is held against their floor, and the
//    trace against its claim, on every call: a fault trace that passes for a reference trace gives
//    an "optimum" that no policy can reach, and that is how it shows (I-10).

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.hpp"
#include "trace/trace.hpp"

namespace resid {

struct OptimumBytes {
  std::uint64_t accesses = 0;
  std::uint64_t misses =
      0;  // of the schedule that reads upper_bytes; not always the least possible
  std::uint64_t lower_bytes = 0;
  std::uint64_t upper_bytes = 0;
  bool exact = false;                        // lower_bytes == upper_bytes: the optimum
  std::optional<std::uint64_t> floor_bytes;  // where the header claims a cyclic scan
};

// The optimum for `accesses`, which `header` describes, with room for `capacity` bytes. O(n log n).
// usage: no reference trace, an id out of range, not the cyclic scans that the header claims, or a
// result below their floor. infeasible: a chunk that is accessed is larger than the capacity.
Result<OptimumBytes> optimum_bytes(const TraceHeader& header,
                                   std::span<const std::uint32_t> accesses, std::uint64_t capacity,
                                   const TraceProgress& progress = {});

// The bytes that no policy can avoid where `header` claims cyclic scans: all of them in the first
// pass, then what the capacity cannot hold in every further one. Nothing where it claims none. For
// equal chunks the capacity counts in whole chunks.
std::optional<std::uint64_t> cyclic_floor_bytes(const TraceHeader& header, std::uint64_t capacity);

// Whether `accesses` are what `header` claims: as many passes, each naming every chunk below
// cycle_chunks once, in any order. usage, naming the first access that does not fit. Throws
// std::bad_alloc.
Result<void> check_cycle(const TraceHeader& header, std::span<const std::uint32_t> accesses);

}  // namespace resid

#pragma once
// What a store's disk gives right now, by the reads that the pager itself makes. An orientation for
// one run, to stand beside its figures; it does not try to see through caches below the kernel.

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "storage/store.hpp"

namespace resid {

struct Bandwidth {
  double bytes_per_s = 0;
  std::uint32_t depth = 0;  // reads in flight that gave it
  bool direct = false;      // false: the file system refused direct reads, so the cache answered
};

// The best of the given depths, each tried for `seconds`, or until every thread has gone once round
// the file. Reads of `request_bytes` (whole pages), one after another through the file, into memory
// that is as contiguous as the machine gives it.
Result<Bandwidth> best_bandwidth(const Store& store, std::uint64_t request_bytes,
                                 std::span<const std::uint32_t> depths, double seconds);

}  // namespace resid

#include "trace/belady.hpp"

#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace resid {

Result<OptimumMisses> optimum_misses(std::span<const std::uint32_t> accesses, std::uint32_t chunks,
                                     std::uint64_t capacity, TraceKind kind) {
  if (kind != TraceKind::reference) {  // I-10
    return fail(Status::usage, "trace", "a fault trace holds only misses",
                "record a reference trace of the workload");
  }
  if (capacity == 0) return fail(Status::usage, "capacity", "no room for a single chunk");
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t n = accesses.size();

  // next[i]: when the chunk accessed at i is accessed again. One pass from the back.
  std::vector<std::uint64_t> next(n, kNever);
  std::vector<std::uint64_t> upcoming(chunks, kNever);
  for (std::uint64_t i = n; i-- > 0;) {
    const std::uint32_t chunk = accesses[i];
    if (chunk >= chunks) {
      return fail(Status::usage, "trace",
                  fmt::format("access {} names chunk {} of {}", i, chunk, chunks));
    }
    next[i] = upcoming[chunk];
    upcoming[chunk] = i;
  }

  // A heap of (next use, chunk). Entries are not removed when a chunk is used again or evicted;
  // one is valid only while it equals the chunk's current next use and the chunk is resident.
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> heap;
  std::vector<std::uint64_t> current(chunks, kNever);
  std::vector<bool> resident(chunks, false);
  std::uint64_t held = 0;
  OptimumMisses result{n, 0};
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint32_t chunk = accesses[i];
    if (!resident[chunk]) {
      ++result.misses;
      while (held >= capacity) {
        const auto [use, victim] = heap.top();
        heap.pop();
        if (!resident[victim] || current[victim] != use) continue;
        resident[victim] = false;
        --held;
      }
      resident[chunk] = true;
      ++held;
    }
    current[chunk] = next[i];
    heap.emplace(next[i], chunk);
  }
  return result;
}

}  // namespace resid

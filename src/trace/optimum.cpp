#include "trace/optimum.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "trace/belady.hpp"
#include "trace/bounds.hpp"
#include "trace/use_set.hpp"

namespace resid {

namespace {

// How often the accesses may be gone through; for progress only.
constexpr std::uint64_t kSweepsMost = 8;

constexpr const char* kNotItsOwn = "this is not the workload's own reference trace";
constexpr const char* kRecordRight =
    "record every access where the workload makes it, not what the pager fetched";

// The size of the chunks, if all of `ids` have the same; else nothing.
std::optional<std::uint32_t> equal_size(std::span<const std::uint32_t> ids,
                                        std::span<const std::uint32_t> chunk_bytes) {
  if (ids.empty()) return std::nullopt;
  const std::uint32_t bytes = chunk_bytes[ids.front()];
  const bool equal = std::all_of(ids.begin(), ids.end(),
                                 [&](std::uint32_t id) { return chunk_bytes[id] == bytes; });
  return equal ? std::optional(bytes) : std::nullopt;
}

Result<void> check_feasible(const TraceHeader& header, std::span<const std::uint32_t> accesses,
                            std::uint64_t capacity) {
  for (const std::uint32_t chunk : accesses) {
    const std::uint32_t bytes = header.chunk_bytes[chunk];
    if (bytes <= capacity) continue;
    return fail(Status::infeasible, fmt::format("chunk {}", chunk),
                fmt::format("is {} bytes large and must be wholly resident to be read; the budget "
                            "is {} bytes",
                            bytes, capacity),
                "raise --ram");
  }
  return {};
}

// 3. in the header. The floor holds for chunks that are resident in part as well, so the lower
// bound must respect it.
Result<void> check_floor(const TraceHeader& header, const OptimumBytes& result) {
  if (!result.floor_bytes || result.lower_bytes >= *result.floor_bytes) return {};
  return fail(Status::usage, "trace",
              fmt::format("its optimum is {} bytes, but {} scans of {} chunks cannot do with less "
                          "than {}: {}",
                          result.lower_bytes, header.passes, header.cycle_chunks,
                          *result.floor_bytes, kNotItsOwn),
              kRecordRight);
}

Result<OptimumBytes> solve(const TraceHeader& header, std::span<const std::uint32_t> accesses,
                           std::uint64_t capacity, const TraceProgress& progress) {
  if (auto ok = solver::check_reference(header.kind); !ok) return tl::unexpected(ok.error());
  const auto next =
      solver::next_uses(accesses, static_cast<std::uint32_t>(header.chunk_bytes.size()));
  if (!next) return tl::unexpected(next.error());
  if (auto ok = check_feasible(header, accesses, capacity); !ok) return tl::unexpected(ok.error());

  std::uint64_t sweep = 0;
  const std::uint64_t total = kSweepsMost * accesses.size();
  const solver::Tick tick = [&](std::uint32_t at) {
    if (at == 0) ++sweep;
    if (progress) progress((sweep - 1) * accesses.size() + at, total);
  };
  OptimumBytes result;
  result.accesses = accesses.size();
  const auto equal = equal_size(accesses, header.chunk_bytes);
  if (equal) {
    result.misses = solver::count_misses<UseSet>(*next, capacity / *equal, tick);
    result.lower_bytes = result.upper_bytes = result.misses * *equal;
  } else {
    const solver::Problem problem{accesses, *next, header.chunk_bytes, capacity};
    const solver::Schedule relaxed = solver::relaxed_optimum(problem, tick);
    solver::Schedule best = solver::best_schedule(problem, relaxed, tick);
    result.lower_bytes = relaxed.bytes;
    if (best.bytes != relaxed.bytes) {
      if (auto optimum = solver::exact_schedule(problem)) {
        best = std::move(*optimum);
        result.lower_bytes = best.bytes;
      }
    }
    result.upper_bytes = best.bytes;
    result.misses = best.misses;
  }
  result.exact = result.lower_bytes == result.upper_bytes;
  result.floor_bytes = cyclic_floor_bytes(header, capacity);
  if (auto ok = check_floor(header, result); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_cycle(header, accesses); !ok) return tl::unexpected(ok.error());
  if (progress) progress(total, total);
  return result;
}

}  // namespace

std::optional<std::uint64_t> cyclic_floor_bytes(const TraceHeader& header, std::uint64_t capacity) {
  const std::size_t n = std::min<std::size_t>(header.cycle_chunks, header.chunk_bytes.size());
  if (n == 0 || header.passes == 0) return std::nullopt;
  const auto cycle = std::span(header.chunk_bytes).first(n);
  std::uint64_t all = 0;
  for (const std::uint32_t bytes : cycle)
    all += bytes;
  const bool equal = std::all_of(cycle.begin(), cycle.end(),
                                 [&](std::uint32_t bytes) { return bytes == cycle.front(); });
  if (equal) capacity -= capacity % cycle.front();
  const std::uint64_t missing = all > capacity ? all - capacity : 0;
  std::uint64_t floor = 0;
  // A claim this large is wrong; the largest number is above whatever was counted.
  if (__builtin_mul_overflow(missing, std::uint64_t{header.passes} - 1, &floor) ||
      __builtin_add_overflow(floor, all, &floor)) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return floor;
}

Result<void> check_cycle(const TraceHeader& header, std::span<const std::uint32_t> accesses) {
  const std::uint64_t n = header.cycle_chunks;
  if (n == 0) return {};
  const auto refused = [&](const std::string& why) {
    return fail(Status::usage, "trace",
                fmt::format("its header claims {} scans of {} chunks, but {}: {}", header.passes, n,
                            why, kNotItsOwn),
                kRecordRight);
  };
  if (accesses.size() != n * header.passes) {
    return refused(fmt::format("there are {} accesses", accesses.size()));
  }
  std::vector<std::uint32_t> passes_of(n, 0);  // how many have named the chunk
  for (std::uint64_t i = 0; i < accesses.size(); ++i) {
    const std::uint32_t chunk = accesses[i];
    if (chunk >= n || passes_of[chunk] != i / n) {
      return refused(fmt::format("access {}, in pass {}, names chunk {}{}", i, i / n, chunk,
                                 chunk < n ? " again" : ""));
    }
    ++passes_of[chunk];
  }
  return {};
}

Result<OptimumBytes> optimum_bytes(const TraceHeader& header,
                                   std::span<const std::uint32_t> accesses, std::uint64_t capacity,
                                   const TraceProgress& progress) try {
  return solve(header, accesses, capacity, progress);
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "trace",
              fmt::format("no memory to judge {} references", accesses.size()));
}

}  // namespace resid

#include "trace/belady.hpp"

#include <new>

#include <fmt/format.h>

#include "trace/use_set.hpp"

namespace resid {

namespace solver {

Result<std::vector<std::uint32_t>> next_uses(std::span<const std::uint32_t> accesses,
                                             std::uint32_t chunks) {
  if (accesses.size() >= kNeverAgain) {
    return fail(Status::usage, "trace", fmt::format("{} references are too many", accesses.size()),
                "judge a shorter part of the run");
  }
  std::vector<std::uint32_t> next(accesses.size());
  std::vector<std::uint32_t> upcoming(chunks, kNeverAgain);
  for (auto i = static_cast<std::uint32_t>(accesses.size()); i-- > 0;) {
    const std::uint32_t chunk = accesses[i];
    if (chunk >= chunks) {
      return fail(Status::usage, "trace",
                  fmt::format("access {} names chunk {} of {}", i, chunk, chunks));
    }
    next[i] = upcoming[chunk];
    upcoming[chunk] = i;
  }
  return next;
}

Result<void> check_reference(TraceKind kind) {
  if (kind == TraceKind::reference) return {};
  return fail(
      Status::usage, "trace",
      fmt::format("a {} trace records what one policy did: an optimum computed from it would "
                  "be circular",
                  name(kind)),
      "record a reference trace of the workload");
}

}  // namespace solver

Result<OptimumMisses> optimum_misses(std::span<const std::uint32_t> accesses, std::uint32_t chunks,
                                     std::uint64_t capacity, TraceKind kind) try {
  if (auto ok = solver::check_reference(kind); !ok) return tl::unexpected(ok.error());
  if (capacity == 0) return fail(Status::usage, "capacity", "no room for a single chunk");
  auto next = solver::next_uses(accesses, chunks);
  if (!next) return tl::unexpected(next.error());
  return OptimumMisses{accesses.size(),
                       solver::count_misses<UseSet>(*next, capacity, [](std::uint32_t) {})};
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "trace",
              fmt::format("no memory to judge {} references", accesses.size()));
}

}  // namespace resid

#pragma once
// The parts of optimum.hpp for chunks of unequal size. All take accesses that next_uses() has
// accepted, every accessed chunk being at most `capacity` bytes. They may throw std::bad_alloc.
//
// Words: the stay of a chunk is the time between two accesses that follow each other. A schedule is
// the choice which stays to keep; each stay that is not kept costs the chunk's bytes at its end.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace resid::solver {

struct Problem {
  std::span<const std::uint32_t> accesses;
  std::span<const std::uint32_t> next;         // next_uses(accesses)
  std::span<const std::uint32_t> chunk_bytes;  // by id
  std::uint64_t capacity = 0;
};

// Told the position every so often.
using Tick = std::function<void(std::uint32_t)>;

struct Schedule {
  std::uint64_t bytes = 0;  // read
  std::uint64_t misses = 0;
  std::vector<bool> kept;  // by position: the stay that ends there is kept whole
};

// The optimum where chunks may be resident in part: a lower bound for whole chunks. Its `kept` are
// the stays of which it keeps every byte, `misses` the others and the first accesses.
Schedule relaxed_optimum(const Problem& problem, const Tick& tick);

// A schedule of whole chunks: the stays in `must` (empty: none), which fit together, and others as
// room allows. When there is too little, the furthest next use goes; of the `window` furthest, the
// smallest that makes room alone, if one does.
Schedule whole_schedule(const Problem& problem, const std::vector<bool>& must, unsigned window,
                        const Tick& tick);

// The best of a few of the above, built on what the relaxed optimum keeps.
Schedule best_schedule(const Problem& problem, const Schedule& relaxed, const Tick& tick);

// The optimum, by trying every set of resident chunks; nothing where that would take too long.
// `kept` stays empty.
std::optional<Schedule> exact_schedule(const Problem& problem);

}  // namespace resid::solver

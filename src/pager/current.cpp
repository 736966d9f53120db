// What the program is reading right now must stay until it has been read (I-4).
//
// An instruction may need two chunks at once: a load that straddles their border, a copy from one
// to the other. If fetching the second evicted the first, the first's fetch the second, and so on,
// the program would never get on, however many bytes were read; and with the furthest next use as
// the rule, the chunk just behind the reader is exactly the one to go. So the newest demand fetches
// are kept, two at least. They are the last thing that a demand fetch may take when nothing else is
// left, oldest first, so that they cannot starve it.
//
// When the program is seen elsewhere, in a chunk that does not touch a kept one, that one may go:
// no load straddles the two. A copy from one to the other may still need both; then it is wanted
// back at once, and that is noticed:
//
// One thread needs two; how many threads there are is not known here. When a chunk is wanted again
// right after it was given up, more of them are kept; when that has not happened for long, fewer.

#include "pager/impl.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kSoon = 8;   // evictions between giving up and wanting back
constexpr std::uint64_t kCalm = 64;  // demand fetches without that, before one fewer is kept

}  // namespace

void Pager::Impl::make_current(Lock& lock, ChunkId first, std::uint32_t count) {
  while (current_count >= current_limit ||
         (current_count >= kCurrentLeast && current_bytes > budget.limit() / 4)) {
    release_oldest_current(lock);
  }
  std::uint32_t pinned = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    // Someone may have evicted it by hand meanwhile, or poisoned it.
    if (state(first + i).phase() != ChunkPhase::resident) break;
    add_pin(lock, first + i);
    current_bytes += bytes_of(first + i);
    ++pinned;
  }
  if (pinned == 0) return;
  current[(current_head + current_count) % current.size()] = {first, pinned};
  ++current_count;
}

void Pager::Impl::release_oldest_current(Lock& lock) {
  const Kept run = current[current_head];
  current_head = (current_head + 1) % current.size();
  --current_count;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    current_bytes -= bytes_of(run.first + i);
    drop_pin(lock, run.first + i);
  }
}

bool Pager::Impl::break_current(Lock& lock) {
  if (current_count == 0) return false;
  release_oldest_current(lock);
  return true;
}

void Pager::Impl::release_current(Lock& lock, ChunkId chunk) {
  // Rotate once through the ring; runs that hold the chunk go, the others keep their order.
  for (std::size_t left = current_count; left != 0; --left) {
    const Kept run = current[current_head];
    if (chunk >= run.first && chunk < run.first + run.count) {
      release_oldest_current(lock);
      continue;
    }
    current_head = (current_head + 1) % current.size();
    current[(current_head + current_count - 1) % current.size()] = run;
  }
}

void Pager::Impl::release_passed(Lock& lock, ChunkId chunk) {
  // Of those elsewhere, as many stay as wanting back has taught.
  std::size_t elsewhere = 0;
  const auto touches = [&](const Kept& run) {
    // A seam may lie between two neighbours.
    return chunk + 2 >= run.first && chunk <= run.first + run.count + 1;
  };
  for (std::size_t i = 0; i < current_count; ++i)
    elsewhere += touches(current[(current_head + i) % current.size()]) ? 0U : 1U;
  const std::size_t taught = current_limit - kCurrentLeast;
  for (std::size_t left = current_count; left != 0; --left) {
    const Kept run = current[current_head];
    if (!touches(run) && elsewhere > taught) {
      release_oldest_current(lock);
      --elsewhere;
      continue;
    }
    current_head = (current_head + 1) % current.size();
    current[(current_head + current_count - 1) % current.size()] = run;
  }
}

void Pager::Impl::note_wanted(const Lock&, const ChunkState& chunk) {
  const std::uint64_t evictions = stats.evictions.load(std::memory_order_relaxed);
  if (chunk.evicted_at != 0 && evictions - chunk.evicted_at < kSoon) {
    if (current_limit < kCurrentMost) ++current_limit;
    calm_fetches = 0;
    bump(stats.wanted_back);
  } else if (++calm_fetches >= kCalm) {
    calm_fetches = 0;
    if (current_limit > kCurrentLeast) --current_limit;
  }
}

}  // namespace resid

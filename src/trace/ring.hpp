#pragma once
// How events get out of the pager without costing it anything: a ring in memory that may be shared
// with the process that writes the trace files. One producer at a time (the pager pushes with its
// accounting lock held), one consumer. A full ring drops and counts: the fault thread waits for
// nobody (I-13).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/trace.hpp"

namespace resid {

struct TraceEvent {
  TraceRecord record;
  TraceKind kind = TraceKind::fault;
};

struct TraceRing {
  static constexpr std::uint64_t kEvents = 1U << 15;

  // Which kinds are wanted: bit i for the kind of value i. Set before the pager starts.
  std::atomic<std::uint32_t> wanted{0};
  // Added to every chunk id: another pager's chunks stand before in the same trace.
  std::atomic<std::uint32_t> first_chunk{0};
  std::atomic<std::uint64_t> start_ns{0};  // of the clock that the pager reads; time 0 of the trace
  std::atomic<std::uint64_t> pushed{0};
  std::atomic<std::uint64_t> popped{0};
  std::atomic<std::uint64_t> dropped{0};
  TraceEvent events[kEvents];

  static constexpr std::uint32_t bit(TraceKind kind) {
    return 1U << static_cast<std::uint32_t>(kind);
  }

  void push(TraceKind kind, std::uint64_t now_ns, std::uint32_t chunk, std::uint32_t detail) {
    if ((wanted.load(std::memory_order_relaxed) & bit(kind)) == 0) return;
    const std::uint64_t at = pushed.load(std::memory_order_relaxed);
    if (at - popped.load(std::memory_order_acquire) == kEvents) {
      dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const std::uint64_t start = start_ns.load(std::memory_order_relaxed);
    events[at % kEvents] = {{now_ns > start ? now_ns - start : 0,
                             first_chunk.load(std::memory_order_relaxed) + chunk, detail},
                            kind};
    pushed.store(at + 1, std::memory_order_release);
  }

  // Takes the oldest events out; returns how many.
  std::size_t pop(std::span<TraceEvent> out) {
    const std::uint64_t from = popped.load(std::memory_order_relaxed);
    // The other side may be a program that writes nonsense here: never more than there is room for.
    const std::uint64_t until =
        from + std::min(pushed.load(std::memory_order_acquire) - from, kEvents);
    std::size_t n = 0;
    while (n < out.size() && from + n < until) {
      out[n] = events[(from + n) % kEvents];
      ++n;
    }
    popped.store(from + n, std::memory_order_release);
    return n;
  }
};

}  // namespace resid

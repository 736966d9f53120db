#pragma once
// The pager's counters: plain atomics in a standard-layout block, so that they can live in memory
// shared with the process that writes the report.

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace resid {

using Counter = std::atomic<std::uint64_t>;

inline void bump(Counter& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}
inline void raise_to(Counter& high_water, std::uint64_t value) {
  std::uint64_t seen = high_water.load(std::memory_order_relaxed);
  while (seen < value &&
         !high_water.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// Log-linear histogram of nanoseconds: 8 steps per octave, relative error below 12.5 %.
struct LatencyHistogram {
  static constexpr std::uint32_t kSteps = 8;
  static constexpr std::uint32_t kBuckets = 64 * kSteps;
  std::array<Counter, kBuckets> buckets{};
  Counter max_ns{0};

  static std::uint32_t bucket(std::uint64_t ns) {
    if (ns < kSteps) return static_cast<std::uint32_t>(ns);
    const auto octave = static_cast<std::uint32_t>(std::bit_width(ns)) - 1;
    const auto step = static_cast<std::uint32_t>((ns >> (octave - 3)) & (kSteps - 1));
    return (octave - 2) * kSteps + step;
  }
  // The largest value that falls in `index`.
  static std::uint64_t upper(std::uint32_t index) {
    if (index < kSteps) return index;
    const std::uint32_t octave = index / kSteps + 2;
    const std::uint64_t step = index % kSteps;
    return ((kSteps + step + 1) << (octave - 3)) - 1;
  }
  void record(std::uint64_t ns) {
    bump(buckets[bucket(ns)]);
    raise_to(max_ns, ns);
  }
  std::uint64_t count() const {
    std::uint64_t n = 0;
    for (const Counter& b : buckets)
      n += b.load(std::memory_order_relaxed);
    return n;
  }
  // The value below or at which `fraction` of the records lie; 0 when there are none.
  std::uint64_t quantile(double fraction) const {
    const std::uint64_t n = count();
    if (n == 0) return 0;
    auto want = static_cast<std::uint64_t>(fraction * static_cast<double>(n));
    if (want >= n) want = n - 1;
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < kBuckets; ++i) {
      seen += buckets[i].load(std::memory_order_relaxed);
      if (seen > want) return upper(i) < max_ns.load() ? upper(i) : max_ns.load();
    }
    return max_ns.load();
  }
};

struct PagerStats {
  // Faults as the kernel reported them; a metric only (I-8).
  Counter faults_missing{0};
  Counter faults_minor{0};
  Counter dedup_resident{0};  // the chunk was resident already: mapped and woken
  Counter dedup_fetching{0};  // a fetch was under way: its end wakes the waiter
  Counter absent_handled{0};  // demand fetches started
  Counter stray_faults{0};    // on an address that is no view's any more

  Counter fetches{0};
  Counter bytes_fetched{0};  // read from the store
  Counter evictions{0};
  Counter bytes_punched{0};
  Counter resident_bytes{0};
  Counter resident_peak_bytes{0};  // ours: resident + reserved, the most at any moment
  Counter kernel_peak_bytes{0};    // the memfds' own figure at every reconcile
  Counter wanted_back{0};          // demand faults on what was given up a few evictions before
  Counter plan_broken{0};          // evictions of what the plan keeps
  Counter infeasible{0};
  Counter policy_lapses{0};  // room was made without the policy, which named nobody: a bug in it
  Counter fetching_timeouts{0};
  Counter read_retries{0};
  Counter read_failures{0};
  Counter continue_partial{0};  // CONTINUE came back with part of the work done
  Counter continue_eexist{0};
  Counter continue_eagain{0};

  Counter prefetch_issued{0};
  Counter prefetch_useful{0};
  Counter prefetch_late{0};
  Counter prefetch_wasted{0};
  Counter prefetch_declined{0};
  Counter prefetch_pin_broken{0};

  // What the engine says of its experts (use_experts).
  Counter expert_layers{0};         // layers routed
  Counter expert_asked{0};          // distinct experts, over all layers
  Counter expert_asked_bytes{0};    // of their slices, seams aside
  Counter expert_missing_bytes{0};  // of these, neither resident nor on the way
  Counter expert_on_way_bytes{0};   // being fetched already
  Counter expert_ahead_bytes{0};    // resident because a lookahead had them fetched
  Counter expert_fetched_bytes{0};  // of slices that were read, for whatever reason

  // What earlier runs used most, fetched before a router had spoken (warm_start.cpp).
  Counter warm_slices{0};      // begun
  Counter warm_bytes{0};       // of these
  Counter warm_used_bytes{0};  // that a router named before they were given up, or as they came
  Counter warm_ended{0};       // 1: no more will begin

  // Guesses of what the next layer chooses (look_ahead).
  Counter lookahead_asked{0};          // choices that had been guessed at
  Counter lookahead_right{0};          // of these, among as many likeliest experts
  Counter lookahead_issued_bytes{0};   // slices that were begun to be fetched for it
  Counter lookahead_dropped_bytes{0};  // of these, not chosen before they had room
  Counter lookahead_calls{0};
  Counter lookahead_ns{0};      // that the program's threads have spent guessing and learning
  Counter lookahead_rested{0};  // layers without a guess, since it did not pay

  Counter reconcile_checks{0};
  Counter reconcile_max_divergence_bytes{0};
  Counter armed{0};          // tripwires set
  Counter tripwires{0};      // and tripped
  Counter punched_ahead{0};  // evictions before the room was needed
  Counter queue_high_water{0};

  // What the policy makes of the workload (OrderReport), as of the last signal.
  Counter order_mode{0};
  Counter order_streams{0};
  Counter order_cycles{0};
  Counter order_signals{0};
  Counter order_surprises{0};
  Counter order_replans{0};
  Counter order_fallbacks{0};
  Counter plan_fixed_bytes{0};
  Counter plan_streamed_bytes{0};

  LatencyHistogram fault_ns;     // from reading the message to the wake-up
  LatencyHistogram overhead_ns;  // a demand fetch's share of that beside its read
  LatencyHistogram trip_ns;      // the same for a tripwire
  LatencyHistogram read_ns;      // one fetch's read alone
  LatencyHistogram punch_ns;
};

}  // namespace resid

#pragma once
// Whether to map a large chunk by one entry, by what that has cost of late.
//
// MADV_COLLAPSE first waits until every processor has put aside the pages it holds back
// (lru_add_drain_all in madvise_collapse, Linux 6.1 to 6.18). That is microseconds on a few quiet
// processors, a hundred of them on sixteen, and milliseconds beside a program that allocates; page
// by page takes 125 us, but can be done ahead of need, all but the first page.

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace resid {

// Any thread; relaxed, since a stale answer costs microseconds and nothing else.
class MapCost {
 public:
  static constexpr std::uint64_t kQuickNs = 40'000;  // what a first touch may wait for
  static constexpr std::uint64_t kSlowNs = 500'000;  // page by page would have been faster
  static constexpr std::uint32_t kPause = 32;        // chunks after a slow one

  void took(std::uint64_t ns) {
    if (ns > kSlowNs) pause_.store(kPause, std::memory_order_relaxed);
    // One slow call is for the pause to answer, not for the mean.
    const std::uint64_t counted = std::min(ns, kSlowNs);
    const std::uint64_t mean = mean_ns_.load(std::memory_order_relaxed);
    mean_ns_.store(mean == 0 ? counted : (15 * mean + counted) / 16, std::memory_order_relaxed);
  }
  // Whether to do it at all now. Asking counts.
  bool worthwhile() {
    const std::uint32_t left = pause_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    pause_.store(left - 1, std::memory_order_relaxed);  // about: others count too
    return false;
  }
  // Whether it can be left to the first touch.
  bool quick() const { return mean_ns_.load(std::memory_order_relaxed) <= kQuickNs; }

 private:
  std::atomic<std::uint64_t> mean_ns_{0};
  std::atomic<std::uint32_t> pause_{0};
};

}  // namespace resid

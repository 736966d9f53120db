#pragma once
// Where app views lie in the address space. Sorted, disjoint ranges under a lock of their own
// (taken after the accounting lock, never before it), with room for many: a lookup on the fault
// thread allocates nothing.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "policy/policy.hpp"

namespace resid {

struct View {
  std::uint64_t begin = 0;  // addresses
  std::uint64_t end = 0;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;  // of `begin`, in the region
};

// A stretch of addresses that shows a stretch of a region.
struct ViewSpan {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
};

class ViewTable {
 public:
  ViewTable() { views_.reserve(64); }

  void add(const View& view);
  // Cuts [begin, end) out of every view; what was cut is appended to `cut`.
  void remove(std::uint64_t begin, std::uint64_t end, std::vector<View>& cut);
  bool find(std::uint64_t address, View& found) const;
  bool overlaps(std::uint64_t begin, std::uint64_t end) const;
  // The part of the first view that meets [begin, end), if any.
  bool first_in(std::uint64_t begin, std::uint64_t end, View& found) const;
  std::vector<View> all() const;

  // Calls `f(ViewSpan)` for every piece of a view that shows a byte of [offset, offset + bytes) of
  // `region`. The lock is not held during the call; a view added meanwhile may be missed.
  template <class F>
  void for_each(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, F&& f) const {
    std::array<ViewSpan, 16> batch;
    std::uint64_t after = 0;
    for (;;) {
      const std::size_t n = collect(region, offset, bytes, after, batch);
      for (std::size_t i = 0; i < n; ++i)
        f(batch[i]);
      if (n < batch.size()) return;
      after = batch[n - 1].address + batch[n - 1].bytes;
    }
  }

 private:
  std::size_t collect(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes,
                      std::uint64_t after, std::array<ViewSpan, 16>& batch) const;
  std::vector<View>::const_iterator at_or_after(std::uint64_t address) const;
  void update_bounds();

  mutable std::mutex mutex_;
  std::vector<View> views_;
  // Bounds of all views, for a quick "surely not" without the lock.
  std::atomic<std::uint64_t> low_{~0ULL};
  std::atomic<std::uint64_t> high_{0};
};

}  // namespace resid

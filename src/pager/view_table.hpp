#pragma once
// Where app views lie in the address space. Sorted, disjoint ranges under a lock of their own
// (taken after the accounting lock, never before it), with room for many: a lookup on the fault
// thread allocates nothing.
//
// Whoever acts on a view's addresses (CONTINUE, POISON) does so inside with() or for_each(), which
// hold the lock shared. A view is removed here before the kernel unmaps it, and removing waits for
// them: so no request can reach what is mapped at the same address next. It might show pages that
// are half read.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
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
  // Cuts [begin, end) out of every view; what was cut is appended to `cut`. Call it before the
  // addresses are unmapped or mapped over.
  void remove(std::uint64_t begin, std::uint64_t end, std::vector<View>& cut);
  bool find(std::uint64_t address, View& found) const;
  bool overlaps(std::uint64_t begin, std::uint64_t end) const;
  std::vector<View> all() const;

  // Calls `f(View)` with the view of an address, if there is one. No view changes meanwhile; `f`
  // must not call the table.
  template <class F>
  void with(std::uint64_t address, F&& f) const {
    const std::shared_lock guard(mutex_);
    const auto it = at_or_after(address);
    if (it != views_.end() && address >= it->begin) f(*it);
  }
  // Calls `f(ViewSpan)` for every piece of a view that shows a byte of [offset, offset + bytes) of
  // `region`, under the same terms.
  template <class F>
  void for_each(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, F&& f) const {
    const std::shared_lock guard(mutex_);
    for (const View& v : views_) {
      if (v.region != region) continue;
      const std::uint64_t lo = std::max(offset, v.offset);
      const std::uint64_t hi = std::min(offset + bytes, v.offset + (v.end - v.begin));
      if (lo < hi) f(ViewSpan{v.begin + (lo - v.offset), hi - lo, lo});
    }
  }

 private:
  std::vector<View>::const_iterator at_or_after(std::uint64_t address) const;
  void update_bounds();

  mutable std::shared_mutex mutex_;
  std::vector<View> views_;
  // Bounds of all views, for a quick "surely not" without the lock.
  std::atomic<std::uint64_t> low_{~0ULL};
  std::atomic<std::uint64_t> high_{0};
};

}  // namespace resid

#include "pager/view_table.hpp"

#include <algorithm>

namespace resid {

// The first view that ends after `address`.
std::vector<View>::const_iterator ViewTable::at_or_after(std::uint64_t address) const {
  return std::upper_bound(views_.begin(), views_.end(), address,
                          [](std::uint64_t a, const View& v) { return a < v.end; });
}

void ViewTable::update_bounds() {
  low_.store(views_.empty() ? ~0ULL : views_.front().begin, std::memory_order_relaxed);
  high_.store(views_.empty() ? 0 : views_.back().end, std::memory_order_relaxed);
}

void ViewTable::add(const View& view) {
  // Room is made before the lock is taken: nobody may wait for the lock while its holder waits for
  // the allocator (I-13).
  std::vector<View> larger;
  for (;;) {
    std::size_t need = 0;
    {
      const std::lock_guard guard(mutex_);
      need = views_.size() + 2;
      if (larger.capacity() >= need || views_.capacity() >= need) {
        if (views_.capacity() < need) {
          larger.assign(views_.begin(), views_.end());
          views_.swap(larger);
        }
        views_.insert(at_or_after(view.begin), view);
        update_bounds();
        return;
      }
    }
    larger.reserve(need * 2);
  }
}

void ViewTable::remove(std::uint64_t begin, std::uint64_t end, std::vector<View>& cut) {
  if (!overlaps(begin, end)) return;
  std::vector<View> rest;
  for (;;) {
    std::size_t need = 0;
    {
      const std::lock_guard guard(mutex_);
      need = views_.size() + 1;
      if (rest.capacity() >= need && cut.capacity() - cut.size() >= need) {
        for (const View& v : views_) {
          const std::uint64_t lo = std::max(v.begin, begin);
          const std::uint64_t hi = std::min(v.end, end);
          if (lo >= hi) {
            rest.push_back(v);
            continue;
          }
          if (v.begin < lo) rest.push_back({v.begin, lo, v.region, v.offset});
          if (hi < v.end) rest.push_back({hi, v.end, v.region, v.offset + (hi - v.begin)});
          cut.push_back({lo, hi, v.region, v.offset + (lo - v.begin)});
        }
        views_.swap(rest);
        update_bounds();
        return;
      }
    }
    rest.reserve(need + 16);
    cut.reserve(cut.size() + need + 16);
  }
}

bool ViewTable::find(std::uint64_t address, View& found) const {
  const std::shared_lock guard(mutex_);
  const auto it = at_or_after(address);
  if (it == views_.end() || address < it->begin) return false;
  found = *it;
  return true;
}

bool ViewTable::overlaps(std::uint64_t begin, std::uint64_t end) const {
  if (end <= low_.load(std::memory_order_relaxed) ||
      begin >= high_.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::shared_lock guard(mutex_);
  const auto it = at_or_after(begin);
  return it != views_.end() && it->begin < end;
}

std::vector<View> ViewTable::all() const {
  const std::shared_lock guard(mutex_);
  return views_;
}

}  // namespace resid

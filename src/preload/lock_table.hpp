#pragma once
// What the program has locked with mlock: ranges of app views, each held by a pin.

#include <algorithm>
#include <utility>
#include <vector>

#include "preload/view_table.hpp"

namespace resid::preload {

// `Handle`: a move-only pin. Not thread safe: the session's lock guards it.
template <class Handle>
class LockTable {
 public:
  void add(Range range, Handle handle) { locks_.push_back({range, std::move(handle)}); }

  // Unlocks the range. A lock that reaches out of it is replaced by locks of its outer parts, made
  // by `pin(Range) -> optional<Handle>` before the old one is given up, so that what stays locked
  // is never evictable in between. An outer part that cannot be pinned keeps the whole old pin:
  // too much locked is safe, too little is not.
  template <class PinRange>
  void remove(Range range, PinRange&& pin) {
    std::vector<Entry> kept;
    kept.reserve(locks_.size() + 1);
    for (Entry& lock : locks_) {
      if (lock.range.end <= range.begin || lock.range.begin >= range.end) {
        kept.push_back(std::move(lock));
        continue;
      }
      const Range left{lock.range.begin, std::max(lock.range.begin, range.begin)};
      const Range right{std::min(lock.range.end, range.end), lock.range.end};
      std::vector<Entry> outer;
      bool complete = true;
      for (const Range& part : {left, right}) {
        if (part.bytes() == 0) continue;
        if (auto handle = pin(part)) {
          outer.push_back({part, std::move(*handle)});
        } else {
          complete = false;
        }
      }
      if (!complete) {
        kept.push_back(std::move(lock));
        continue;
      }
      for (Entry& entry : outer)
        kept.push_back(std::move(entry));
    }
    locks_ = std::move(kept);
  }

  void clear() { locks_.clear(); }

  // Locks follow their pages when a mapping moves (mremap). The range lies in one view.
  void move(Range from, std::uintptr_t to) {
    for (Entry& lock : locks_) {
      if (lock.range.begin >= from.begin && lock.range.end <= from.end) {
        const std::uintptr_t begin = to + (lock.range.begin - from.begin);
        lock.range = {begin, begin + lock.range.bytes()};
      }
    }
  }

  bool covers(std::uintptr_t address) const {
    return std::any_of(locks_.begin(), locks_.end(), [&](const Entry& lock) {
      return address >= lock.range.begin && address < lock.range.end;
    });
  }
  std::size_t size() const { return locks_.size(); }

 private:
  struct Entry {
    Range range;
    Handle handle;
  };
  std::vector<Entry> locks_;
};

}  // namespace resid::preload

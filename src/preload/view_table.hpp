#pragma once
// Which address ranges of the program are app views, and of what.
//
// The pager knows this too; the library keeps its own table because the fork handler needs it at a
// moment when no pager function may be called, and because a call of the program may span views,
// holes and other mappings, which have to be treated apart.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace resid::preload {

// [begin, end) of addresses.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct View {
  Range range;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;  // of range.begin, in the region
};

// A part of a queried range: inside a view, or between views.
struct Piece {
  Range range;
  bool is_view = false;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
};

// Not thread safe: the session's lock guards it.
class ViewTable {
 public:
  // `view` must not overlap any other.
  void add(const View& view);
  // Forgets the range; views that reach out of it keep their outer parts. Returns the bytes
  // forgotten.
  std::uint64_t remove(Range range);
  // The range cut at view boundaries, in order, without gaps.
  std::vector<Piece> pieces(Range range) const;
  // The view that holds the whole range, together with those that continue it: the kernel would
  // have merged them into one mapping.
  std::optional<View> holder(Range range) const;
  bool empty() const { return views_.empty(); }

  // Calls `f(View)` for every view. Allocates nothing: usable in a forked child.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [begin, view] : views_)
      f(view);
  }

 private:
  std::map<std::uintptr_t, View> views_;  // by begin
};

}  // namespace resid::preload

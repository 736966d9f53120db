#include "preload/view_table.hpp"

#include <algorithm>

namespace resid::preload {

void ViewTable::add(const View& view) {
  views_.emplace(view.range.begin, view);
}

std::uint64_t ViewTable::remove(Range range) {
  std::uint64_t forgotten = 0;
  auto it = views_.upper_bound(range.begin);
  if (it != views_.begin()) --it;
  while (it != views_.end() && it->second.range.begin < range.end) {
    const View view = it->second;
    if (view.range.end <= range.begin) {
      ++it;
      continue;
    }
    it = views_.erase(it);
    if (view.range.begin < range.begin) {
      View left = view;
      left.range.end = range.begin;
      views_.emplace(left.range.begin, left);
    }
    if (view.range.end > range.end) {
      View right = view;
      right.range.begin = range.end;
      right.offset += range.end - view.range.begin;
      it = views_.emplace(right.range.begin, right).first;
      ++it;
    }
    forgotten += std::min(view.range.end, range.end) - std::max(view.range.begin, range.begin);
  }
  return forgotten;
}

std::vector<Piece> ViewTable::pieces(Range range) const {
  std::vector<Piece> out;
  std::uintptr_t at = range.begin;
  auto it = views_.upper_bound(range.begin);
  if (it != views_.begin()) --it;
  for (; it != views_.end() && it->second.range.begin < range.end; ++it) {
    const View& view = it->second;
    if (view.range.end <= at) continue;
    const std::uintptr_t begin = std::max(at, view.range.begin);
    const std::uintptr_t end = std::min(range.end, view.range.end);
    if (begin > at) out.push_back({.range = {at, begin}});
    out.push_back({.range = {begin, end},
                   .is_view = true,
                   .region = view.region,
                   .offset = view.offset + (begin - view.range.begin)});
    at = end;
  }
  if (at < range.end) out.push_back({.range = {at, range.end}});
  return out;
}

std::optional<View> ViewTable::holder(Range range) const {
  auto it = views_.upper_bound(range.begin);
  if (it == views_.begin()) return std::nullopt;
  --it;
  if (range.begin >= it->second.range.end) return std::nullopt;
  View whole = it->second;
  for (++it; it != views_.end(); ++it) {
    const View& next = it->second;
    if (next.range.begin != whole.range.end || next.region != whole.region ||
        next.offset != whole.offset + whole.range.bytes()) {
      break;
    }
    whole.range.end = next.range.end;
  }
  if (range.end > whole.range.end) return std::nullopt;
  return whole;
}

}  // namespace resid::preload

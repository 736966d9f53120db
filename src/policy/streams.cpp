#include "policy/streams.hpp"

#include <algorithm>

namespace resid {

// ---- The order

void Streams::grow(std::uint32_t chunks, std::uint32_t entries) {
  order_.reserve(entries);
  places_.grow(chunks, entries);
}

void Streams::assign(std::span<const ChunkId> order) {
  order_.assign(order.begin(), order.end());
  index_order();
  count_ = 0;
  latest_ = 0;
  streams_[0] = {};
  last_jump_.reset();
  closed_path_.reset();
}

void Streams::index_order() {
  places_.index(order_);
  first_ = 0;
  length_ = size();
}

void Streams::join(std::span<const Joiner> joiners) {
  if (joiners.empty()) return;
  for (std::uint32_t s = 0; s < count_; ++s) {
    Stream& stream = streams_[s];
    const auto before = std::partition_point(joiners.begin(), joiners.end(),
                                             [&](const Joiner& j) { return j.after < stream.at; });
    stream.at += static_cast<std::uint32_t>(before - joiners.begin());
  }
  // From the end backwards every entry is written to a place that has been read already.
  std::size_t from = order_.size();
  std::size_t to = from + joiners.size();
  order_.resize(to);
  for (std::size_t j = joiners.size(); j > 0; --j) {
    while (from > joiners[j - 1].after + std::size_t{1})
      order_[--to] = order_[--from];
    order_[--to] = joiners[j - 1].chunk;
  }
  index_order();
  last_jump_.reset();
}

std::uint32_t Streams::following(std::uint32_t position) const {
  const std::uint32_t step = step_of(position) + 1;
  return path().position(step == length_ ? 0 : step);
}

std::uint32_t Streams::preceding(std::uint32_t position) const {
  const std::uint32_t step = step_of(position);
  return path().position(step == 0 ? length_ - 1 : step - 1);
}

std::uint32_t Streams::ahead(ChunkId chunk, std::uint32_t from) const {
  if (!places_.contains(chunk) || length_ == 0) return kNone;
  const std::uint32_t found = places_.at_or_after(chunk, from);
  // Between `from` and the end of the path?
  if (step_of(found) >= step_of(from) && step_of(found) < length_) return found;
  const std::uint32_t again = places_.at_or_after(chunk, first_);
  return step_of(again) < length_ ? again : kNone;
}

// From the last place of `chunk` in the path before `from` to `from`: 1..length.
std::uint32_t Streams::steps_back(ChunkId chunk, std::uint32_t from) const {
  const std::uint32_t found = places_.before(chunk, from);
  if (step_of(found) < step_of(from)) return step_of(from) - step_of(found);
  // None in the path before `from`: the last one in the path, which is the last one before the
  // entry behind it.
  const std::uint32_t end = whole() ? first_ : path().position(length_);
  const std::uint32_t again = places_.before(chunk, end);
  return step_of(from) + (length_ - step_of(again));
}

// ---- The path

void Streams::restrict(Stretch stretch) {
  const std::uint32_t length = stretch.last >= stretch.first
                                   ? stretch.last - stretch.first + 1
                                   : stretch.last + (size() - stretch.first) + 1;
  first_ = stretch.first;
  length_ = length;
  const std::uint32_t latest = latest_ < count_ ? streams_[latest_].at : kNone;
  for (std::uint32_t s = count_; s > 0; --s) {
    if (step_of(streams_[s - 1].at) >= length_) drop(s - 1);
  }
  for (std::uint32_t s = 0; s < count_; ++s) {
    if (streams_[s].at == latest) latest_ = s;
    streams_[s].untaken = std::min(streams_[s].untaken, length_ - 1);
  }
  last_jump_.reset();
  closed_path_.reset();
}

void Streams::widen() {
  first_ = 0;
  length_ = size();
  last_jump_.reset();
  closed_path_.reset();
}

std::optional<Stretch> Streams::extended(ChunkId chunk, std::uint32_t reach) const {
  if (whole() || !in_order(chunk)) return std::nullopt;
  const std::uint32_t last = path().position(length_ - 1);
  const auto around = [&](std::uint32_t from, std::uint32_t to) {
    return to >= from ? to - from : to + (size() - from);
  };
  const std::uint32_t behind = places_.at_or_after(chunk, last);
  if (around(last, behind) <= reach) return Stretch{first_, behind};
  // The last place before the path: a chunk has few, and this is rare.
  std::uint32_t nearest = kNone;
  for (const std::uint32_t position : places_.of(chunk)) {
    if (nearest == kNone || around(position, first_) < around(nearest, first_)) nearest = position;
  }
  if (around(nearest, first_) <= reach) return Stretch{nearest, last};
  return std::nullopt;
}

// ---- The streams

void Streams::start(std::uint32_t position) {
  streams_[0] = {position, 0, 0};
  count_ = 1;
  latest_ = 0;
  last_jump_.reset();
  closed_path_.reset();
}

bool Streams::is_read(std::uint32_t position) const {
  for (std::uint32_t s = 0; s < count_; ++s) {
    if (streams_[s].at == position) return true;
  }
  return false;
}

std::uint32_t Streams::distance(ChunkId chunk) const {
  if (count_ == 0) return step_of(ahead(chunk, first_));
  std::uint32_t nearest = length_;
  for (std::uint32_t s = 0; s < count_; ++s) {
    const std::uint32_t at = streams_[s].at;
    nearest = std::min(nearest, steps(at, ahead(chunk, at)));
  }
  return nearest;
}

bool Streams::foreseen(std::uint32_t from, std::uint32_t by, const IndexSet& expected,
                       std::uint32_t gap) const {
  if (by <= std::max<std::uint32_t>(1, std::min(kAlways, length_ / 16))) return true;
  // A wide step is not believed even in silence: hardly any signal then tells a jump from it.
  const std::uint64_t widest = std::uint64_t{gap} * 2 + kStepBack;
  if (length_ > 64 && by > std::max<std::uint64_t>(length_ / 4, widest)) return false;
  if (by <= kStepBack) return true;
  std::uint32_t at = from;
  for (std::uint32_t skipped = 0; skipped <= kSkips; ++skipped) {
    const std::uint32_t next = expected.next_around(at + 1);
    if (next == kNone) return true;
    const std::uint32_t so_far = steps(from, next);
    // Around the circle: no more of them lies on the way.
    if (so_far <= steps(from, at) || so_far + kStepBack >= by) return true;
    at = next;
  }
  return false;
}

Streams::Step Streams::signal(ChunkId chunk, const IndexSet& expected, std::uint32_t gap) {
  advanced_ = 0;
  came_round_ = false;
  closed_path_.reset();
  if (count_ == 0) {
    start(ahead(chunk, first_));
    return Step::first;
  }
  // S-1
  std::uint32_t best = kMost;
  std::uint32_t best_way = kNone;
  std::uint32_t best_to = 0;
  Step kind = Step::jump;
  for (std::uint32_t s = 0; s < count_; ++s) {
    const std::uint32_t from = streams_[s].at;
    const std::uint32_t to = ahead(chunk, from);
    const std::uint32_t by = steps(from, to);
    const std::uint32_t back = by == 0 ? length_ : steps_back(chunk, from);
    if (back <= kStepBack && back < by) {
      if (back < best_way) {
        best = s;
        best_way = back;
        kind = Step::back;
      }
    } else if (by < best_way || (by == best_way && kind == Step::back)) {
      if (!foreseen(from, by, expected, gap)) continue;
      best = s;
      best_way = by;
      best_to = to;
      kind = Step::ahead;
    }
  }
  if (kind == Step::jump) {
    jump(latest(), ahead(chunk, latest()), gap);
    return kind;
  }
  Stream& stream = streams_[best];
  latest_ = best;
  stream.idle = 0;
  if (kind == Step::ahead) advance(stream, best_to, best_way);
  drop_idle(gap);
  return kind;
}

void Streams::advance(Stream& stream, std::uint32_t to, std::uint32_t by) {
  came_round_ = step_of(to) < step_of(stream.at);
  advanced_ = by;
  stream.at = to;
  stream.untaken = std::min(stream.untaken + by, length_ - 1);
  for (std::uint32_t s = 0; s < count_; ++s) {
    if (&streams_[s] != &stream) streams_[s].idle += by;
  }
  if (last_jump_) last_jump_->travel += by;
}

void Streams::jump(std::uint32_t from, std::uint32_t to, std::uint32_t gap) {
  // S-5. The ends are seen only as exactly as chunks signal.
  const std::uint32_t slack = std::min(kStepBack + gap, length_ / 8);
  const auto near = [&](std::uint32_t a, std::uint32_t b) {
    return std::min(steps(a, b), steps(b, a)) <= slack;
  };
  if (last_jump_ && near(last_jump_->from, from) && near(last_jump_->to, to)) {
    const std::uint32_t first = steps(last_jump_->to, to) <= slack ? last_jump_->to : to;
    const std::uint32_t last = steps(from, last_jump_->from) <= slack ? last_jump_->from : from;
    const std::uint32_t way = steps(last_jump_->to, from);
    const std::uint64_t travel = last_jump_->travel;
    const bool all_the_way = travel + slack >= way && travel <= way + std::uint64_t{slack};
    if (all_the_way && steps(first, last) + 1 + kStepBack < length_) {
      closed_path_ = Stretch{first, last};
    }
  }
  last_jump_ = Jump{from, to, 0};
  // S-3
  if (count_ < kMost) {
    latest_ = count_++;
  } else {
    latest_ = 0;
    for (std::uint32_t s = 1; s < count_; ++s) {
      if (streams_[s].idle > streams_[latest_].idle) latest_ = s;
    }
  }
  streams_[latest_] = {to, 0, 0};
}

void Streams::drop_idle(std::uint32_t gap) {
  if (count_ < 2) return;
  const std::uint64_t few = std::min(kIdleSteps, length_ / 4);
  const std::uint64_t limit =
      std::min<std::uint64_t>(std::max(few, std::uint64_t{gap} * kIdleSignals), length_) *
      (count_ - 1);
  for (std::uint32_t s = count_; s > 0; --s) {
    if (s - 1 != latest_ && streams_[s - 1].idle > limit) drop(s - 1);
  }
}

void Streams::drop(std::uint32_t stream) {
  --count_;
  streams_[stream] = streams_[count_];
  if (latest_ == count_) latest_ = stream;
  if (latest_ >= count_) latest_ = 0;  // it was the one
}

std::uint32_t Streams::take_passed(std::uint32_t i, const IndexSet& set) {
  Stream& stream = streams_[i];
  while (stream.untaken >= 2) {
    const std::uint32_t step = step_of(stream.at);
    const std::uint32_t start = path().position(
        step >= stream.untaken ? step - stream.untaken : step + (length_ - stream.untaken));
    const std::uint32_t found = set.next_around(start);
    const std::uint32_t behind = found == kNone ? 0 : steps(found, stream.at);
    if (behind < 2 || behind > stream.untaken) {
      // None among them. The entry one step behind is still to come.
      stream.untaken = 1;
      return kNone;
    }
    stream.untaken = behind - 1;
    // Another stream may be just there; it will pass it too.
    if (!is_read(found) && !is_read(following(found))) return found;
  }
  return kNone;
}

// ---- What comes next

LookAhead::LookAhead(const Streams& streams, const IndexSet& set) : streams_(streams), set_(set) {
  if (streams.count() == 0) {
    Look& look = looks_[0];
    look.from = streams.path().first;
    look.at = set.next_around(look.from);
    if (look.at == Streams::kNone) return;
    look.steps = streams.steps(look.from, look.at);
    look.limit = streams.length();
    count_ = 1;
    return;
  }
  count_ = streams.count();
  for (std::uint32_t s = 0; s < count_; ++s) {
    Look& look = looks_[s];
    look.from = streams.position(s);
    look.at = set.next_around(look.from + 1);
    look.steps = look.at == Streams::kNone ? 0 : streams.steps(look.from, look.at);
    if (look.steps == 0) continue;
    look.limit = streams.length();
    for (std::uint32_t other = 0; other < count_; ++other) {
      if (other == s) continue;
      const std::uint32_t to = streams.steps(look.from, streams.position(other));
      // Of two at one place the first one looks.
      if (to != 0 || other < s) look.limit = std::min(look.limit, to);
    }
  }
}

bool LookAhead::next() {
  Look* nearest = nullptr;
  for (Look& look : std::span(looks_).first(count_)) {
    if (look.steps < look.limit && (nearest == nullptr || look.steps < nearest->steps)) {
      nearest = &look;
    }
  }
  if (nearest == nullptr) return false;
  position_ = nearest->at;
  steps_ = nearest->steps;
  nearest->at = set_.next_around(nearest->at + 1);
  nearest->steps = streams_.steps(nearest->from, nearest->at);
  if (nearest->steps <= steps_) nearest->limit = 0;  // around the circle
  return true;
}

}  // namespace resid

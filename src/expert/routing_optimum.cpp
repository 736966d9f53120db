// The optimum for experts. With ExpertHold::none it is Belady's rule on the string of requests.
// `pending` is the same: what is still to come of this token is what is used next of all, so the
// furthest never is among it while there is a choice.
//
// With `token` what this token has used may not go before the token's end, although its next use
// may be far. Proof that the furthest of the others is best: take an optimal schedule that evicts x
// where the rule evicts y, both allowed, y's next use further. Until x is used, let y's place be
// x's: evict y now, and where the schedule evicts y later, evict x. Both are out of this token, so
// the place was free to go at any time; x's next use comes before y's, so it hits where the old
// schedule missed, or costs no more. Repeat. (This needs that a token's experts fit.)

#include <algorithm>
#include <new>

#include "expert/routing_checks.hpp"
#include "trace/belady.hpp"
#include "trace/use_set.hpp"

namespace resid {
namespace {

// One cache's string of requests; hit(position) is called for each hit.
class Solver {
 public:
  Solver(std::span<const std::uint32_t> next, std::uint64_t cap, std::uint32_t used)
      : next_(next), cap_(cap), used_(used), free_(static_cast<std::uint32_t>(next.size())) {}

  template <class OnHit>
  void run(bool hold_token, const OnHit& hit) {
    const auto n = static_cast<std::uint32_t>(next_.size());
    for (std::uint32_t i = 0; i < n; ++i) {
      if (free_.contains(i)) {
        free_.erase(i);
        hit(i);
      } else if (residents_ < cap_) {
        ++residents_;
      } else {
        evict(i - i % used_ + used_);
      }
      served_.push_back(next_[i]);
      if (!hold_token || (i + 1) % used_ == 0) release();
    }
  }

 private:
  // What was used may go from now on; what is never used again goes at once.
  void release() {
    for (const std::uint32_t next : served_) {
      if (next == solver::kNeverAgain) {
        --residents_;
      } else {
        free_.insert(next);
      }
    }
    served_.clear();
  }

  // Of those outside this token the furthest, else of those it has used, else of those to come.
  void evict(std::uint32_t token_end) {
    const std::uint32_t furthest = free_.furthest();
    const bool outside = furthest != UseSet::kNone && furthest >= token_end;
    if (outside || served_.empty()) {
      free_.erase(furthest);
    } else {
      served_.erase(std::max_element(served_.begin(), served_.end()));
    }
  }

  std::span<const std::uint32_t> next_;
  std::uint64_t cap_;
  std::uint32_t used_;
  UseSet free_;                        // next uses of residents that may go
  std::vector<std::uint32_t> served_;  // next uses of what this token has used and holds
  std::uint64_t residents_ = 0;
};

// The requests of layers [first, first + count), ids from 0.
std::vector<std::uint32_t> requests(const RoutingTrace& trace, std::size_t first,
                                    std::size_t count) {
  std::vector<std::uint32_t> out;
  out.reserve(trace.tokens.size() * count * trace.used);
  for (std::size_t token = 0; token < trace.tokens.size(); ++token) {
    for (std::size_t layer = 0; layer < count; ++layer) {
      for (const ExpertId expert : trace.choice(token, first + layer))
        out.push_back(static_cast<std::uint32_t>(layer * trace.experts) + expert);
    }
  }
  return out;
}

Result<void> solve(const RoutingTrace& trace, std::size_t first, std::size_t count,
                   std::uint64_t cap, ExpertHold hold, RoutingHits& out) {
  const auto asked = requests(trace, first, count);
  const auto next = solver::next_uses(asked, static_cast<std::uint32_t>(count * trace.experts));
  if (!next) return tl::unexpected(next.error());
  Solver(*next, cap, trace.used).run(hold == ExpertHold::token, [&](std::uint32_t at) {
    ++out.hits[first + at / trace.used % count];
  });
  return {};
}

}  // namespace

Result<RoutingHits> routing_optimum(const RoutingTrace& trace, const ExpertRoom& room) try {
  if (auto ok = routing::check(trace, room); !ok) return tl::unexpected(ok.error());
  const std::size_t layers = trace.layers.size();
  RoutingHits out{std::vector<std::uint64_t>(layers, 0), trace.tokens.size() * trace.used};
  if (room.pool) {
    auto ok = solve(trace, 0, layers, routing::pool_cap(room), room.hold, out);
    if (!ok) return tl::unexpected(ok.error());
    return out;
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    auto ok = solve(trace, layer, 1, room.caps[layer], room.hold, out);
    if (!ok) return tl::unexpected(ok.error());
  }
  return out;
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "routing trace", "no memory to find the optimum");
}

}  // namespace resid

#pragma once
// What caches of experts would have hit on a routing trace: under a ranking, and at best.
//
// Each layer has a cache of its own with room for its cap; or all share a pool with room for the
// sum of the caps. Caches begin empty, and a ranking begins knowing nothing of the model. Experts
// are asked for one after the other, in the order of the trace: token by token, layer by layer, by
// rank. What must not go meanwhile: expert_cache.hpp.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "policy/expert_cache.hpp"
#include "trace/routing.hpp"

namespace resid {

struct ExpertRoom {
  std::vector<std::uint32_t> caps;  // by layer of the trace, at least 1 each
  bool pool = false;
  ExpertHold hold = ExpertHold::none;

  // The same cap for every layer.
  static ExpertRoom of(const RoutingTrace& trace, std::uint32_t cap) {
    ExpertRoom room;
    room.caps.assign(trace.layers.size(), cap);
    return room;
  }
};

struct RoutingHits {
  std::vector<std::uint64_t> hits;  // by layer of the trace
  std::uint64_t asked = 0;          // in each layer

  double rate(std::size_t layer) const {
    return static_cast<double>(hits[layer]) / static_cast<double>(asked);
  }
  double rate() const;  // over all layers
};

// Statuses: usage (caps that do not fit the trace, no such ranking), out_of_memory.
Result<RoutingHits> routing_hits(const RoutingTrace& trace, std::string_view ranking,
                                 const ExpertRoom& room);

// The most hits that any schedule of the same room and hold can have: the furthest next use goes
// (L. A. Belady, IBM Systems Journal 5(2), 1966), of those that may. O(log n) a use.
//
// With ExpertHold::token and a cap below the number of experts a token uses the rule is the same,
// but no longer proven best.
Result<RoutingHits> routing_optimum(const RoutingTrace& trace, const ExpertRoom& room);

}  // namespace resid

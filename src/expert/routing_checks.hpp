#pragma once
// What both halves of routing_hits.hpp need.

#include <cstdint>

#include "expert/routing_hits.hpp"

namespace resid::routing {

Result<void> check(const RoutingTrace& trace, const ExpertRoom& room);
std::uint64_t pool_cap(const ExpertRoom& room);

}  // namespace resid::routing

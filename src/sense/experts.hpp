#pragma once
// The experts of all files under control, as policies that rank them want them.

#include <span>

#include "policy/expert_map.hpp"
#include "sense/order.hpp"

namespace resid {

ExpertMap expert_map(std::span<const OrderedFile> files);

}  // namespace resid

#pragma once
// The makers behind make_policy(), one a policy file.

#include <memory>

#include "policy/policy.hpp"

namespace resid {

std::unique_ptr<Policy> make_lru();
std::unique_ptr<Policy> make_layer_order_learned();
std::unique_ptr<Policy> make_layer_order_declared();
std::unique_ptr<Policy> make_layer_order_spread();
std::unique_ptr<Policy> make_expert_lru();
std::unique_ptr<Policy> make_expert_lfru();
std::unique_ptr<Policy> make_expert_foresight();

}  // namespace resid

#pragma once
// Which chunks are slices of which experts, for policies that rank experts.

#include <cstdint>
#include <vector>

#include "base/expert_id.hpp"
#include "policy/expert_ranking.hpp"

namespace resid {

struct ExpertPlace {
  static constexpr std::uint32_t kNone = 0xffffffffU;
  std::uint32_t layer = kNone;  // by position among the layers that have experts
  ExpertId expert = 0;
};

struct ExpertMap {
  ExpertShape shape;                         // layers 0: no experts
  std::vector<ExpertPlace> places;           // by chunk; seams, which two slices share, are none
  std::vector<std::uint32_t> layer_numbers;  // as in the model, rising; by position
};

}  // namespace resid

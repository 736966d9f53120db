#pragma once
// How often each expert of a model was chosen, as far as it is remembered.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/expert_id.hpp"

namespace resid {

// What is long ago may have faded, so that numbers of tokens and uses are no whole ones.
struct ExpertUsage {
  std::uint32_t experts = 0;          // of each layer
  std::vector<std::uint32_t> layers;  // as numbered in the model, rising
  std::vector<double> tokens;         // by position among the layers: what its router has seen
  std::vector<float> uses;            // by position and expert: of these, how many chose it

  bool empty() const { return layers.empty(); }
  std::span<const float> of(std::size_t position) const {
    return std::span(uses).subspan(position * experts, experts);
  }
};

}  // namespace resid

#pragma once

#include <cstdint>

namespace resid {

// An expert within its layer.
using ExpertId = std::uint16_t;

inline constexpr std::uint32_t kExpertsMost = 65535;     // of a layer
inline constexpr std::uint32_t kExpertsUsedMost = 1024;  // by a token in a layer

}  // namespace resid

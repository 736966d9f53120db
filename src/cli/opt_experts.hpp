#pragma once
// The half of `residctl opt` that judges routing traces; see opt.cpp for the other.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cli.hpp"

namespace resid::cli {

struct ExpertOptions {
  std::vector<std::uint32_t> caps;
  std::uint32_t experts = 0;  // of a layer; 0: as the trace names
  std::string hold = "none";
  bool pool = false;
};

// Adds --cap and what belongs to it.
void add_expert_options(CLI::App& app, ExpertOptions& options);

// Prints the hit rates of the rankings in `policies` (all when empty), of lru and of the optimum.
Result<int> judge_experts(const std::string& trace, const std::vector<std::string>& policies,
                          const ExpertOptions& options, const Context& context);

}  // namespace resid::cli

#pragma once
// The report of one run: JSON for programs (schema 1), a few lines for people.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"
#include "control/expert_area.hpp"
#include "control/run_page.hpp"

namespace resid {

// What the run page does not know.
struct RunFacts {
  std::vector<std::string> command;
  int exit_code = 0;
  double wall_s = 0;
  std::string swap_guarantee;     // as host::name()
  std::string control_group;      // path of the run's own group; empty when it had none
  std::uint64_t group_limit = 0;  // bytes; 0 = none
  std::optional<std::uint64_t> kernel_shmem_peak;  // the group's shmem, the most that was seen
  std::uint64_t kernel_shmem_lag = 0;  // how far that figure may be off; see host::figures_lag()
  std::uint64_t oom_kills = 0;
  std::optional<Failure> failure;
  const ExpertBoard* board = nullptr;  // what became of the experts; nullptr: not known
};

// The settings that decide what a run does, in a fixed order and spelling; equal settings give
// equal text.
std::string config_text(const RunConfig& config);
// FNV-1a (64 bits) of config_text, in hexadecimal: joins rows of different runs (the same in every
// version of residctl that knows the same settings).
std::string config_hash(const RunConfig& config);

// The most that was ever resident, by whoever counted most: us, the memory file's own figure, or
// the control group's.
std::uint64_t peak_resident(const RunPage& page, const RunFacts& facts);
// True when that never exceeded the budget by more than one chunk.
bool budget_kept(const RunPage& page, const RunFacts& facts);

nlohmann::json run_report(const RunPage& page, const RunFacts& facts);
// The document as written to files and stdout.
std::string report_text(const nlohmann::json& report);
std::string run_summary(const RunPage& page, const RunFacts& facts);

}  // namespace resid

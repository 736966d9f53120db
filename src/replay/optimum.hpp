#pragma once
// The offline optimum of a replay's own references (P-4).

#include <span>

#include "replay/replay.hpp"

namespace resid {

Result<ReplayOptimum> optimum_of(const Workload& workload, std::span<const TraceRecord> references,
                                 const ReplayConfig& config, std::uint64_t room);

}  // namespace resid

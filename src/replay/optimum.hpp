#pragma once
// The offline optimum of a replay's own references (P-4).

#include <span>

#include "replay/replay.hpp"

namespace resid {

Result<ReplayOptimum> optimum_of(const Workload& workload, std::span<const TraceRecord> references,
                                 const ReplayConfig& config);

}  // namespace resid

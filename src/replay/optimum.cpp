#include "replay/optimum.hpp"

#include <vector>

#include "replay/trace_files.hpp"
#include "trace/optimum.hpp"

namespace resid {

Result<ReplayOptimum> optimum_of(const Workload& workload, std::span<const TraceRecord> references,
                                 const ReplayConfig& config, std::uint64_t room) {
  std::vector<std::uint32_t> chunks;
  chunks.reserve(references.size());
  for (const TraceRecord& r : references)
    chunks.push_back(r.chunk);
  auto found = optimum_bytes(trace_header(workload, config, TraceKind::reference), chunks, room);
  if (!found) return tl::unexpected(found.error());
  return ReplayOptimum{found->lower_bytes, found->upper_bytes, found->exact};
}

}  // namespace resid

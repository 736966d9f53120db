#pragma once
// The trace files of one replay: the pager's events as they come, the workload's references at the
// end.

#include <array>
#include <optional>
#include <span>
#include <string>

#include "replay/replay.hpp"
#include "trace/ring.hpp"
#include "trace/trace.hpp"

namespace resid {

class TraceFiles {
 public:
  // Makes the files that `config` names and tells the ring which events are wanted.
  static Result<TraceFiles> create(const Workload& workload, const ReplayConfig& config,
                                   TraceRing& ring);
  // Writes what has come into the ring.
  Result<void> drain();
  // Drains once more, writes the references, and gives all files their names.
  Result<void> finish(std::span<const TraceRecord> references);

 private:
  explicit TraceFiles(TraceRing& ring) : ring_(&ring) {}
  std::optional<TraceWriter>& writer(TraceKind kind) {
    return writers_[static_cast<std::size_t>(kind)];
  }
  TraceRing* ring_;
  std::array<std::optional<TraceWriter>, 5> writers_;  // by TraceKind
};

// The header that every trace of this run carries.
TraceHeader trace_header(const Workload& workload, const ReplayConfig& config, TraceKind kind);

}  // namespace resid

#include "replay/trace_files.hpp"

#include <algorithm>
#include <utility>

namespace resid {

TraceHeader trace_header(const Workload& workload, const ReplayConfig& config, TraceKind kind) {
  TraceHeader header;
  header.kind = kind;
  header.model = workload.path;
  header.model_bytes = workload.file.bytes;
  header.model_fingerprint = workload.fingerprint;
  header.config_hash = config.config_hash;
  if (workload.cyclic_scan) {
    header.cycle_chunks = workload.plan.size();
    header.passes = config.drive.passes;
  }
  // Of the last one, what the file has: what is read is counted so too.
  for (const Chunk& c : workload.plan.chunks()) {
    header.chunk_bytes.push_back(static_cast<std::uint32_t>(
        std::min<std::uint64_t>(c.bytes, workload.file.bytes - c.offset)));
  }
  return header;
}

Result<TraceFiles> TraceFiles::create(const Workload& workload, const ReplayConfig& config,
                                      TraceRing& ring) {
  TraceFiles files(ring);
  const TracePaths& paths = config.traces;
  const std::array<std::pair<TraceKind, const std::string*>, 4> wanted{
      {{TraceKind::reference, &paths.reference},
       {TraceKind::fault, &paths.fault},
       {TraceKind::fetch, &paths.fetch},
       {TraceKind::victim, &paths.victim}}};
  std::uint32_t bits = 0;
  for (const auto& [kind, path] : wanted) {
    if (path->empty()) continue;
    auto writer = TraceWriter::create(*path, trace_header(workload, config, kind));
    if (!writer) return tl::unexpected(writer.error());
    files.writer(kind).emplace(std::move(*writer));
    bits |= TraceRing::bit(kind);
  }
  ring.wanted.store(bits);
  return files;
}

Result<void> TraceFiles::drain() {
  std::array<TraceEvent, 512> events;
  for (;;) {
    const std::size_t n = ring_->pop(events);
    if (n == 0) return {};
    for (const TraceEvent& event : std::span(events).first(n)) {
      auto& to = writer(event.kind);
      if (!to) continue;
      if (auto ok = to->append({&event.record, 1}); !ok) return ok;
    }
  }
}

Result<void> TraceFiles::finish(std::span<const TraceRecord> references) {
  if (auto ok = drain(); !ok) return ok;
  if (auto& to = writer(TraceKind::reference)) {
    if (auto ok = to->append(references); !ok) return ok;
  }
  for (auto& to : writers_) {
    if (!to) continue;
    if (auto ok = to->finish(); !ok) return ok;
  }
  return {};
}

}  // namespace resid

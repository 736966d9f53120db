#include "run/run_traces.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "storage/fingerprint.hpp"
#include "trace/trace.hpp"

namespace resid::run {
namespace {

struct Wanted {
  TraceKind kind;
  const std::string& path;
};

std::array<Wanted, 3> wanted(const RunTracePaths& paths) {
  return {{{TraceKind::fault, paths.fault},
           {TraceKind::fetch, paths.fetch},
           {TraceKind::victim, paths.victim}}};
}

// Appends the sizes of one region's chunks, cut as the pager cut them.
Result<void> add_region(TraceHeader& header, const TraceArea::Region& region,
                        std::uint64_t chunk_max) {
  // The program can write to the area: what stands there is looked at, not believed.
  const std::string path(region.path.data(), ::strnlen(region.path.data(), region.path.size()));
  const auto changed = [&path](std::string why) {
    return fail(Status::store_changed, path, "it is no longer what the run used: " + std::move(why),
                "keep the model in place until the run has ended");
  };
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return changed(fail_errno(Status::unreadable, path, errno).value().why);
  auto store = Store::open(fd.get(), path);
  if (!store) return tl::unexpected(store.error());
  auto print = fingerprint(*store);
  if (!print) return tl::unexpected(print.error());
  if (store->bytes() != region.bytes || *print != region.fingerprint) return changed("its content");
  if (chunk_max == 0) chunk_max = ChunkPlan::kDefaultChunkMax;
  auto plan = Result<ChunkPlan>{};
  if (looks_like_model(fd.get())) {
    auto file = read_model_file(fd.get(), path);
    if (!file) return tl::unexpected(file.error());
    plan = ChunkPlan::make(*file, chunk_max);
  } else {
    plan = ChunkPlan::uniform(region.bytes, chunk_max);
  }
  if (!plan) return tl::unexpected(plan.error());
  if (plan->size() != region.chunks) return changed("its chunks");
  for (const Chunk& c : plan->chunks()) {
    header.chunk_bytes.push_back(
        static_cast<std::uint32_t>(std::min<std::uint64_t>(c.bytes, region.bytes - c.offset)));
  }
  if (header.model.empty()) header.model = path;
  header.model_bytes += region.bytes;
  header.model_fingerprint = header.model_fingerprint * 31 + region.fingerprint;
  return {};
}

}  // namespace

Result<RunTraces> RunTraces::create(const RunTracePaths& paths, const std::string& run_page_path,
                                    std::uint64_t chunk_max) {
  for (const Wanted& w : wanted(paths)) {
    if (w.path.empty()) continue;
    for (const Wanted& other : wanted(paths)) {
      if (other.kind != w.kind && other.path == w.path) {
        return fail(Status::usage, w.path, "two traces would have this name", "give each its own");
      }
    }
    // Refused now, not after an hour's run.
    const std::string folder = w.path.find('/') == std::string::npos
                                   ? std::string(".")
                                   : w.path.substr(0, w.path.rfind('/') + 1);
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
      return fail_errno(Status::write_failed, w.path, errno);
    }
    // A writer refuses what it may not replace; this one is dropped and leaves nothing.
    TraceHeader probe;
    probe.kind = w.kind;
    probe.chunk_bytes = {1};
    if (auto writer = TraceWriter::create(w.path, probe); !writer) {
      return tl::unexpected(writer.error());
    }
  }
  std::FILE* spool = std::tmpfile();
  if (spool == nullptr) return fail_errno(Status::write_failed, "a spool file in /tmp", errno);
  auto area = TraceAreaFile::create_at(trace_area_path(run_page_path));
  if (!area) {
    std::fclose(spool);
    return tl::unexpected(area.error());
  }
  TraceRing& ring = area->page().ring;
  for (const Wanted& w : wanted(paths)) {
    if (!w.path.empty()) ring.wanted |= TraceRing::bit(w.kind);
  }
  ring.start_ns = now_ns();
  return RunTraces(paths, std::move(*area), spool, chunk_max);
}

// At once, while the file that the program has mapped still has its name.
void RunTraces::learn() {
  const TraceArea& area = area_.page();
  const std::uint32_t known = std::min(area.region_count.load(), TraceArea::kMostRegions);
  for (; regions_ < known && !region_failure_; ++regions_) {
    if (auto ok = add_region(header_, area.regions[regions_], chunk_max_); !ok) {
      region_failure_ = ok.error();
    }
  }
}

void RunTraces::drain() {
  learn();
  std::array<TraceEvent, 512> events;
  for (std::uint64_t taken = 0; taken < TraceRing::kEvents;) {
    const std::size_t n = area_.page().ring.pop(events);
    if (n == 0) return;
    taken += n;
    spool_failed_ |= std::fwrite(events.data(), sizeof(TraceEvent), n, spool_.get()) != n;
  }
}

Result<void> RunTraces::finish(const std::string& config_hash) {
  drain();
  if (region_failure_) return tl::unexpected(*region_failure_);
  if (spool_failed_ || std::fflush(spool_.get()) != 0) {
    return fail(Status::write_failed, "trace", "the spool file in /tmp could not be written");
  }
  const TraceArea& area = area_.page();
  TraceHeader header = header_;
  header.config_hash = config_hash;
  if (header.chunk_bytes.empty()) {
    return fail(Status::nothing_mapped, "trace", "no model was under control: there are no events");
  }
  for (const Wanted& w : wanted(paths_)) {
    if (w.path.empty()) continue;
    header.kind = w.kind;
    auto writer = TraceWriter::create(w.path, header);
    if (!writer) return tl::unexpected(writer.error());
    std::rewind(spool_.get());
    std::array<TraceEvent, 512> events;
    while (const std::size_t n =
               std::fread(events.data(), sizeof(TraceEvent), events.size(), spool_.get())) {
      for (const TraceEvent& event : std::span(events).first(n)) {
        if (event.kind != w.kind || event.record.chunk >= header.chunk_bytes.size()) continue;
        if (auto ok = writer->append({&event.record, 1}); !ok) return ok;
      }
    }
    if (auto ok = writer->finish(); !ok) return ok;
  }
  if (const std::uint64_t dropped = area.ring.dropped; dropped != 0) {
    return fail(Status::system, "trace",
                fmt::format("{} events came faster than they could be taken", dropped),
                "the files are written but have gaps; leave a processor free");
  }
  return {};
}

}  // namespace resid::run

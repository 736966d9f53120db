#pragma once
// The trace files of a run: `--trace`, `--fetch-trace`, `--victim-trace`.
//
// Events come through the trace area while the program runs and are kept, as they are, in an
// unnamed spool file; at the end, when it is known which files the chunks belong to, the spool is
// written out as traces. So a program that maps the parts of a split model late loses nothing.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "control/trace_area.hpp"
#include "trace/trace.hpp"

namespace resid::run {

struct RunTracePaths {
  std::string fault, fetch, victim;  // empty: not written
  bool any() const { return !fault.empty() || !fetch.empty() || !victim.empty(); }
};

class RunTraces {
 public:
  // Makes the area beside the run page and checks that the files can be written.
  // `chunk_max` as the run has it.
  static Result<RunTraces> create(const RunTracePaths& paths, const std::string& run_page_path,
                                  std::uint64_t chunk_max);
  // Takes out what has come, and learns the chunks of files that were mapped meanwhile; to be
  // called every few milliseconds.
  void drain();
  // Drains once more and writes the files. Fails when a file cannot be written, a model could not
  // be read when it was mapped, or events were dropped.
  Result<void> finish(const std::string& config_hash);

 private:
  struct FileClose {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  RunTraces(RunTracePaths paths, TraceAreaFile area, std::FILE* spool, std::uint64_t chunk_max)
      : paths_(std::move(paths)), area_(std::move(area)), spool_(spool), chunk_max_(chunk_max) {}
  void learn();
  RunTracePaths paths_;
  TraceAreaFile area_;
  std::unique_ptr<std::FILE, FileClose> spool_;
  std::uint64_t chunk_max_ = 0;
  TraceHeader header_;         // what is known of it so far
  std::uint32_t regions_ = 0;  // so many are in it
  std::optional<Failure> region_failure_;
  bool spool_failed_ = false;
};

}  // namespace resid::run

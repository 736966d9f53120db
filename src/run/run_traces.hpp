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

namespace resid::run {

struct RunTracePaths {
  std::string fault, fetch, victim;  // empty: not written
  bool any() const { return !fault.empty() || !fetch.empty() || !victim.empty(); }
};

class RunTraces {
 public:
  // Makes the area beside the run page and checks that the files can be written.
  static Result<RunTraces> create(const RunTracePaths& paths, const std::string& run_page_path);
  // Takes out what has come; to be called every few milliseconds.
  void drain();
  // Drains once more and writes the files. `chunk_max` and `config_hash` as the run had them. Fails
  // when a file cannot be written, a model has changed meanwhile, or events were dropped.
  Result<void> finish(std::uint64_t chunk_max, const std::string& config_hash);

 private:
  struct FileClose {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  RunTraces(RunTracePaths paths, TraceAreaFile area, std::FILE* spool)
      : paths_(std::move(paths)), area_(std::move(area)), spool_(spool) {}
  RunTracePaths paths_;
  TraceAreaFile area_;
  std::unique_ptr<std::FILE, FileClose> spool_;
  bool spool_failed_ = false;
};

}  // namespace resid::run

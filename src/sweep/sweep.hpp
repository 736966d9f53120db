#pragma once
// A whole sweep: every cell, one at a time, each written down as it ends; then the tables, the
// figures and the page.

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "sweep/folder.hpp"
#include "sweep/record.hpp"
#include "sweep/settings.hpp"

namespace resid::sweep {

// Runs one cell. Never a failure: what goes wrong is the cell's outcome.
using CellRunner = std::function<Outcome(const Cell&)>;

struct Progress {
  std::size_t done = 0;  // cells that need not run any more
  std::size_t total = 0;
  std::size_t censored = 0;
  std::size_t failed = 0;
  const Cell* running = nullptr;  // nullptr between cells
  double left_s = -1;             // an estimate; negative while there is nothing to estimate from
};

struct LoopEnd {
  bool stopped = false;
  std::size_t ran = 0;  // in this call
};

// Runs what is not yet in the folder, in the order of `cells`; failed cells of an earlier call
// again. Stops after the running cell once `stop` is set. write_failed when a cell cannot be
// written down; what was written before stays. A cell whose own configuration (`config_hash` in its
// figures) is not that of the cell's other repetitions is a failed one: something beside the
// settings changed.
Result<LoopEnd> run_cells(SweepFolder& folder, const std::vector<Cell>& cells,
                          const Identity& identity, const CellRunner& run,
                          const std::function<void(const Progress&)>& show,
                          const std::atomic<bool>* stop);

// The remaining time by what finished cells took: those of the same arm and budget where there are
// any, else of the same arm, else all. Negative without any.
double estimate_left_s(const std::vector<Record>& finished, const std::vector<Cell>& open);

struct SweepRequest {
  SweepSettings settings;
  std::string out;        // folder
  std::string store_dir;  // for the store of --size; empty = `out`
  bool force = false;
  bool keep_store = false;
  std::string gnuplot = "gnuplot";
  CellRunner runner;  // instead of replay or the program; for tests
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const Progress&)> show;
  std::function<void()> tick;                    // now and then while a cell runs
  std::function<void(const std::string&)> note;  // a line for people
};

struct SweepEnd {
  bool stopped = false;
  std::size_t cells = 0, done = 0, censored = 0, failed = 0;
  std::string report;              // path of report.html; empty when stopped
  std::vector<std::string> notes;  // why there are no figures, ...
};

// The verb without its command line. Usage, write_failed, unreadable, cgroup_denied and system
// failures are about the sweep as a whole; those of a cell are in its record.
Result<SweepEnd> run_sweep(const SweepRequest& request);

}  // namespace resid::sweep

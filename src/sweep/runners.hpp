#pragma once
// The two ways to run a cell.

#include <atomic>
#include <functional>
#include <string>

#include "base/status.hpp"
#include "sweep/folder.hpp"
#include "sweep/machine.hpp"
#include "sweep/settings.hpp"
#include "sweep/sweep.hpp"

namespace resid::sweep {

struct RunnerContext {
  const SweepSettings* settings = nullptr;
  std::string self = "/proc/self/exe";  // residctl
  const std::atomic<bool>* stop = nullptr;
  std::function<void()> tick;
};

// The command line of one cell, residctl's own name first. `store`: the generated file; empty when
// the settings name a model.
std::vector<std::string> replay_command(const SweepSettings& settings, const Cell& cell,
                                        const std::string& store);
CellRunner replay_runner(RunnerContext context, std::string store);

// Writes the generated store of settings.size bytes, or finds it there; marks in the folder that it
// was written here. write_failed when there is no room. False when it was stopped.
Result<bool> make_store(const RunnerContext& context, const SweepFolder& folder,
                        const std::string& path);

// A real program. Two runs of it with everything resident come first: one that brings its own files
// into the page cache, and the control, which tells what the program prints and what memory it
// needs besides the model. That is kept in the folder, so that all calls of one sweep compare with
// it.
struct Control {
  std::uint64_t need_bytes = 0;  // all memory but page cache at its peak, and a slack
  std::string output;            // stdout
};
// usage when the two print different things: nothing could be compared. nullopt when stopped.
Result<std::optional<Control>> measure_control(const RunnerContext& context,
                                               const SweepFolder& folder, const Subject& model);
CellRunner program_runner(RunnerContext context, const SweepFolder& folder, Subject model,
                          Control control);

}  // namespace resid::sweep

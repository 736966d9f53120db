#pragma once
// One child process from start to end: its output, its exit, what it read from disks.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "host/cgroup.hpp"

namespace resid::sweep {

struct ProcessRequest {
  std::string path;                  // executable; without a slash it is looked for in PATH
  std::vector<std::string> command;  // argv, the program's own name first
  std::vector<std::pair<std::string, std::string>> environment;  // set beside ours
  std::optional<std::string> input;                              // else /dev/null
  const host::ChildGroup* group = nullptr;  // entered before exec, so that all memory is charged
  const std::atomic<bool>* stop = nullptr;  // set: ends the child
  std::function<void(pid_t)> tick;          // called every `tick_ms`
  int tick_ms = 100;
  double limit_s = 0;                     // ends the child; 0 = none
  std::size_t most_output = 64ULL << 20;  // bytes of stdout kept; more is cut off and told
};

struct ProcessResult {
  int exit_code = -1;  // of a child that exited
  int signal = 0;      // that ended it
  bool stopped = false;
  bool timed_out = false;
  bool output_cut = false;
  std::string out;               // stdout
  std::string err;               // the end of stderr
  double wall_s = 0;             // from exec to exit
  std::uint64_t read_bytes = 0;  // from disks, by it and its children (rusage)
};

// Runs the child, and everything it starts, in a process group of its own; whatever of that is left
// when the child has ended is killed. Ending it early: SIGTERM, and SIGKILL five seconds later.
// program_not_found or system when it cannot be started, cgroup_denied when it may not enter.
Result<ProcessResult> run_process(const ProcessRequest& request);

}  // namespace resid::sweep

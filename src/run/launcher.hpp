#pragma once
// `residctl run`: starts a program under the preload library, watches it, reports.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "control/run_page.hpp"
#include "run/run_traces.hpp"

namespace resid::run {

struct RunOptions {
  std::vector<std::string> command;  // the program and its arguments
  RunConfig config;                  // ram_bytes 0 and no percentage: the default budget
  std::optional<std::string> report_path;
  RunTracePaths traces;
  std::string routing_path;                   // empty: routing is not recorded
  std::optional<std::uint64_t> program_need;  // bytes beside the budget; else max(1 GiB, model / 4)
  std::string history = "off";  // where the use of experts is remembered: auto, off or a file
  bool use_cgroup = true;
  bool json = false;  // the report on stdout too; the program's stdout goes to stderr then
};

// Runs the program to its end and returns the exit code of the verb. A failure means that the
// program was never started.
//
// While it runs, SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the program and the report is
// still written; a signal that the terminal sent has reached the program already. If residctl is
// killed outright the program gets SIGTERM (PR_SET_PDEATHSIG): it would run on without its report,
// and in a control group that nobody removes.
Result<int> run_program(const RunOptions& options);

// The preload library: beside this executable (../lib), below its prefix, or where it was
// installed.
Result<std::string> find_preload_library();
// The ggml backend that shows the routing of experts, beside the preload library; empty when this
// residctl was built without it.
std::string find_ggml_backend(const std::string& preload_library);

}  // namespace resid::run

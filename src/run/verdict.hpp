#pragma once
// How a run ended, and the exit code that says so.

#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "control/run_page.hpp"

namespace resid::run {

// How the program ended, from waitid(2).
struct Ending {
  bool by_signal = false;
  int code = 0;  // exit code, or signal number
  // As a shell reports it.
  int shell_code() const { return by_signal ? 128 + code : code; }
};

struct Verdict {
  int exit_code = 0;
  // What went wrong in residctl's part, if anything: recorded by the library, or nothing_mapped.
  std::optional<Failure> failure;
};

// The program's own code stands, unless it hides a failure of ours: a recorded failure turns a 0
// into 1 (4 where the budget was too small or infeasible, whatever the program made of it); a
// program that mapped no model turns a 0 into 3.
Verdict judge(const RunPage& page, const Ending& ending);

// MiB that the program read from files beyond what the pager fetched and a loader needs to read of
// its model's header; 0 when unremarkable. `chars_read`: rchar of /proc/PID/io.
std::uint32_t bypassed_mib(std::uint64_t chars_read, std::uint64_t bytes_fetched,
                           std::uint64_t model_bytes);

}  // namespace resid::run

#pragma once
// Starting the program: what happens between fork and exec, and how its failure gets out.

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "host/cgroup.hpp"
#include "run/adapt.hpp"

namespace resid::run {

struct Launch {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<Change> environment;
  const host::ChildGroup* group =
      nullptr;  // entered before exec, so that all memory is charged there
  bool stdout_to_stderr = false;
  sigset_t signal_mask{};  // the mask the program starts with
};

// Forks and executes. Returns when the program's exec has succeeded; the failure carries errno.
Result<pid_t> start(const Launch& launch);

}  // namespace resid::run

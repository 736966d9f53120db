#pragma once
// Watching the program until it ends.

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <functional>

#include "run/verdict.hpp"

namespace resid::run {

// Holds back the signals that end a run, so that they can be passed on instead; gives them back at
// the end of its life. Made before the program is started: none falls into a gap.
class SignalHold {
 public:
  SignalHold();
  ~SignalHold();
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;
  const sigset_t& before() const { return before_; }
  const sigset_t& held() const { return held_; }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

struct Supervised {
  Ending ending;
  std::uint64_t chars_read = 0;  // rchar of the program itself, all its threads; 0 = unknown
};

// Waits for the program, calling `tick` every few milliseconds and once more when it has ended but
// not yet been reaped.
Supervised supervise(pid_t pid, const SignalHold& signals, const std::function<void()>& tick);

}  // namespace resid::run

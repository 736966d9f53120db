#pragma once
// What long work shows on stderr: one line that is rewritten on a terminal, a plain line now and
// then elsewhere. And the wish to stop it.

#include <atomic>
#include <cstdint>
#include <string>

namespace resid::cli {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::uint64_t done, std::uint64_t total);  // bytes

 private:
  std::string what_;
  bool terminal_;
  bool open_ = false;  // the cursor stands in our line
  std::uint64_t started_ns_;
  std::uint64_t shown_ns_ = 0;
};

// While it lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program, so that work
// in hand can be undone. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // what the signals did before
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& flag() const;
  // When one came: dies of it, as the shell or the parent that sent it expects. Else returns.
  void resume_default();
};

}  // namespace resid::cli

#pragma once
// The program's end of a recorded run (control/routing_spool.hpp).

#include <atomic>
#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "ggml/backend/routed.h"

namespace resid::preload {

class RoutingSpool {
 public:
  // Opens the spool of the run, if it records routing.
  void open(const std::string& run_page_path);
  bool is_open() const { return fd_ && !broken_.load(std::memory_order_relaxed); }
  // Appends what one layer's router chose. False when it could not be written whole; then nothing
  // more is. Any thread; allocates.
  bool append(const resid_routed& routed, std::int32_t layer);

 private:
  Fd fd_;
  std::atomic<bool> broken_{false};
};

}  // namespace resid::preload

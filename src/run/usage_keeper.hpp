#pragma once
// Adds what a run's expert board counts to the model's history of use: at the end, and once a
// minute while the program runs, so that a machine that dies loses a minute.
//
// That is done by a thread of its own: a file is synced at the speed of a disk that the program
// keeps busy, and whoever watches the program must not wait for that. Nothing that goes wrong here
// is the run's: it is said once, and the run goes on.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control/expert_area.hpp"

namespace resid::run {

class UsageKeeper {
 public:
  using Tell = std::function<void(std::string_view)>;
  // `place`: "auto" (the user's folder), "off", or a file. `area` and what `tell` needs must
  // outlive it. Writes the place into the area, for the program to read from.
  UsageKeeper(ExpertArea& area, const std::string& place, Tell tell);
  ~UsageKeeper() { stop(); }
  UsageKeeper(const UsageKeeper&) = delete;
  UsageKeeper& operator=(const UsageKeeper&) = delete;

  // After the program was started: a fork copies no threads.
  void start(std::chrono::milliseconds interval = std::chrono::minutes(1));
  // The program has ended: adds what is left.
  void finish();

 private:
  void stop();
  void add(std::chrono::milliseconds patience);
  void warn(std::string_view text);

  ExpertArea& area_;
  const Tell tell_;
  std::string place_;  // empty: nothing is kept
  std::string folder_missing_;
  bool warned_ = false;
  std::vector<std::uint32_t> uses_;    // as they were when last added, by layer and expert
  std::vector<std::uint64_t> tokens_;  // by layer
  std::mutex mutex_;                   // guards stop_
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace resid::run

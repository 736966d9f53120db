#pragma once
// Monotonic time in nanoseconds. Safe on the fault thread: the vDSO call takes no lock.

#include <ctime>

#include <cstdint>

namespace resid {

inline std::uint64_t now_ns() {
  timespec ts{};
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<std::uint64_t>(ts.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(ts.tv_nsec);
}

}  // namespace resid

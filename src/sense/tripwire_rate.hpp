#pragma once
// How many tripwires a pass may have: few enough that they cost a hundredth of it.

#include <algorithm>
#include <cstdint>

namespace resid {

class TripwireRate {
 public:
  // What arming one and waking its reader cost beside what is measured here: the pager sees a trip
  // from reading the message on (docs/performance.md).
  static constexpr std::uint64_t kBesideNs = 8'000;
  static constexpr std::uint64_t kShare = 100;

  // One was tripped and took this long.
  void tripped(std::uint64_t ns) { cost_ns_ = cost_ns_ == 0 ? ns : (31 * cost_ns_ + ns) / 32; }

  // `cycles` passes have ended by `now`. True when most() has changed enough to tell the policy.
  bool cycle(std::uint64_t cycles, std::uint64_t now) {
    if (cycles == cycles_) return false;
    if (cycles_ != 0 && cycles > cycles_) {
      const std::uint64_t pass = (now - since_) / (cycles - cycles_);
      pass_ns_ = pass_ns_ == 0 ? pass : (3 * pass_ns_ + pass) / 4;
    }
    cycles_ = cycles;
    since_ = now;
    const auto most = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pass_ns_ / kShare / (kBesideNs + cost_ns_), 0xffffffffU));
    // Every change makes the policy choose anew; a fifth more or less is none.
    const std::uint64_t low = std::uint64_t{most_} * 4 / 5;
    const std::uint64_t high = std::uint64_t{most_} * 5 / 4;
    if (most >= low && most <= high) return false;
    most_ = most;
    return true;
  }
  std::uint32_t most() const { return most_; }
  std::uint64_t pass_ns() const { return pass_ns_; }

 private:
  std::uint64_t cycles_ = 0;
  std::uint64_t since_ = 0;
  std::uint64_t pass_ns_ = 0;
  std::uint64_t cost_ns_ = 0;
  std::uint32_t most_ = 0;
};

}  // namespace resid

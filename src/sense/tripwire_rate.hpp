#pragma once
// How many tripwires a pass may have: few enough that they cost a hundredth of it.

#include <algorithm>
#include <cstdint>

namespace resid {

class TripwireRate {
 public:
  // Arming and tripping one, the thread switches included: measured on a virtual machine of two
  // cores (docs/performance.md); an order of magnitude is enough.
  static constexpr std::uint64_t kCostNs = 12'000;
  static constexpr std::uint64_t kShare = 100;

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
        std::min<std::uint64_t>(pass_ns_ / kShare / kCostNs, 0xffffffffU));
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
  std::uint32_t most_ = 0;
};

}  // namespace resid

#pragma once
// Whether looking ahead pays, by the only measure that counts: how long a token takes with it and
// without it.
//
// It costs a product of matrices a layer, and reads in vain; it saves waiting, where the disk has
// time left. Neither can be foretold. So both ways are tried in turn, a few tokens each, and the
// one whose tokens are shorter at the median is kept until the next trial:
//
//     WARMING --kWarm tokens--> TRIAL: on, off, on, off, ... --medians--> KEPT --kKept--> TRIAL
//
// Of equals looking ahead is left out: it reads more.

#include <algorithm>
#include <array>
#include <cstdint>

namespace resid {

class LookaheadSwitch {
 public:
  enum class Mode : std::uint8_t { off, on, automatic };
  static constexpr std::uint32_t kWarm = 48;    // tokens that it may learn from first
  static constexpr std::uint32_t kTurn = 8;     // tokens of a trial that go one way in a row
  static constexpr std::uint32_t kTurns = 6;    // of a trial
  static constexpr std::uint32_t kKept = 1000;  // tokens from one trial to the next

  explicit LookaheadSwitch(Mode mode) : mode_(mode), on_(mode != Mode::off) {}

  bool on() const { return on_; }
  std::uint32_t trials() const { return trials_; }

  // A token has taken this long, by the way that on() said.
  void token(std::uint64_t ns) {
    if (mode_ != Mode::automatic) return;
    ++tokens_;
    if (!in_trial_) {
      const std::uint32_t until = trials_ == 0 ? kWarm : kKept;
      if (tokens_ >= until) begin_trial();
      return;
    }
    // The first of a turn still feels the other way.
    if (tokens_ % kTurn != 1) keep(ns);
    if (tokens_ % kTurn == 0) on_ = !on_;
    if (tokens_ == kTurn * kTurns) end_trial();
  }

 private:
  static constexpr std::size_t kSamples = (kTurn - 1) * kTurns / 2;
  struct Samples {
    std::array<std::uint64_t, kSamples> ns{};
    std::size_t count = 0;
    std::uint64_t median() {
      std::nth_element(ns.begin(), ns.begin() + kSamples / 2, ns.end());
      return ns[kSamples / 2];
    }
  };

  void begin_trial() {
    in_trial_ = true;
    tokens_ = 0;
    with_.count = without_.count = 0;
    on_ = true;
  }
  void keep(std::uint64_t ns) {
    Samples& mine = on_ ? with_ : without_;
    if (mine.count < kSamples) mine.ns[mine.count++] = ns;
  }
  void end_trial() {
    in_trial_ = false;
    tokens_ = 0;
    ++trials_;
    on_ = with_.median() < without_.median();
  }

  const Mode mode_;
  bool on_;
  bool in_trial_ = false;
  std::uint32_t tokens_ = 0;  // since the phase began
  std::uint32_t trials_ = 0;
  Samples with_;
  Samples without_;
};

}  // namespace resid

#pragma once
// Which experts of one layer are resident, with room for `cap` of them: hit or miss, and on a miss
// in a full cache the one that has to go. Bookkeeping only: whoever owns the bytes does as told.
//
// A token's experts are asked for one after the other. What must not be given up meanwhile is the
// caller's to say:
//
//   token    none of this token's experts, used or still to come: how an engine works that
//            multiplies by all of them in one operation. The default.
//   pending  none of those still to come; one that was used may go. An engine that finishes one
//            expert before it begins the next.
//   none     any but the one that is asked for: a plain string of requests, as in textbooks and
//            in the model card's table.
//
// Where the rule leaves no choice (a cap below the number of experts a token uses) an expert that
// was used already goes, and if there is none either, one that is still to come. A cap of 0 is not
// allowed.
//
// The victim is the candidate of least worth, found by a look at each resident: 2 ns each
// (docs/performance.md), little beside the read that follows; and worths may change all at once
// with every token, so that an order kept up to date would cost more. Of equal worths the expert of
// the lowest number goes.
//
// Only the constructor allocates.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace resid {

enum class ExpertHold : std::uint8_t { none, pending, token };

class ExpertCache {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  ExpertCache(std::uint32_t experts, std::uint32_t cap, ExpertHold hold)
      : slots_(experts), cap_(cap), hold_(hold) {
    residents_.reserve(cap < experts ? cap : experts);
  }

  // A token's experts are known, and none of them was used.
  template <class Ids>
  void begin(const Ids& chosen, std::uint32_t offset = 0) {
    ++token_;
    for (const auto expert : chosen)
      slots_[expert + offset].pending_in = token_;
  }

  struct Outcome {
    bool hit = false;
    std::uint32_t victim = kNone;
  };
  // `expert` is used; afterwards it is resident. `worth` by expert.
  Outcome use(std::uint32_t expert, std::span<const double> worth) {
    Slot& slot = slots_[expert];
    Outcome out{slot.resident, kNone};
    if (!slot.resident) {
      if (residents_.size() >= cap_) {
        const std::size_t place = victim(worth);
        out.victim = residents_[place];
        slots_[out.victim].resident = false;
        residents_[place] = expert;
      } else {
        residents_.push_back(expert);
      }
      slot.resident = true;
    }
    slot.pending_in = 0;
    slot.used_in = token_;
    return out;
  }

  bool resident(std::uint32_t expert) const { return slots_[expert].resident; }
  std::span<const std::uint32_t> residents() const { return residents_; }

 private:
  struct Slot {
    // The token that will use it or has used it; ids of tokens begin with 1.
    std::uint64_t pending_in = 0;
    std::uint64_t used_in = 0;
    bool resident = false;
  };

  // 0: may go, 1: held, 2: held and still to come.
  int held(const Slot& slot) const {
    if (hold_ == ExpertHold::none) return 0;
    if (slot.pending_in == token_) return 2;
    return hold_ == ExpertHold::token && slot.used_in == token_ ? 1 : 0;
  }

  // Where it is in residents_.
  std::size_t victim(std::span<const double> worth) const {
    std::size_t best = 0;
    int best_held = std::numeric_limits<int>::max();
    for (std::size_t i = 0; i < residents_.size(); ++i) {
      const std::uint32_t expert = residents_[i];
      const int h = held(slots_[expert]);
      if (h > best_held) continue;
      const std::uint32_t other = residents_[best];
      const bool less = h < best_held || worth[expert] < worth[other] ||
                        (worth[expert] == worth[other] && expert < other);
      if (!less) continue;
      best = i;
      best_held = h;
    }
    return best;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> residents_;  // in no order
  std::uint32_t cap_;
  ExpertHold hold_;
  std::uint64_t token_ = 0;
};

}  // namespace resid

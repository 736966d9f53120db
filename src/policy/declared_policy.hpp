#pragma once
// Furthest next use in a declared cyclic order. The position is advanced by on_access() alone,
// never by on_fault(): which misses happen depends on what the policy did, so a position taken from
// them by the policy itself would chase its own decisions. A caller that has nothing better than
// faults says so by passing each demand fault to on_access() as well, with the signal mode
// before_use.

#include <vector>

#include "policy/cyclic_order.hpp"
#include "policy/order_policy.hpp"

namespace resid {

class DeclaredPolicy : public OrderPolicy<CyclicOrder> {
 public:
  void set_signal_mode(SignalMode mode) override { mode_ = mode; }

  void declare_sequence(std::span<const ChunkId> sequence) override {
    std::vector<ChunkId> candidates;
    candidates.reserve(ages_.chunks());
    for (ChunkId chunk = 0; chunk < ages_.chunks(); ++chunk) {
      if (is_candidate(chunk)) candidates.push_back(chunk);
    }
    order_.assign(sequence);
    for (const ChunkId chunk : candidates) {
      if (ages_.contains(chunk)) ages_.erase(chunk);
      admit(chunk);
    }
  }

  void on_fault(ChunkId chunk) override {
    if (known(chunk)) ages_.touch(chunk);
  }
  void on_access(ChunkId chunk) override {
    if (!known(chunk)) return;
    ages_.touch(chunk);
    if (order_.contains(chunk)) order_.seek(chunk, mode_, kStepBack);
  }
};

}  // namespace resid

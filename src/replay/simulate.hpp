#pragma once
// A policy on paper: what it would have read for a reference string, with no pager, no disk and no
// clock. It is called as the pager calls it on demand paging, one reader, no prefetch:
//
// 1. The signal of the use comes first (SignalMode::before_use), as an engine's does, or as a
//    demand fault does for a program that gives no signal.
// 2. On a miss the policy hears of the fault, then victims go until the chunk fits, then it is
//    resident and a candidate.
// 3. The newest demand fetches are no candidates (pager/current.cpp): they are what the reader may
//    still need, and go only when nothing else is left, oldest first.
//
// What it leaves out: seams, which the pager fetches together with their neighbour; several
// readers; and that the pager keeps more than `keep_current` where chunks are wanted back at once.

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "policy/policy.hpp"
#include "trace/trace.hpp"

namespace resid {

struct SimulateOptions {
  std::string policy = "layer_order_declared";
  std::uint64_t budget_bytes = 0;
  std::uint32_t keep_current = 2;  // demand fetches, at least; 0: none
  // The policy is told of every use. Off: of demand faults only, which is all that a program
  // without signals of its own gives away.
  bool signal_every_use = true;
  TraceProgress progress;  // in references
};

struct Simulated {
  std::uint64_t accesses = 0;
  std::uint64_t misses = 0;
  std::uint64_t bytes = 0;  // read
  std::uint64_t evictions = 0;
};

// Runs one policy over the references. The order that is declared to it is that of the first use of
// each chunk; for a cyclic string that is its first pass. usage: no such policy, a string that is
// no reference trace (I-10) or names a chunk that its header does not have. infeasible: a chunk
// that is used is larger than the budget.
Result<Simulated> simulate(const ReferenceString& references, const SimulateOptions& options);

}  // namespace resid

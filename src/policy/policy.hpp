#pragma once
// Which chunk to give up, and which will be wanted next.
//
// A policy is bookkeeping only: it does no I/O and takes no lock. Every call is made under the
// pager's accounting lock, many of them by the fault thread, so none may allocate (I-13): memory is
// taken in grow() and declare_sequence(), which are prepared outside the lock (see Pager). Every
// call other than those is O(log n) or better, n being the number of chunks.
//
// Words: `candidate` = resident and neither pinned nor in transition. The pager tells the policy
// about every change with candidate() and withdraw(); select_victim() answers from that set alone.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.hpp"

namespace resid {

using ChunkId = std::uint32_t;  // over all regions
inline constexpr ChunkId kNoChunk = 0xffffffffU;
inline constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::max();

// When the access signal comes, relative to the reading of the weights: it decides whether the
// chunk at the current position is about to be used (distance 0) or has just been used (a full
// cycle away).
enum class SignalMode : std::uint8_t { before_use, after_use };

class Policy {
 public:
  virtual ~Policy() = default;
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  virtual std::string_view name() const = 0;

  // Makes room for chunk ids below `chunks`. Ids never shrink. `bytes[i]` is the size of chunk i.
  virtual void grow(std::span<const std::uint32_t> bytes) = 0;
  // The order in which the workload reads chunks, as one cycle. May name a chunk more than once;
  // replaces an earlier one. Policies that infer their order ignore it.
  virtual void declare_sequence(std::span<const ChunkId> sequence) = 0;
  virtual void set_signal_mode(SignalMode mode) = 0;
  // Also protect the chunk at the position and the one before it (distance 0), for callers whose
  // signal is inexact.
  virtual void set_protect_current(bool on) = 0;

  virtual void on_fault(ChunkId chunk) = 0;    // a demand fault was dispatched for it
  virtual void on_access(ChunkId chunk) = 0;   // the workload's consumption signal
  virtual void candidate(ChunkId chunk) = 0;   // became evictable
  virtual void withdraw(ChunkId chunk) = 0;    // stopped being evictable

  // The candidate to evict, kNoChunk when there is none. Does not change the set.
  virtual ChunkId select_victim() = 0;
  // The chunk that follows `chunk` in the known order, kNoChunk when unknown.
  virtual ChunkId predict_next(ChunkId chunk) const = 0;
  // Steps of the order until `chunk` is used, kNeverUsed when it is not in it.
  virtual std::int64_t next_use_distance(ChunkId chunk) const = 0;
};

// `lru`, `layer_order_learned`, `layer_order_declared`. The failure lists the names that exist.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
std::span<const std::string_view> policy_names();

}  // namespace resid

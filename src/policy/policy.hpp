#pragma once
// Which chunk to give up, and which will be wanted next.
//
// A policy is bookkeeping only: it does no I/O and takes no lock. Every call is made under the
// pager's accounting lock, many of them by the fault thread, so none may allocate (I-13) except
// grow() and declare_sequence(), which are O(n), are never made by the fault thread or a fetch
// worker, and may throw std::bad_alloc, leaving the policy as it was. Every other call is O(log n)
// or better, n being the number of chunks and of entries of the order; select_victim() is so
// amortised where a declared order names chunks more than once, upcoming() for each entry written.
//
// Words: `candidate` = resident and neither pinned nor in transition. The pager tells the policy
// about every change with candidate() and withdraw(); select_victim() answers from that set alone.
// Telling it again what it knows changes nothing, and ids that grow() has made no room for are
// ignored.

#include <cstddef>
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

  // Makes room for the chunk ids below bytes.size(), which never shrinks. `bytes[i]` is the size of
  // chunk i.
  virtual void grow(std::span<const std::uint32_t> bytes) = 0;
  // The order in which the workload reads chunks, as one cycle. May name a chunk more than once;
  // replaces an earlier one, and the position is before its first entry until the next signal.
  // Policies that infer their order ignore it.
  virtual void declare_sequence(std::span<const ChunkId> sequence) = 0;
  virtual void set_signal_mode(SignalMode mode) = 0;
  // Also protect the chunk at the position and the one before it (distance 0), for callers whose
  // signal is inexact.
  virtual void set_protect_current(bool on) = 0;

  virtual void on_fault(ChunkId chunk) = 0;  // a demand fault was dispatched for it
  // The workload's consumption signal: moves the position to the nearest place ahead that names the
  // chunk. A small step back, as threads that share the work cause, moves nothing, nor does a chunk
  // that is not in the order.
  virtual void on_access(ChunkId chunk) = 0;
  virtual void candidate(ChunkId chunk) = 0;  // became evictable
  virtual void withdraw(ChunkId chunk) = 0;   // stopped being evictable

  // The candidate to evict: the largest next-use distance, of equals the least recently used;
  // kNoChunk when there is none. Does not change the set.
  virtual ChunkId select_victim() = 0;
  // The chunk that follows `chunk` in the known order, kNoChunk when unknown. Of a chunk that the
  // order names more than once, the place nearest ahead counts, so that a chain of these may go
  // round in a small circle; upcoming() does not.
  virtual ChunkId predict_next(ChunkId chunk) const = 0;
  // Writes the chunks that the order names after the position, nearest first, at most one cycle.
  // Returns how many were written: fewer than out.size() when no more are known.
  virtual std::size_t upcoming(std::span<ChunkId> out) const = 0;
  // Steps of the order until `chunk` is used, kNeverUsed when it is not in it.
  virtual std::int64_t next_use_distance(ChunkId chunk) const = 0;
};

// `lru`, `layer_order_learned`, `layer_order_declared`. The failure lists the names that exist.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
std::span<const std::string_view> policy_names();

}  // namespace resid

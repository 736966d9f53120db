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

#include "base/expert_id.hpp"
#include "base/status.hpp"

namespace resid {

struct ExpertMap;    // policy/expert_map.hpp
struct ExpertUsage;  // policy/expert_usage.hpp

using ChunkId = std::uint32_t;  // over all regions, in the order of their bytes
inline constexpr ChunkId kNoChunk = 0xffffffffU;
inline constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::max();

// When the access signal comes, relative to the reading of the weights: it decides whether the
// chunk at the current position is about to be used (distance 0) or has just been used (a full
// cycle away).
enum class SignalMode : std::uint8_t { before_use, after_use };

// What a policy that follows an order makes of the workload, for the report.
struct OrderReport {
  enum class Mode : std::uint8_t {
    none,      // it follows no order
    learning,  // no full cycle seen yet and none declared
    cyclic,    // the workload keeps to the order
    recency,   // it does not: victims by age until it does again
  };
  Mode mode = Mode::none;
  std::uint32_t streams = 0;  // places at which the workload is reading now
  std::uint64_t cycles = 0;   // times that a stream came round
  std::uint64_t signals = 0;
  std::uint64_t surprises = 0;  // signals that the order did not foresee
  std::uint64_t replans = 0;
  std::uint64_t fallbacks = 0;       // changes to recency
  std::uint64_t fixed_bytes = 0;     // what the plan keeps
  std::uint64_t streamed_bytes = 0;  // what passes through the window every cycle
};

std::string_view name(OrderReport::Mode mode);

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
  // Writes the chunks worth fetching ahead, nearest first: what the order names after the position,
  // at most one cycle; with a plan only what it streams. Returns how many were written: fewer than
  // out.size() when no more are known.
  virtual std::size_t upcoming(std::span<ChunkId> out) const = 0;
  // Steps of the order until `chunk` is used, kNeverUsed when it is not in it.
  virtual std::int64_t next_use_distance(ChunkId chunk) const = 0;

  // ---- For policies of mixture-of-experts models

  // Wants the declared order without the slices of experts: which of them come next is not in it,
  // and on_access() tells of each one that is used.
  virtual bool ranks_experts() const { return false; }
  // Which chunks are slices; as declare_sequence(), after grow() and before any candidate is told.
  virtual void declare_experts(const ExpertMap& /*map*/) {}
  // How often the experts were used in earlier runs, so that the first victims are no guess; after
  // declare_experts(). Layers of which nothing is known may be missing.
  virtual void declare_usage(const ExpertUsage& /*usage*/) {}
  // The router of `layer`, as numbered in the model, has chosen `used` experts for each token of a
  // batch, token by token, in falling order of weight. Told before on_access() of the slices.
  virtual void on_routing(std::uint32_t /*layer*/, std::span<const ExpertId> /*chosen*/,
                          std::uint32_t /*used*/) {}
  // At most this many experts a layer are worth their room; 0: as many as there is room for.
  virtual void set_cap(std::uint32_t /*experts*/) {}
  // A candidate beyond that; kNoChunk when there is none.
  virtual ChunkId surplus() { return kNoChunk; }
  // The router of `layer`, which speaks next, will likely choose these: they are to stay until it
  // has.
  virtual void on_expected(std::uint32_t /*layer*/, std::span<const ExpertId> /*experts*/) {}

  // ---- For policies that plan what stays (layer_order_spread); the others have no plan.

  // `budget` bytes may be resident, of which chunks on their way through need `window`. Called
  // before the first signal and whenever either changes, with the lock held; O(n), allocates
  // nothing.
  virtual void set_room(std::uint64_t /*budget*/, std::uint64_t /*window*/) {}
  // Whether two chunks that lie beside each other both pass through the window: what reads across
  // their border needs both at once.
  virtual bool streams_neighbours() const { return false; }
  // Whether it has a plan at this moment. Then a prefetch may take the place of spent() alone.
  virtual bool plans() const { return false; }
  // Whether the plan wants the chunk to stay.
  virtual bool keeps(ChunkId /*chunk*/) const { return false; }
  // A candidate that the plan does not keep and the workload has gone past: giving it up ahead of
  // need costs nothing. kNoChunk when there is none.
  virtual ChunkId spent() { return kNoChunk; }
  // At most this many chunks a cycle are armed as tripwires.
  virtual void set_tripwires(std::uint32_t /*most*/) {}
  // Writes chunks that the workload has gone past since the last call and whose next first touch
  // the policy wants to hear of; the pager arms those that are resident. Returns how many.
  virtual std::size_t to_arm(std::span<ChunkId> /*out*/) { return 0; }
  virtual OrderReport order_report() const { return {}; }
};

// `lru`, `layer_order_learned`, `layer_order_declared`, `layer_order_spread`, `expert_lru`,
// `expert_lfru`, `expert_foresight`. The failure lists the names that exist.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
std::span<const std::string_view> policy_names();

}  // namespace resid

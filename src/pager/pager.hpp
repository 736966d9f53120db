#pragma once
// The pager: keeps at most `budget` bytes of all regions resident and fills what is touched.
//
// The data's way: a thread touches an absent page of an app view -> the kernel queues a message ->
// fault_loop.cpp reads it and moves the chunk ABSENT -> FETCHING -> jobs.cpp has the store read
// into a slot (staging.hpp) -> a worker (fetch.cpp) reserves budget, evicting (evict.cpp) what the
// policy names, copies the bytes into the region's memory, maps them with CONTINUE, commits and
// publishes RESIDENT -> the thread goes on.
//
// Threads: every public function may be called from any thread that does not hold a lock needed to
// read an app view. None of them may be called from a signal handler.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "pager/expert_board.hpp"
#include "pager/stats.hpp"
#include "policy/expert_usage.hpp"
#include "policy/policy.hpp"
#include "sense/lookahead_switch.hpp"
#include "sense/router_lookahead.hpp"
#include "storage/reader.hpp"
#include "trace/ring.hpp"

namespace resid {

struct PagerConfig {
  std::uint64_t budget_bytes = 0;
  std::string policy = "layer_order_declared";
  std::uint32_t fetch_workers = 2;
  ReaderConfig reader;        // engine, depth and request size of the reads
  bool large_frames = true;   // large folios for whole large pages, where the kernel has them
  bool tripwires = true;      // arm resident chunks where the policy asks for it
  bool sync_handler = false;  // fetch on the fault thread; for comparison
  std::uint32_t fetching_timeout_ms = 30000;
  bool eager_reconcile = false;  // reconcile after every fetch, not every 16th
  bool protect_current = false;
  SignalMode signal_mode = SignalMode::before_use;
  bool faults_signal_access = true;  // a demand fault tells the policy the position (src/sense)
  std::uint32_t prefetch_depth = 0;  // 0 = off
  bool prefetch_guarded = true;      // admission: guarded | always
  bool prefetch_pinned = true;       // retention: pinned | none
  bool noswap = false;               // only memory that is never swapped will do (I-3)
  bool lock_pages = false;           // mlock what becomes resident (I-3, the mlocked route)
  // Whether what the next layer's router will likely choose is fetched ahead.
  LookaheadSwitch::Mode lookahead = LookaheadSwitch::Mode::off;
  std::uint32_t expert_cap = 0;  // experts a layer that stay resident; 0: the budget decides
  bool expert_cap_soft = false;  // beyond it as long as there is room
  TraceRing* trace = nullptr;    // where events go; must outlive the pager
  ExpertBoard* board = nullptr;  // what became of the experts; likewise
  ExpertUsage usage;             // how often they were used in earlier runs; may be empty
};

// One range of a region's bytes that stays resident while the handle lives.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin();
  explicit operator bool() const { return pager_ != nullptr; }

 private:
  friend class Pager;
  class Pager* pager_ = nullptr;
  ChunkId first_ = kNoChunk;
  std::uint32_t count_ = 0;
};

using RegionId = std::uint32_t;

struct RegionInfo {
  std::string path;
  std::uint64_t bytes = 0;
  ChunkId first_chunk = kNoChunk;
  std::uint32_t chunks = 0;
  int memfd = -1;  // for mapping app views; never read from it (hazard: holes are zeros)
};

// Called once, on whatever thread met it, when the pager can no longer guarantee correct data:
// store changed, read failed, accounting diverged. `line` is the whole message. Must be
// async-signal-safe. The affected threads get SIGBUS or SIGSEGV afterwards.
using FailureHook = void (*)(void* context, Status status, const char* line);

class Pager {
 public:
  // Opens userfaultfd by the first route that works, starts the fault thread and the workers.
  // `stats` must outlive the process's use of the pager (shared memory or static).
  static Result<std::unique_ptr<Pager>> create(const PagerConfig& config, PagerStats& stats,
                                               FailureHook hook, void* context);
  // Stops the threads. No app view may be in use any more. The preload library never destroys its
  // pager: threads of the program may touch weights until the last instant of the process.
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Puts one store under control. `fd` is an open descriptor of it, from which the pager makes its
  // own; `path` is only for messages. Allocates; not for the fault thread.
  Result<RegionId> add_region(int fd, const std::string& path, ModelFile file, ChunkPlan plan);
  RegionInfo info(RegionId region) const;

  // Maps an app view of [offset, offset + bytes) of the region, as mmap would: `address` and
  // `flags` (MAP_FIXED, MAP_FIXED_NOREPLACE) are honoured, `bytes` may reach past the end.
  Result<void*> map_view(RegionId region, void* address, std::uint64_t bytes, int flags,
                         std::uint64_t offset);
  // Forgets the part of app views inside [address, address + bytes) and unmaps it.
  Result<void> unmap_view(void* address, std::uint64_t bytes);
  // Whether any byte of the range lies in an app view. Cheap when not; safe anywhere.
  bool in_view(const void* address, std::uint64_t bytes) const;

  // Fetches the chunks under a range of an app view and keeps them resident. infeasible when the
  // pinned bytes of the whole pager would leave less than two of the largest chunks.
  Result<Pin> pin(const void* address, std::uint64_t bytes);

  // Asks for the chunks under a range ahead of need; a hint, dropped where there is no room.
  // Returns how many fetches were queued.
  std::uint32_t will_need(const void* address, std::uint64_t bytes);
  // The chunks under a range of an app view; none when it is not inside one view.
  struct ChunkRange {
    ChunkId first = kNoChunk;
    std::uint32_t count = 0;
  };
  ChunkRange chunks_under(const void* address, std::uint64_t bytes) const;
  // How many bytes of the range lie in resident chunks.
  std::uint64_t resident_under(const void* address, std::uint64_t bytes) const;

  // A router has chosen `used` experts for each token of a batch: `chosen` has them token by token.
  // What is missing of their slices, in every stacked tensor of the layer, is demanded together.
  // `stack`: where the layer's first stacked tensor starts in an app view; for any other address
  // nothing happens and the answer is false, so that an engine may say it at each of the layer's
  // matrix products. So it is with policies that do not rank experts.
  bool use_experts(const void* stack, std::span<const ExpertId> chosen, std::uint32_t used);

  // After use_experts(), with the same words and what the experts are about to be applied to: has
  // fetched ahead what the next layer will likely choose. Takes the time of a router.
  void look_ahead(const void* stack, std::span<const ExpertId> chosen, std::uint32_t used,
                  const HiddenState& state);

  // The layer whose first stacked expert tensor starts at this address, as for use_experts(), and
  // how many experts it has; kNoLayer for any other.
  struct ExpertStack {
    std::int32_t layer = kNoLayer;
    std::uint32_t experts = 0;
  };
  ExpertStack stack_at(const void* stack) const;
  // The names of all such tensors, each once: two models may use one name.
  std::vector<std::string> stack_names() const;

  // Tells the policy that the workload reads this chunk (engines with a signal of their own).
  void notify_access(ChunkId chunk);
  // Replaces the declared order.
  void declare_sequence(std::span<const ChunkId> sequence);

  Result<void> set_budget(std::uint64_t bytes);
  std::uint64_t budget() const;
  std::uint64_t resident_bytes() const;
  // Waits until no fetch is queued or under way: then the counters are final, as long as nobody
  // touches what is absent.
  void settle();
  // Compares our count with the kernel's now (I-7).
  Result<void> reconcile();
  // Gives up a chunk by hand; false when it is not a candidate. For tests and the C API.
  bool evict(ChunkId chunk);
  bool resident(ChunkId chunk) const;

  std::string_view uffd_route() const;  // "/dev/userfaultfd", "userfaultfd", "user-mode-only"
  bool kernel_faults_handled() const;   // false: system calls on absent ranges give EFAULT
  std::string_view read_engine() const;
  bool large_frames() const;             // resident bytes are in large folios where they can be
  std::uint64_t overhead_bytes() const;  // memory of the pager's own: slots
  // What that will be for chunks of at most `largest` bytes.
  static std::uint64_t overhead_bytes_for(std::uint32_t largest, std::uint64_t budget);
  OrderReport order_report() const;
  PagerStats& stats();

  struct Impl;
  Impl* impl() { return impl_.get(); }

 private:
  explicit Pager(std::unique_ptr<Impl> impl);
  friend class Pin;
  void unpin(ChunkId first, std::uint32_t count);
  std::unique_ptr<Impl> impl_;
};

}  // namespace resid

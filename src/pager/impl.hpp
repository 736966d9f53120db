#pragma once
// The pager's insides, shared by the files of this folder; nothing outside includes it (tests do).
//
// Invariants upheld here, by number (docs/design.md has the whole list):
//   I-1  Fault thread and workers touch fill views only, never an app view.
//   I-2  The userfaultfd is non-blocking; only EAGAIN means empty.
//   I-4  What is fetched, pinned, or a prefetch target is never punched (ChunkState::begin_evict).
//   I-5  CONTINUE only after every byte is in the memfd.
//   I-6  One owner per transition; no lock is held across I/O; whoever abandons a fetch wakes.
//   I-7  resident <= kernel's figure <= resident + reserved + evicting, checked under the lock.
//   I-8  Dispatch on chunk state, never on fault type.
//   I-11 Reserve, fill, commit, publish; in this order. The read itself goes to a slot
//   (staging.hpp). I-13 No malloc, stdio, exception or lock of the host program on the fault
//   thread. I-14 A failed read is a loud, named failure and never zeros.
//
// Locks: `mutex` (the accounting lock) guards chunk states, budget, policy, queues and the region
// list. The view table has a lock of its own, taken after it. Neither is held during a read or a
// punch. A fill request holds the view table's, shared, so that its addresses stay what they are.

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/status.hpp"
#include "pager/budget.hpp"
#include "pager/chunk_state.hpp"
#include "pager/map_cost.hpp"
#include "pager/pager.hpp"
#include "pager/region.hpp"
#include "pager/staging.hpp"
#include "pager/userfault.hpp"
#include "pager/view_table.hpp"
#include "policy/expert_map.hpp"
#include "sense/order.hpp"
#include "sense/tripwire_rate.hpp"
#include "storage/reader.hpp"

namespace resid {

// A first-in first-out queue of fetch jobs, linked through the chunks themselves: no memory is
// taken to queue a job.
struct JobQueue {
  ChunkId head = kNoChunk;
  ChunkId tail = kNoChunk;
  std::uint32_t size = 0;
};

// Why budget is wanted: demand may break the pins of retained prefetches, prefetch may not even
// evict what is needed sooner.
enum class Purpose : std::uint8_t { demand, prefetch };

// Who fills in: a worker may wait for what others do; a thread of the reader must not, since what
// it waits for may need that thread.
enum class Filler : std::uint8_t { worker, reader };

// Points where tests make the pager lose a job or slow down; never set in production.
enum class TestFault : std::uint8_t {
  none,
  drop_next_job,
  leave_page_behind,
  refuse_punch,
  no_poison,  // as before kernel 6.6; stays
};

struct Pager::Impl {
  Impl(PagerConfig c, PagerStats& s, FailureHook h, void* ctx, Userfault u, host::FrameSource f,
       std::unique_ptr<Policy> p)
      : config(std::move(c)),
        stats(s),
        hook(h),
        hook_context(ctx),
        uffd(std::move(u)),
        frames(std::move(f)),
        budget(config.budget_bytes, s),
        policy(std::move(p)) {}

  // ---- fault_loop.cpp
  void fault_loop();
  // One message: looks the address up and acts on the chunk's state (I-8).
  void dispatch(const FaultMessage& message, std::uint64_t now);
  // The workload has come to this chunk: the policy is told, and what it has left may go.
  void sense(Lock& lock, ChunkId chunk, bool fault);
  void dispatch_absent(Lock& lock, Region& region, ChunkIndex index, std::uint64_t offset,
                       bool minor, std::uint64_t now);
  void dispatch_resident(Lock& lock, Region& region, ChunkIndex index, std::uint64_t address,
                         std::uint64_t now);
  // Finds fetches that nobody carries, and tells about reads that take too long.
  void watchdog(std::uint64_t now);

  // ---- jobs.cpp
  struct Run {
    Region* region = nullptr;
    ChunkIndex first = 0;
    std::uint32_t count = 0;
    std::uint64_t offset = 0;  // in the store
    std::uint64_t bytes = 0;
  };
  Run run_of(ChunkId head) const;
  // Of the run that a FETCHING chunk is fetched with.
  ChunkId head_of(ChunkId chunk) const;
  template <class F>
  void for_run(ChunkId head, F&& f) {
    const Place place = locate(head);
    for (std::uint32_t i = 0, n = place.region->chunk(place.index).run; i < n; ++i)
      f(place.region->chunk(place.index + i));
  }
  void push(Lock& lock, JobQueue& queue, ChunkId head);
  ChunkId pop(Lock& lock, JobQueue& queue);
  void erase(Lock& lock, JobQueue& queue, ChunkId head);
  // Moves the absent chunks of `span` around `index` to FETCHING, as one job; returns its head.
  ChunkId begin_run(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index,
                    std::uint64_t now);
  // Queues the job as one that someone waits for.
  void demand_run(Lock& lock, ChunkId head);
  // Hands queued jobs to the reader, as far as there are slots.
  void start_reads(Lock& lock);
  bool start_read(Lock& lock, ChunkId head, bool is_demand);
  // Declines a prefetch that waits in a slot this job would fit into; false when there is none.
  bool free_slot(Lock& lock, ChunkId head);
  // On a thread of the reader.
  void read_done(ReadRequest& request);
  void worker_loop();
  // Something may have become evictable or free: those who wait for room may try again.
  void room_came(const Lock&) {
    room_changed = true;
    if (staging.waiting() != 0) work.notify_one();
  }

  // ---- fetch.cpp
  // Fills in what a slot holds and publishes it. False when there is no room for it now: it waits
  // in its slot.
  bool finish(Lock& lock, Slot& slot, Filler filler);
  bool fill_in(Lock& lock, Slot& slot, Filler filler);
  // Whether somebody waits for a demanded run; what is only announced nobody has touched yet.
  static bool awaited(const Lock& lock, const Run& run);
  // The run is nobody's job any more.
  void put_down(const Lock& lock, ChunkId head);
  // Gives up a prefetch that a slot holds and that found no room in time; gives the lock away.
  void decline(Lock& lock, ChunkId head);
  // And the slot back, where it was waiting.
  void decline_staged(Lock& lock, Slot& slot);
  // FETCHING -> ABSENT for the whole run, waking who waits (I-6).
  void abandon_run(Lock& lock, Region& region, ChunkIndex first, std::uint32_t count);
  // FETCHING -> POISONED for the whole run (I-14).
  void poison_run(Lock& lock, const Run& run, const ReadOutcome& outcome, Reservation reservation);
  // Makes every touch of a poisoned chunk, in the views of now, a signal.
  void refuse(const Region& region, ChunkIndex index) const;
  void wake_chunk(const Region& region, ChunkIndex index) const;
  // Maps a chunk whose bytes are all in the memfd into every view, but for its first `skip` bytes.
  // False when somebody may have been left asleep.
  bool map_chunk(const Region& region, ChunkIndex index, std::uint64_t skip);
  // Maps a large chunk by one entry, unless that was slow a short while ago.
  bool map_large(std::uint64_t address, std::uint64_t bytes);
  void count(const FillEvents& events);

  // ---- evict.cpp
  // Reserves `bytes`, evicting as the policy says. Waits for other transitions when nothing is
  // evictable yet; a reader's thread is told `infeasible` instead. ok, infeasible, or system:
  // memory could not be given back (reported).
  Status reserve(Lock& lock, std::uint64_t bytes, Purpose purpose, Filler filler, ChunkId target,
                 Reservation& reservation);
  // Waits until some chunk changes state, but not for ever: when nothing moves and the policy names
  // nobody, any chunk that nothing keeps is evicted. False when evicting failed.
  bool await_transition(Lock& lock);
  // A resident chunk that nothing keeps, whatever the policy says; O(n).
  ChunkId any_evictable(const Lock& lock) const;
  // Punches one candidate; the lock is released meanwhile. False on failure of the system call.
  // `forced`: nobody has chosen it.
  bool evict_one(Lock& lock, ChunkId victim, bool forced = false);
  // Whether room will be needed soon that is not there.
  bool room_wanted(const Lock& lock) const;
  // Gives up a chunk for it, while what will take its place is being read: one that the plan has
  // done with, or that ranks last. False when there is none.
  bool punch_ahead(Lock& lock);
  Status reconcile_locked(const Lock& lock);
  void after_fetch_reconcile(Lock& lock, bool evicted);

  // ---- current.cpp
  // Keeps the run that the program has just been given, in place of the oldest such.
  void make_current(Lock& lock, ChunkId first, std::uint32_t count);
  void release_oldest_current(Lock& lock);
  // Gives up the oldest of them for a demand fetch; false when there is none.
  bool break_current(Lock& lock);
  void release_current(Lock& lock, ChunkId chunk);
  // The program is at `chunk` now: those that no single instruction can need beside it may go.
  void release_passed(Lock& lock, ChunkId chunk);
  // A demand fault on an absent chunk: was it given up too soon?
  void note_wanted(const Lock& lock, const ChunkState& chunk);

  // ---- prefetch.cpp
  // Queues a fetch of an absent chunk; false when it is not absent or was declined a moment ago.
  bool queue_prefetch(Lock& lock, ChunkId chunk, std::uint64_t now);
  // What was to be fetched ahead and is still on its way is wanted now, wherever it is.
  void demand_prefetched(Lock& lock, ChunkId chunk, std::uint64_t now);
  // Queues what the order names next, up to the configured depth.
  void top_up(Lock& lock, std::uint64_t now);
  // Whether a prefetch that has been read may take room now. Reads end out of order; one that is
  // needed later must leave room for the one that is needed next, or that one would throw it out.
  bool may_fill(const Lock& lock, ChunkId chunk, std::uint64_t bytes);
  void retain(Lock& lock, ChunkId chunk);
  // The workload reached a prefetched chunk.
  void consumed(Lock& lock, ChunkId chunk, std::uint64_t now);
  // Gives up the retained prefetch that came last, which is needed last, for a demand fetch; false
  // when there is none.
  bool break_retention(Lock& lock);
  void release_retained(Lock& lock, ChunkId chunk);
  // Takes the oldest place out of the ring; false when it was empty or consumed already.
  bool release_oldest_retained(Lock& lock);

  // ---- experts.cpp
  // The first stack of a layer that starts at `offset`, or null.
  const ExpertIndex::Stack* first_stack(const Region& region, std::uint64_t offset) const;
  // The workload is about to read this slice. `room`: what may still be announced.
  void use_slice(Lock& lock, Region& region, ChunkIndex index, std::uint64_t now,
                 std::uint64_t& room);
  // Begins a fetch of what will be touched for certain, but is not waited for yet.
  void announce(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index, std::uint64_t now);

  // ---- expert_board.cpp
  // The board of experts; without one these do nothing but count for `stats`.
  void show_layers(const Lock& lock, const Region& region);
  void count_layer(const Lock& lock, std::int32_t layer, std::span<const ExpertId> chosen,
                   std::uint32_t used);
  // Where the slice is, of which the router has just spoken.
  void count_asked(const Lock& lock, const Chunk& slice, const ChunkState& state);
  void count_read(const Lock& lock, const Run& run);
  // A thread has touched what is not there.
  static void begin_wait(const Lock&, ChunkState& chunk, std::uint64_t now) {
    if (chunk.touched_ns == 0) chunk.touched_ns = now;
  }
  // Nobody sleeps on the run any more, or whoever does is about to be woken.
  void end_wait(const Lock& lock, const Region& region, ChunkIndex first, std::uint32_t count,
                std::uint64_t now);

  // ---- warm_start.cpp
  struct Warm {
    std::vector<ChunkId> chunks;  // the most used first
    std::size_t next = 0;         // the first that was not looked at
    std::uint64_t leave = 0;      // bytes of the budget that are others'
  };
  // Of the usage that `config` has. `every_token`: the declared order without experts.
  static Warm warm_list(std::span<const OrderedFile> files, std::span<const ChunkId> every_token,
                        std::span<const std::uint32_t> bytes, const ExpertMap& map,
                        const PagerConfig& config);
  // Begins one more of them; false when there is none, or not now.
  bool warm_up(Lock& lock);
  void end_warm(const Lock& lock);
  bool warming(const Lock&) const { return warm_open && warm.next != warm.chunks.size(); }

  // ---- lookahead.cpp
  // Begins to fetch what is missing of the slices of these experts, behind all demands.
  void expect_experts(Lock& lock, Region& region, std::int32_t layer,
                      std::span<const Likely> likely);
  void expect_slice(Lock& lock, Region& region, ChunkIndex index, std::uint64_t now,
                    std::uint64_t& room);
  // False when there are too many already.
  bool expect_run(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index, std::uint64_t now);
  // A router has spoken: what was expected and not chosen is given up, where it is still on its
  // way.
  void drop_expected(Lock& lock);

  // ---- tripwire.cpp
  // After signals: arms what the policy asks for, tells it how many tripwires a pass may have, and
  // takes down what it makes of the workload. Fault thread only.
  void follow_order(std::uint64_t now);
  void take_down(const OrderReport& order);

  // With the lock held: the ring takes one producer at a time.
  void note(const Lock&, TraceKind kind, std::uint64_t now, ChunkId chunk, std::uint32_t detail) {
    if (config.trace != nullptr) config.trace->push(kind, now, chunk, detail);
  }

  // ---- pager.cpp
  // What a range of addresses shows: a region and the offset in it; nothing unless the whole range
  // lies in one app view.
  struct Shown {
    RegionId region = 0;
    std::uint64_t offset = 0;
  };
  std::optional<Shown> shown(const void* address, std::uint64_t bytes) const;
  struct Place {
    Region* region = nullptr;
    ChunkIndex index = 0;
  };
  Place locate(ChunkId chunk) const;  // with the lock held
  ChunkState& state(ChunkId chunk) const {
    const Place place = locate(chunk);
    return place.region->chunk(place.index);
  }
  std::uint32_t bytes_of(ChunkId chunk) const {
    const Place place = locate(chunk);
    return place.region->plan()[place.index].bytes;
  }
  // A Pin handle's claim on the bytes of a chunk, in whatever state it is.
  void add_hold(const Lock& lock, ChunkId chunk);
  void drop_hold(const Lock& lock, ChunkId chunk);
  // Pins so that the policy knows; RESIDENT chunks only.
  void add_pin(Lock& lock, ChunkId chunk);
  void drop_pin(Lock& lock, ChunkId chunk);
  // Tells the policy how much room there is.
  void replan(const Lock& lock);
  void replan_for_pins(const Lock& lock);
  // Puts back views that were taken out of the table for a change that the kernel refused, and
  // wakes who touched them meanwhile.
  void restore(const std::vector<View>& cut);
  // The message for people, and the hook, at the first failure of each status.
  void report(Status status, std::string_view line);
  bool idle(const Lock&) const { return budget.reserved() == 0 && budget.evicting() == 0; }

  const PagerConfig config;
  PagerStats& stats;
  const FailureHook hook;
  void* const hook_context;
  const Userfault uffd;
  const host::FrameSource frames;

  mutable std::mutex mutex;
  std::condition_variable work;        // a slot is staged, room may have come, or stop
  std::condition_variable transition;  // a chunk changed state or budget came free
  Budget budget;
  std::unique_ptr<Policy> policy;
  std::vector<std::unique_ptr<Region>> regions;
  JobQueue demand;    // waiting for a slot
  JobQueue prefetch;  // waiting for a slot
  Staging staging;
  std::uint64_t ahead_evicting = 0;  // bytes that punch_ahead() is giving up now
  bool room_changed = false;         // since a prefetch was last tried in vain
  // Fetches whose bytes are being mapped: their readers go on before the chunk is published. Raised
  // without the lock, lowered with it.
  std::atomic<std::uint32_t> publishing{0};
  MapCost map_cost;
  std::uint32_t jobs_in_hand = 0;  // with a worker
  std::uint64_t fetches_since_reconcile = 0;
  std::uint32_t largest_chunk = 0;
  std::uint64_t planned_pinned = 0;  // budget.pinned when the policy was last told

  std::vector<ChunkId> next_up;  // scratch of top_up: `config.prefetch_depth` places

  Warm warm;
  bool warm_open = false;        // something is mapped: the program is about to begin
  std::uint64_t warm_bytes = 0;  // begun

  // Slices that the lookahead has begun to fetch since a router last spoke.
  static constexpr std::size_t kExpectedMost = 256;
  std::array<ChunkId, kExpectedMost> expected{};
  std::size_t expected_count = 0;

  // Retained prefetches, oldest first: a ring of `config.prefetch_depth` places.
  std::vector<ChunkId> retained;
  std::size_t retained_head = 0;
  std::size_t retained_count = 0;

  // The newest demand fetches, oldest first: a ring.
  struct Kept {
    ChunkId first = kNoChunk;
    std::uint32_t count = 0;
  };
  static constexpr std::size_t kCurrentLeast = 2;
  static constexpr std::size_t kCurrentMost = 64;
  std::array<Kept, kCurrentMost> current{};
  std::size_t current_head = 0;
  std::size_t current_count = 0;
  std::size_t current_limit = kCurrentLeast;
  std::uint64_t current_bytes = 0;
  std::uint64_t calm_fetches = 0;

  ViewTable views;
  TripwireRate tripwire_rate;  // the fault thread's

  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reported{0};  // one bit a Status
  std::atomic<TestFault> test_fault{TestFault::none};
  Fd stop_event;
  std::thread fault_thread;
  std::vector<std::thread> workers;
  std::unique_ptr<Reader> reader;
  std::uint64_t last_watchdog_ns = 0;
};

}  // namespace resid

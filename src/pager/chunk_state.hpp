#pragma once
// The state machine of one chunk. Every edge is one function here; nothing else moves a state.
//
//                                                  +--arm / tripped--+
//                                                  v                 |
//     ABSENT --begin_fetch--> FETCHING --publish--> RESIDENT --begin_evict--> EVICTING
//        ^                       |  |                                            |
//        +-----abandon_fetch-----+  +--poison--> POISONED (for good)             |
//        +-------------------------------finish_evict---------------------------+
//
// What holds in each state:
//   ABSENT    no page of the chunk is in the memfd; no budget is charged for it.
//   FETCHING  exactly one owner (I-6): whoever called begin_fetch, then the queue, then the slot of
//             the read (staging.hpp), then the worker that fills it in. Only the owner may leave
//             the state. Pages appear in the memfd only then, covered by a reservation (I-11).
//   RESIDENT  every byte is in the memfd (I-5) and is charged as resident. Pages may or may not be
//             mapped in a view.
//   EVICTING  the thread that called begin_evict owns the chunk and is punching it.
//   POISONED  the store could not give the bytes (I-14). Touches fail loudly.
//
// State, pins and flags live in one atomic word, so that it can be looked at without the lock; it
// is changed only with the accounting lock held, which every edge takes as evidence.

#include <atomic>
#include <cassert>
#include <cstdint>
#include <mutex>

#include "policy/policy.hpp"

namespace resid {

using Lock = std::unique_lock<std::mutex>;  // the accounting lock, held

struct Slot;

enum class ChunkPhase : std::uint8_t { absent, fetching, resident, evicting, poisoned };

class ChunkState {
 public:
  ChunkPhase phase() const { return static_cast<ChunkPhase>(load() & kPhaseMask); }
  std::uint32_t pins() const { return static_cast<std::uint32_t>((load() >> kPinShift) & kPinMax); }
  std::uint32_t generation() const { return static_cast<std::uint32_t>(load() >> kGenShift); }

  // Someone faulted on the chunk while its owner was busy; the owner must look after them.
  bool wanted() const { return (load() & kWanted) != 0; }
  // Fetched ahead of need and not yet touched.
  bool prefetched() const { return (load() & kPrefetched) != 0; }
  // In a queue, waiting for a worker.
  bool queued() const { return (load() & kQueued) != 0; }
  // Kept by the prefetch retention (one of its pins).
  bool retained() const { return (load() & kRetained) != 0; }

  void begin_fetch(const Lock& lock, std::uint64_t now) {
    move(lock, ChunkPhase::absent, ChunkPhase::fetching);
    since_ns = now;
  }
  void publish(const Lock& lock) {
    move(lock, ChunkPhase::fetching, ChunkPhase::resident);
    word_.fetch_add(1ULL << kGenShift, std::memory_order_release);
  }
  void abandon_fetch(const Lock& lock) { move(lock, ChunkPhase::fetching, ChunkPhase::absent); }
  void poison(const Lock& lock) { move(lock, ChunkPhase::fetching, ChunkPhase::poisoned); }
  void begin_evict(const Lock& lock) {
    assert(pins() == 0);  // I-4
    move(lock, ChunkPhase::resident, ChunkPhase::evicting);
  }
  void finish_evict(const Lock& lock) { move(lock, ChunkPhase::evicting, ChunkPhase::absent); }

  void pin(const Lock& lock) {
    assert(lock.owns_lock() && phase() == ChunkPhase::resident && pins() < kPinMax);
    (void)lock;
    word_.fetch_add(1ULL << kPinShift, std::memory_order_relaxed);
  }
  void unpin(const Lock& lock) {
    assert(lock.owns_lock() && pins() > 0);
    (void)lock;
    word_.fetch_sub(1ULL << kPinShift, std::memory_order_relaxed);
  }
  void set_wanted(const Lock& lock, bool on) { flag(lock, kWanted, on); }
  // Off: it is no longer WARM either.
  void set_prefetched(const Lock& lock, bool on) {
    flag(lock, on ? kPrefetched : kPrefetched | kWarm, on);
  }
  void set_queued(const Lock& lock, bool on) { flag(lock, kQueued, on); }
  void set_retained(const Lock& lock, bool on) { flag(lock, kRetained, on); }
  // Set while a worker carries the job; a fetch that is neither queued nor carried is an orphan.
  bool carried() const { return (load() & kCarried) != 0; }
  void set_carried(const Lock& lock, bool on) { flag(lock, kCarried, on); }

  // Its fetch was asked for by the engine; nobody has touched it yet. With prefetched(): not asked
  // for yet either, but likely to be.
  bool announced() const { return (load() & kAnnounced) != 0; }
  void set_announced(const Lock& lock, bool on) { flag(lock, kAnnounced, on); }

  // Prefetched because earlier runs used it much: takes free room only.
  bool warm() const { return (load() & kWarm) != 0; }
  void set_warm(const Lock& lock, bool on) { flag(lock, kWarm, on); }

  // Unmapped at its first page, so that the next touch tells where the workload is.
  bool armed() const { return (load() & kArmed) != 0; }
  void set_armed(const Lock& lock, bool on) { flag(lock, kArmed, on); }

  // Guarded by the accounting lock.
  ChunkId next = kNoChunk;  // links of the queue the chunk is in
  ChunkId prev = kNoChunk;
  std::uint32_t holds = 0;  // Pin handles that have claimed it; they pin it once it is resident
  std::uint32_t run = 0;    // chunks in the fetch job that this one heads; 0: another heads it
  Slot* slot = nullptr;     // where the run that this one heads, or stands in, is being read to
  std::uint64_t evicted_at = 0;         // the pager's eviction count when it was last given up
  std::uint64_t since_ns = 0;           // when FETCHING began, or the watchdog last looked
  std::uint64_t declined_until_ns = 0;  // no prefetch of it before then
  std::uint64_t touched_ns = 0;         // since when a thread sleeps on it; 0: none does

 private:
  static constexpr std::uint64_t kPhaseMask = 0x7;
  static constexpr std::uint64_t kWanted = 1ULL << 3;
  static constexpr std::uint64_t kPrefetched = 1ULL << 4;
  static constexpr std::uint64_t kQueued = 1ULL << 5;
  static constexpr std::uint64_t kRetained = 1ULL << 6;
  static constexpr std::uint64_t kCarried = 1ULL << 7;
  static constexpr std::uint64_t kArmed = 1ULL << 8;
  static constexpr std::uint64_t kAnnounced = 1ULL << 9;
  static constexpr std::uint64_t kWarm = 1ULL << 10;
  static constexpr unsigned kPinShift = 12;
  static constexpr std::uint64_t kPinMax = (1ULL << 20) - 1;
  static constexpr unsigned kGenShift = 32;

  std::uint64_t load() const { return word_.load(std::memory_order_acquire); }
  void move(const Lock& lock, ChunkPhase from, ChunkPhase to) {
    assert(lock.owns_lock());
    assert(phase() == from);
    (void)lock;
    const std::uint64_t change = static_cast<std::uint64_t>(from) ^ static_cast<std::uint64_t>(to);
    word_.fetch_xor(change, std::memory_order_acq_rel);
  }
  void flag(const Lock& lock, std::uint64_t bit, bool on) {
    assert(lock.owns_lock());
    (void)lock;
    if (on) {
      word_.fetch_or(bit, std::memory_order_relaxed);
    } else {
      word_.fetch_and(~bit, std::memory_order_relaxed);
    }
  }
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace resid

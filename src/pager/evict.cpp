// Making room, and checking that our count of it is the kernel's.

#include <cerrno>
#include <chrono>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "pager/impl.hpp"

namespace resid {

Status Pager::Impl::reserve(Lock& lock, std::uint64_t bytes, Purpose purpose, Filler filler,
                            ChunkId target, Reservation& reservation) {
  for (;;) {
    reservation = budget.try_reserve(lock, bytes);
    if (reservation) return Status::ok;
    if (stop.load(std::memory_order_relaxed)) return Status::infeasible;
    if (purpose == Purpose::prefetch && state(target).warm()) return Status::infeasible;  // W-2
    // The chunk that the reader has just left may not be published yet, though its reader went on
    // and faults again: without it the policy would name another, which is needed sooner. It takes
    // microseconds.
    if (publishing.load() != 0) {
      if (filler == Filler::reader) return Status::infeasible;
      transition.wait(lock);
      continue;
    }
    // What is being given up ahead at this moment will do: it takes microseconds, and a victim more
    // would be read again. What others give up for themselves is not for the taking.
    if (ahead_evicting != 0 && budget.held() - ahead_evicting + bytes <= budget.limit()) {
      if (filler == Filler::reader) return Status::infeasible;
      transition.wait(lock);
      continue;
    }
    const bool planned = purpose == Purpose::prefetch && policy->plans();
    const ChunkId victim = planned ? policy->spent() : policy->select_victim();
    if (victim != kNoChunk) {
      // Admission: a prefetch may only displace what is needed later than itself. What the
      // lookahead expects is needed before any slice that the policy gives up.
      if (purpose == Purpose::prefetch && config.prefetch_guarded && !state(target).announced() &&
          policy->next_use_distance(victim) <= policy->next_use_distance(target)) {
        return Status::infeasible;
      }
      // What the plan keeps would be missed in every pass from now on: whatever takes its place
      // gets no smaller. A prefetch that is not needed yet is read once more instead.
      if (policy->keeps(victim)) {
        if (break_retention(lock)) continue;
        bump(stats.plan_broken);
      }
      if (!evict_one(lock, victim)) return Status::system;
      continue;
    }
    if (purpose == Purpose::prefetch || filler == Filler::reader) return Status::infeasible;
    if (break_retention(lock) || break_current(lock)) continue;
    // What others fetch becomes evictable, what others evict becomes free; a transient pin goes by
    // itself. Only when nobody is at work and nothing can be given up is there truly no room.
    const bool pins_will_go = budget.resident() > budget.pinned;
    if (idle(lock) && !pins_will_go) return Status::infeasible;
    if (!await_transition(lock)) return Status::system;
  }
}

bool Pager::Impl::room_wanted(const Lock& lock) const {
  std::uint64_t want = 0;
  if (policy->plans()) {
    // Room for what is staged, and for one demand more.
    want = std::uint64_t{largest_chunk} * (1 + staging.waiting());
  } else if (policy->ranks_experts()) {
    // All that was asked for is on its way, and needed when it comes.
    want = staging.coming_bytes(lock);
    if (!config.expert_cap_soft && policy->surplus() != kNoChunk) return true;
  }
  // What is being given up ahead at this moment is room already.
  return want != 0 && budget.held() - ahead_evicting + want > budget.limit();
}

bool Pager::Impl::punch_ahead(Lock& lock) {
  if (!room_wanted(lock)) return false;
  const ChunkId victim = policy->plans() ? policy->spent() : policy->select_victim();
  if (victim == kNoChunk) return false;
  bump(stats.punched_ahead);
  const std::uint64_t bytes = bytes_of(victim);
  ahead_evicting += bytes;
  evict_one(lock, victim);
  ahead_evicting -= bytes;
  return true;
}

bool Pager::Impl::await_transition(Lock& lock) {
  // The system clock: gcc 12's thread sanitizer knows only that form of timed wait.
  const auto patience = std::chrono::system_clock::now() + std::chrono::milliseconds(50);
  if (transition.wait_until(lock, patience) != std::cv_status::timeout || !idle(lock)) return true;
  // Nothing moves, and the policy names nobody. It must not be able to hang a program.
  const ChunkId left_out = any_evictable(lock);
  if (left_out == kNoChunk) return true;
  bump(stats.policy_lapses);
  return evict_one(lock, left_out, true);
}

ChunkId Pager::Impl::any_evictable(const Lock&) const {
  for (const auto& region : regions) {
    for (ChunkIndex i = 0; i < region->plan().size(); ++i) {
      const ChunkState& c = region->chunk(i);
      if (c.phase() == ChunkPhase::resident && c.pins() == 0) return region->first_chunk + i;
    }
  }
  return kNoChunk;
}

bool Pager::Impl::evict_one(Lock& lock, ChunkId victim, bool forced) {
  const Place place = locate(victim);
  Region& region = *place.region;
  const Chunk& c = region.plan()[place.index];
  ChunkState& chunk = region.chunk(place.index);
  policy->withdraw(victim);
  if (chunk.prefetched()) {
    bump(stats.prefetch_wasted);
    chunk.set_prefetched(lock, false);
  }
  chunk.set_armed(lock, false);
  chunk.begin_evict(lock);  // asserts that nobody pins it (I-4)
  budget.begin_evict(lock, c.bytes);
  lock.unlock();
  const std::uint64_t began = now_ns();
  int error = 0;
  if (test_fault.load(std::memory_order_relaxed) == TestFault::leave_page_behind) {
    test_fault.store(TestFault::none);
    error = c.bytes > kPage ? region.punch(c.offset, c.bytes - kPage) : 0;
  } else if (test_fault.load(std::memory_order_relaxed) == TestFault::refuse_punch) {
    test_fault.store(TestFault::none);
    error = EPERM;
  } else {
    error = region.punch(c.offset, c.bytes);
  }
  stats.punch_ns.record(now_ns() - began);
  lock.lock();
  chunk.finish_evict(lock);
  budget.finish_evict(lock, c.bytes);
  bump(stats.evictions);
  chunk.evicted_at = stats.evictions.load(std::memory_order_relaxed);
  bump(stats.bytes_punched, c.bytes);
  note(lock, TraceKind::victim, began, victim, forced ? 1 : 0);
  if (chunk.wanted()) {
    // Someone faulted during the punch. We own the chunk still, so the fetch is ours to start.
    chunk.set_wanted(lock, false);
    const std::uint64_t now = now_ns();
    note(lock, TraceKind::fault, now, victim, 0);
    sense(lock, victim, true);
    demand_run(lock, begin_run(lock, region, {place.index, 1}, place.index, now));
    bump(stats.absent_handled);
  }
  room_came(lock);
  transition.notify_all();
  if (error == 0) return true;
  lock.unlock();
  RawLine line;
  line << "residctl: " << region.store().path() << " : giving back memory at offset " << c.offset
       << " failed with errno " << static_cast<std::uint64_t>(error) << " : "
       << remedy(Status::system);
  report(Status::system, line.view());
  lock.lock();
  return false;
}

Status Pager::Impl::reconcile_locked(const Lock&) {
  std::uint64_t kernel = 0;
  for (const auto& region : regions) {
    const std::int64_t bytes = region->kernel_bytes();
    if (bytes < 0) return Status::system;
    kernel += static_cast<std::uint64_t>(bytes);
  }
  bump(stats.reconcile_checks);
  raise_to(stats.kernel_peak_bytes, kernel);
  const std::uint64_t low = budget.resident();
  const std::uint64_t high = budget.held();
  const std::uint64_t divergence = kernel < low ? low - kernel : kernel > high ? kernel - high : 0;
  raise_to(stats.reconcile_max_divergence_bytes, divergence);
  if (divergence <= largest_chunk) return Status::ok;  // I-7
  RawLine line;
  line << "residctl: accounting : we count between " << low << " and " << high
       << " bytes resident, the kernel " << kernel << " : " << remedy(Status::accounting_diverged);
  report(Status::accounting_diverged, line.view());
  return Status::accounting_diverged;
}

void Pager::Impl::after_fetch_reconcile(Lock& lock, bool evicted) {
  constexpr std::uint64_t kInterval = 16;
  if (!config.eager_reconcile && !evicted && ++fetches_since_reconcile < kInterval) return;
  fetches_since_reconcile = 0;
  reconcile_locked(lock);
}

}  // namespace resid

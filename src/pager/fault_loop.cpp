// The fault thread: reads messages, decides by chunk state, hands fetches to the workers. It does
// no I/O of its own (but with --sync-handler, which exists to measure what that costs).

#include <poll.h>

#include <array>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "pager/follow_cpu.hpp"
#include "pager/impl.hpp"

namespace resid {

void Pager::Impl::fault_loop() {
  std::array<FaultMessage, 64> messages;
  // Often enough that an orphan is found within a quarter of its time-out, rarely enough to be
  // free.
  const std::uint64_t period_ms =
      std::clamp<std::uint64_t>(config.fetching_timeout_ms / 4, 5, 1000);
  FollowCpu cpu;
  cpu.start();
  while (!stop.load(std::memory_order_acquire)) {
    // I-2: read until the kernel says empty; poll's word alone would make us sleep on messages that
    // are there, or read ones that a CONTINUE has just resolved.
    const int n = uffd.read(messages.data(), static_cast<int>(messages.size()));
    const std::uint64_t now = now_ns();
    for (int i = 0; i < n; ++i)
      dispatch(messages[static_cast<std::size_t>(i)], now);
    if (n > 0) {
      follow_order(now);
      cpu.follow(static_cast<pid_t>(messages[0].thread), now);
    }
    if (now - last_watchdog_ns > period_ms * 1'000'000) {
      last_watchdog_ns = now;
      watchdog(now);
    }
    if (n > 0) continue;
    if (n < 0) {
      RawLine line;
      line << "residctl: userfaultfd : read failed with errno " << static_cast<std::uint64_t>(-n)
           << " : " << remedy(Status::system);
      report(Status::system, line.view());
      return;
    }
    std::array<pollfd, 2> fds{{{uffd.fd(), POLLIN, 0}, {stop_event.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(period_ms));
  }
}

void Pager::Impl::sense(Lock& lock, ChunkId chunk, bool fault) {
  if (fault) policy->on_fault(chunk);
  if (config.faults_signal_access) policy->on_access(chunk);
  release_passed(lock, chunk);
  room_changed = true;
  // Someone may have something to fill in, or to punch ahead.
  if (staging.waiting() != 0 || room_wanted(lock)) work.notify_one();
}

void Pager::Impl::dispatch(const FaultMessage& message, std::uint64_t now) {
  bump(message.minor ? stats.faults_minor : stats.faults_missing);  // a metric, nothing more (I-8)
  View view;
  if (!views.find(message.address, view)) {
    // Unmapped between the fault and now; the kernel has let the thread go.
    bump(stats.stray_faults);
    return;
  }
  const std::uint64_t offset = view.offset + (message.address - view.begin);
  Lock lock(mutex);
  Region& region = *regions[view.region];
  if (offset >= region.plan().mapped_bytes()) {
    // Past the end of the memfd: the kernel raises SIGBUS itself, as it does for a plain file.
    bump(stats.stray_faults);
    return;
  }
  const ChunkIndex index = region.plan().find(offset);
  ChunkState& chunk = region.chunk(index);
  switch (chunk.phase()) {
    case ChunkPhase::absent:
      dispatch_absent(lock, region, index, offset, message.minor, now);
      break;
    case ChunkPhase::fetching:
      bump(stats.dedup_fetching);
      // The wait for what was announced counts from its first touch.
      if (chunk.announced() && !chunk.wanted()) chunk.since_ns = now;
      chunk.set_wanted(lock, true);
      begin_wait(lock, chunk, now);
      // A prefetch that is wanted now has become a demand, wherever it is on its way.
      if (chunk.prefetched()) {
        const ChunkId id = region.first_chunk + index;
        demand_prefetched(lock, id, now);
        sense(lock, id, true);
        top_up(lock, now);
      }
      break;
    case ChunkPhase::resident:
      dispatch_resident(lock, region, index, message.address, now);
      break;
    case ChunkPhase::evicting:
      // Its owner sees the mark when the hole is made, and fetches again.
      chunk.set_wanted(lock, true);
      begin_wait(lock, chunk, now);
      break;
    case ChunkPhase::poisoned:
      lock.unlock();
      // In a view that is newer than the failure, or before the one who met it has come to this
      // one.
      refuse(region, index);
      break;
  }
}

void Pager::Impl::dispatch_absent(Lock& lock, Region& region, ChunkIndex index,
                                  std::uint64_t offset, bool minor, std::uint64_t now) {
  bump(stats.absent_handled);
  const ChunkId id = region.first_chunk + index;
  note_wanted(lock, region.chunk(index));
  begin_wait(lock, region.chunk(index), now);
  note(lock, TraceKind::fault, now, id, minor ? 1 : 0);
  sense(lock, id, true);
  // An instruction may need two chunks at once (current.cpp). Where two of them with their seams do
  // not fit beside each other, each would push the other out for ever: they come without.
  const std::uint64_t run_most = ChunkPlan::span_bytes(largest_chunk);
  const bool roomy = budget.pinned + 2 * run_most <= budget.limit();
  const ChunkSpan span =
      roomy ? region.plan().span(offset, uffd.exact_address()) : ChunkSpan{index, 1};
  demand_run(lock, begin_run(lock, region, span, index, now));
  if (config.sync_handler) {
    transition.wait(
        lock, [&] { return stop.load() || region.chunk(index).phase() != ChunkPhase::fetching; });
  }
}

void Pager::Impl::dispatch_resident(Lock& lock, Region& region, ChunkIndex index,
                                    std::uint64_t address, std::uint64_t now) {
  const ChunkId id = region.first_chunk + index;
  ChunkState& chunk = region.chunk(index);
  const bool tripped = chunk.armed();
  if (tripped) {
    chunk.set_armed(lock, false);
    bump(stats.tripwires);
  } else {
    bump(stats.dedup_resident);
  }
  const bool ahead = chunk.prefetched();
  // The pin keeps an evictor away while the lock is given up (I-4), which topping up may do too.
  add_pin(lock, id);
  if (config.faults_signal_access) sense(lock, id, false);
  if (ahead) consumed(lock, id, now);
  if (tripped) top_up(lock, now);
  lock.unlock();

  FillEvents events;
  const std::uint64_t page = page_down(address);
  // Whatever hinders it: the thread tries again and is served by what it meets then.
  bool mapped = false;
  views.with(page, [&](const View& view) {
    const Chunk& c = region.plan()[index];
    const std::uint64_t base = view.begin - view.offset;  // may wrap; only sums are used
    // Something else may be shown here by now.
    if (view.region != region.id || page - base - c.offset >= c.bytes) return;
    // What was fetched ahead is mapped but for this page, where mapping all of it takes long.
    const bool by_pages = ahead && !map_cost.quick();
    if (region.large(index) && !by_pages && base + c.offset >= view.begin &&
        base + c.offset + c.bytes <= view.end && map_large(base + c.offset, c.bytes)) {
      mapped = true;
      return;
    }
    mapped = uffd.map(page, kPage, events) == FillResult::done;
    // Everything but this page is there, but of a large page, which comes and goes as a whole.
    if (mapped && (tripped || ahead) && !region.large(index)) return;
    // In a new view nothing is.
    const std::uint64_t begin = std::max(base + c.offset, view.begin);
    const std::uint64_t end = std::min(base + c.offset + c.bytes, view.end);
    if (page + kPage < end) uffd.map_until_present(page + kPage, end - page - kPage, events);
    if (begin < page) uffd.map_until_present(begin, page - begin, events);
  });
  if (!mapped) uffd.wake(page, kPage);
  count(events);
  const std::uint64_t took = now_ns() - now;
  (tripped ? stats.trip_ns : stats.fault_ns).record(took);
  if (tripped) tripwire_rate.tripped(took);

  lock.lock();
  drop_pin(lock, id);
  transition.notify_all();
}

void Pager::Impl::watchdog(std::uint64_t now) {
  const std::uint64_t timeout_ns = std::uint64_t{config.fetching_timeout_ms} * 1'000'000;
  for (std::size_t r = 0;; ++r) {
    Region* region = nullptr;
    {
      const Lock lock(mutex);
      if (r == regions.size()) return;
      region = regions[r].get();
    }
    for (ChunkIndex i = 0; i < region->plan().size(); ++i) {
      ChunkState& chunk = region->chunk(i);
      if (chunk.phase() != ChunkPhase::fetching) continue;  // lock-free look: most are not
      Lock lock(mutex);
      if (chunk.phase() != ChunkPhase::fetching || now < chunk.since_ns + timeout_ns) continue;
      // What has been read is no late disk: a prefetch may wait for room as long as nobody reads
      // on.
      const Slot* slot = chunk.slot;
      if (slot != nullptr && slot->phase != SlotPhase::reading) continue;
      bump(stats.fetching_timeouts);
      chunk.since_ns = now;          // told once per time-out
      if (chunk.queued()) continue;  // the workers are behind; it is not lost
      if (chunk.carried()) {
        lock.unlock();
        RawLine line;
        line << "residctl: " << region->store().path() << " : the disk has not answered a read at "
             << region->plan()[i].offset << " for " << config.fetching_timeout_ms << " ms : still "
             << "waiting; see dmesg";
        line.emit();
        continue;
      }
      // An orphan: nobody will ever finish it. Its waiters start over.
      abandon_run(lock, *region, i, 1);
    }
  }
}

}  // namespace resid

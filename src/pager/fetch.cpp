// Filling in: from bytes in a slot to bytes that the program can read.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/sys.hpp"
#include "pager/impl.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kBackOffNs = 100'000'000;  // after a prefetch was declined

}  // namespace

bool Pager::Impl::finish(Lock& lock, Slot& slot, Filler filler) {
  ++jobs_in_hand;
  staging.begin_fill(lock, slot);
  const bool done = fill_in(lock, slot, filler);
  if (done) {
    staging.give_back(lock, slot);
  } else {
    staging.put_back(lock, slot);
  }
  // Also when it keeps its slot: a demand that counted on it must look again.
  start_reads(lock);
  --jobs_in_hand;
  transition.notify_all();
  return done;
}

void Pager::Impl::put_down(const Lock& lock, ChunkId head) {
  for_run(head, [&](ChunkState& chunk) {
    chunk.set_carried(lock, false);
    chunk.slot = nullptr;
  });
}

void Pager::Impl::decline(Lock& lock, ChunkId head) {
  const Run run = run_of(head);
  bump(stats.prefetch_declined);
  run.region->chunk(run.first).declined_until_ns = now_ns() + kBackOffNs;
  put_down(lock, head);
  abandon_run(lock, *run.region, run.first, run.count);
}

void Pager::Impl::decline_staged(Lock& lock, Slot& slot) {
  staging.begin_fill(lock, slot);
  decline(lock, slot.head);
  staging.give_back(lock, slot);
}

bool Pager::Impl::awaited(const Lock&, const Run& run) {
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const ChunkState& chunk = run.region->chunk(run.first + i);
    if (chunk.wanted() || !chunk.announced()) return true;
  }
  return false;
}

bool Pager::Impl::fill_in(Lock& lock, Slot& slot, Filler filler) {
  const ChunkId head = slot.head;
  const Run run = run_of(head);
  Region& region = *run.region;
  const ChunkIndex first = run.first;
  const ReadRequest& request = slot.request;
  if (request.outcome.status != Status::ok) {
    put_down(lock, head);
    poison_run(lock, run, request.outcome, Reservation{});
    return true;
  }

  const std::uint64_t evictions_before = stats.evictions.load(std::memory_order_relaxed);
  const bool is_demand = slot.demand;
  if (!is_demand && !may_fill(lock, head, run.bytes) && !stop.load(std::memory_order_relaxed)) {
    return false;
  }
  Reservation reservation;
  const Status reserved = reserve(lock, run.bytes, is_demand ? Purpose::demand : Purpose::prefetch,
                                  filler, head, reservation);
  if (reserved != Status::ok) {
    if (filler == Filler::reader && reserved == Status::infeasible) return false;
    const bool stopping = stop.load(std::memory_order_relaxed);
    // A prefetch waits in its slot. By now it may be wanted: then it comes back as a demand. One
    // that nothing says will be wanted does not wait.
    if (!is_demand && reserved == Status::infeasible && !stopping) {
      const ChunkState& chunk = run.region->chunk(run.first);
      if (chunk.warm() && !slot.demand) end_warm(lock);
      const bool likely = chunk.announced() && !chunk.warm();
      if (slot.demand || likely || policy->next_use_distance(head) != kNeverUsed) return false;
      decline(lock, head);
      return true;
    }
    put_down(lock, head);
    // Pins that came after the fault may have left no room for the seams; the chunk alone fits.
    const bool alone_fits = reserved == Status::infeasible && run.count > 1;
    // What was only announced is dropped: its touch comes, and is a demand of its own.
    if (alone_fits || stopping || !awaited(lock, run)) {
      abandon_run(lock, region, first, run.count);
      return true;
    }
    if (reserved == Status::infeasible) bump(stats.infeasible);
    poison_run(lock, run, {reserved, 0, run.offset, false}, Reservation{});
    return true;
  }

  // Read once: it is mapped by it, and kept by it.
  const bool likely = region.chunk(first).announced();
  lock.unlock();
  int error = 0;
  for (std::uint32_t i = 0; i < run.count && error == 0; ++i) {
    error =
        region.fill(first + i, slot.area.data() + (region.plan()[first + i].offset - run.offset));
  }
  if (error != 0) {
    lock.lock();
    put_down(lock, head);
    poison_run(lock, run, {Status::out_of_memory, error, run.offset, false},
               std::move(reservation));
    return true;
  }
  // I-5: every byte is there. The chunks stay FETCHING until CONTINUE has returned: were they
  // RESIDENT already, a punch could take the pages from under it.
  std::uint64_t left_asleep = 0;
  publishing.fetch_add(1);
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const ChunkIndex index = first + i;
    // A prefetched chunk is mapped but for its first page: the touch of that page is a minor fault,
    // which tells that the workload has come here and costs microseconds.
    // Of what an engine asks for it is known without that.
    const ChunkState& chunk = region.chunk(index);
    const bool ahead = !is_demand && !chunk.wanted() && !likely;
    if (!map_chunk(region, index, ahead ? kPage : 0)) left_asleep |= 1ULL << i;
  }
  const std::uint64_t now = now_ns();

  lock.lock();
  bool demanded = is_demand && awaited(lock, run);
  if (demanded) {
    const std::uint64_t since = std::min(region.chunk(first).since_ns, now);
    stats.fault_ns.record(now - since);
    // What the fault would have cost with a disk that takes no time.
    const std::uint64_t read = request.ended_ns - request.began_ns;
    if (request.urgent) stats.overhead_ns.record(now - since - std::min(read, now - since));
  }
  put_down(lock, head);
  end_wait(lock, region, first, run.count, now);
  reservation.commit(lock);  // I-11: before the chunk can be chosen as a victim
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const ChunkIndex index = first + i;
    ChunkState& chunk = region.chunk(index);
    // Someone faulted while we worked, perhaps in a view that map_chunk did not see yet.
    if (chunk.wanted()) {
      left_asleep |= 1ULL << i;
      demanded = true;
    }
    chunk.set_wanted(lock, false);
    chunk.set_announced(lock, false);
    chunk.publish(lock);
    policy->candidate(region.first_chunk + index);
  }
  if (demanded) make_current(lock, head, run.count);
  publishing.fetch_sub(1);
  if (!is_demand && !likely && region.chunk(first).prefetched()) retain(lock, head);
  room_came(lock);
  after_fetch_reconcile(lock, stats.evictions.load(std::memory_order_relaxed) != evictions_before);
  if (demanded) top_up(lock, now_ns());
  if (left_asleep != 0) {
    // Woken threads fault again and find the chunk RESIDENT; nothing is lost if it is gone by then.
    lock.unlock();
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if ((left_asleep >> i) & 1) wake_chunk(region, first + i);
    }
    lock.lock();
  }
  return true;
}

bool Pager::Impl::map_large(std::uint64_t address, std::uint64_t bytes) {
  if (!map_cost.worthwhile()) return false;
  const std::uint64_t began = now_ns();
  const bool mapped = uffd.map_large(address, bytes);
  map_cost.took(now_ns() - began);
  return mapped;
}

bool Pager::Impl::map_chunk(const Region& region, ChunkIndex index, std::uint64_t skip) {
  const Chunk& c = region.plan()[index];
  FillEvents events;
  bool complete = true;
  const bool large = region.large(index);
  views.for_each(region.id, c.offset, c.bytes, [&](const ViewSpan& span) {
    if (large && span.bytes == c.bytes && span.address % kLargePage == 0) {
      // Ahead of need nothing of it is mapped where the first touch maps all of it as fast as a
      // page. An entry for all of it leaves no page out.
      if (skip != 0 ? map_cost.quick() : map_large(span.address, span.bytes)) return;
    }
    const std::uint64_t hidden =
        span.offset - c.offset < skip ? std::min(span.bytes, skip - (span.offset - c.offset)) : 0;
    if (hidden == span.bytes) return;
    const FillResult result = uffd.map(span.address + hidden, span.bytes - hidden, events);
    if (result == FillResult::done) return;
    complete = false;
    if (result == FillResult::absent) {
      RawLine line;
      line << "residctl: " << region.store().path() << " : a page of the chunk at " << c.offset
           << " left the memfd while its fetch owned it : " << remedy(Status::internal);
      report(Status::internal, line.view());
    }
  });
  count(events);
  return complete;
}

void Pager::Impl::count(const FillEvents& events) {
  if (events.partial != 0) bump(stats.continue_partial, events.partial);
  if (events.exists != 0) bump(stats.continue_eexist, events.exists);
  if (events.again != 0) bump(stats.continue_eagain, events.again);
}

void Pager::Impl::wake_chunk(const Region& region, ChunkIndex index) const {
  const Chunk& c = region.plan()[index];
  views.for_each(region.id, c.offset, c.bytes,
                 [&](const ViewSpan& span) { uffd.wake(span.address, span.bytes); });
}

void Pager::Impl::abandon_run(Lock& lock, Region& region, ChunkIndex first, std::uint32_t count_) {
  end_wait(lock, region, first, count_, now_ns());
  for (std::uint32_t i = 0; i < count_; ++i) {
    ChunkState& chunk = region.chunk(first + i);
    chunk.set_wanted(lock, false);
    chunk.set_announced(lock, false);
    chunk.set_prefetched(lock, false);
    chunk.abandon_fetch(lock);
  }
  lock.unlock();
  for (std::uint32_t i = 0; i < count_; ++i)
    wake_chunk(region, first + i);  // I-6
  lock.lock();
  transition.notify_all();
}

void Pager::Impl::poison_run(Lock& lock, const Run& run, const ReadOutcome& outcome,
                             Reservation reservation) {
  const auto& [region_, first, count_, offset, bytes] = run;
  Region& region = *region_;
  end_wait(lock, region, first, count_, now_ns());
  for (std::uint32_t i = 0; i < count_; ++i) {
    ChunkState& chunk = region.chunk(first + i);
    chunk.set_wanted(lock, false);
    chunk.set_announced(lock, false);
    chunk.set_prefetched(lock, false);
    chunk.poison(lock);
  }
  lock.unlock();

  // The message goes out before anyone is woken into SIGBUS, so that the handler can show it.
  const std::uint32_t tensor = region.plan()[first].tensor;
  RawLine line;
  line << "residctl: " << region.store().path() << " : ";
  switch (outcome.status) {
    case Status::store_changed:
      line << "the file was changed, truncated or deleted while in use (noticed at offset "
           << outcome.offset << ")";
      break;
    case Status::infeasible:
      line << "no budget for " << bytes << " bytes at offset " << offset
           << ": everything resident is pinned";
      break;
    case Status::out_of_memory:
      line << "no memory for " << bytes << " bytes at offset " << offset << ": "
           << std::string_view(::strerrordesc_np(outcome.error));
      break;
    case Status::system:
      line << "no memory could be freed for " << bytes << " bytes at offset " << offset;
      break;
    default:
      line << "reading at offset " << outcome.offset;
      if (tensor < region.file().tensors.size()) {
        line << " (tensor " << region.file().tensors[tensor].name << ")";
      }
      if (outcome.error == 0) {
        line << " gave fewer bytes than the file has";
      } else if (const char* text = ::strerrordesc_np(outcome.error)) {
        line << " failed: " << std::string_view(text);
      } else {  // the kernel's own numbers, above 511, have no text
        line << " failed with errno " << static_cast<std::uint64_t>(outcome.error);
      }
  }
  line << " : " << remedy(outcome.status);
  report(outcome.status, line.view());

  // I-14: nobody may ever see the bytes that are missing, nor the part that was read.
  for (std::uint32_t i = 0; i < count_; ++i)
    refuse(region, first + i);
  region.punch(offset, bytes);
  lock.lock();
  if (reservation) reservation.release(lock);
  transition.notify_all();
}

void Pager::Impl::refuse(const Region& region, ChunkIndex index) const {
  const Chunk& c = region.plan()[index];
  views.for_each(region.id, c.offset, c.bytes, [&](const ViewSpan& span) {
    const bool can = test_fault.load(std::memory_order_relaxed) != TestFault::no_poison;
    if (!can || !uffd.poison(span.address, span.bytes)) {
      // Before 6.6: an inaccessible mapping in its place, so that a touch is a SIGSEGV. The table
      // keeps the span, and the program cannot have unmapped it: the table is locked.
      sys::mmap(reinterpret_cast<void*>(span.address), span.bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    }
    uffd.wake(span.address, span.bytes);
  });
}

}  // namespace resid

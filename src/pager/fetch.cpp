// Fetching: from a queued job to bytes that the program can read.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/sys.hpp"
#include "pager/impl.hpp"

namespace resid {
namespace {

// The longest run one job may cover; a run's marks are kept in one word.
constexpr std::uint32_t kRunMax = 64;

}  // namespace

void Pager::Impl::worker_loop() {
  Lock lock(mutex);
  for (;;) {
    work.wait(lock, [&] { return stop.load() || demand.size != 0 || prefetch.size != 0; });
    if (stop.load()) return;
    // Demand overtakes prefetch: the prefetch queue is looked at only when no demand waits.
    const bool is_demand = demand.size != 0;
    const ChunkId head = pop(lock, is_demand ? demand : prefetch);
    if (test_fault.load(std::memory_order_relaxed) == TestFault::drop_next_job) {
      test_fault.store(TestFault::none);
      transition.notify_all();
      continue;
    }
    run_job(lock, head, is_demand ? Purpose::demand : Purpose::prefetch);
  }
}

ChunkId Pager::Impl::begin_run(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index,
                               std::uint64_t now) {
  const auto absent = [&](ChunkIndex i) { return region.chunk(i).phase() == ChunkPhase::absent; };
  ChunkIndex first = index;
  ChunkIndex end = index + 1;
  while (first > span.first && absent(first - 1) && end - first < kRunMax)
    --first;
  while (end < span.first + span.count && absent(end) && end - first < kRunMax)
    ++end;
  for (ChunkIndex i = first; i < end; ++i)
    region.chunk(i).begin_fetch(lock, now);
  region.chunk(first).run = end - first;
  return region.first_chunk + first;
}

void Pager::Impl::run_job(Lock& lock, ChunkId head, Purpose purpose) {
  ++jobs_in_hand;
  carry(lock, head, purpose);
  --jobs_in_hand;
  transition.notify_all();
}

void Pager::Impl::carry(Lock& lock, ChunkId head, Purpose purpose) {
  const Place place = locate(head);
  Region& region = *place.region;
  const ChunkIndex first = place.index;
  const std::uint32_t count_ = region.chunk(first).run;
  const std::uint64_t began = region.chunk(first).since_ns;
  const std::uint64_t offset = region.plan()[first].offset;
  const Chunk& last = region.plan()[first + count_ - 1];
  const std::uint64_t bytes = last.offset + last.bytes - offset;
  for (std::uint32_t i = 0; i < count_; ++i)
    region.chunk(first + i).set_carried(lock, true);
  const auto put_down = [&] {
    for (std::uint32_t i = 0; i < count_; ++i)
      region.chunk(first + i).set_carried(lock, false);
  };

  const std::uint64_t evictions_before = stats.evictions.load(std::memory_order_relaxed);
  Reservation reservation;
  const Status reserved = reserve(lock, bytes, purpose, head, reservation);  // I-11: first
  if (reserved != Status::ok) {
    put_down();
    // A prefetch that is wanted by now must not be dropped: it is a demand.
    if (purpose == Purpose::prefetch) {
      ChunkState& chunk = region.chunk(first);
      if (chunk.prefetched()) {
        bump(stats.prefetch_declined);
        chunk.declined_until_ns = now_ns() + 100'000'000;
      }
      abandon_run(lock, region, first, count_);
      return;
    }
    // Pins that came after the fault may have left no room for the seams; the chunk alone fits.
    const bool alone_fits = reserved == Status::infeasible && count_ > 1;
    if (alone_fits || stop.load(std::memory_order_relaxed)) {
      abandon_run(lock, region, first, count_);
      return;
    }
    if (reserved == Status::infeasible) bump(stats.infeasible);
    poison_run(lock, region, first, count_, {reserved, 0, offset, false}, Reservation{});
    return;
  }

  lock.unlock();
  const std::uint64_t read_began = now_ns();
  const ReadOutcome outcome = region.store().read(offset, bytes, region.fill() + offset);
  const std::uint64_t read_ended = now_ns();
  if (outcome.retried) bump(stats.read_retries);
  if (outcome.status != Status::ok) {
    bump(stats.read_failures);
    lock.lock();
    put_down();
    poison_run(lock, region, first, count_, outcome, std::move(reservation));
    return;
  }
  // Before anybody is woken: who looks at the counters after reading a byte finds it counted.
  bump(stats.fetches);
  bump(stats.bytes_fetched, std::min(bytes, region.store().bytes() - offset));
  // I-5: every byte is there. The chunks stay FETCHING until CONTINUE has returned: were they
  // RESIDENT already, a punch could take the pages from under it.
  std::uint64_t left_asleep = 0;
  publishing.fetch_add(1);
  for (std::uint32_t i = 0; i < count_; ++i) {
    const ChunkIndex index = first + i;
    // A prefetched chunk is mapped but for its first page: the touch of that page is a minor fault,
    // which tells that the workload has come here and costs microseconds.
    const bool ahead = purpose == Purpose::prefetch && !region.chunk(index).wanted();
    if (!map_chunk(region, index, ahead ? kPage : 0)) left_asleep |= 1ULL << i;
  }
  stats.read_ns.record(read_ended - read_began);
  if (purpose == Purpose::demand) stats.fault_ns.record(now_ns() - began);

  lock.lock();
  put_down();
  reservation.commit(lock);  // I-11: before the chunk can be chosen as a victim
  bool demanded = purpose == Purpose::demand;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const ChunkIndex index = first + i;
    ChunkState& chunk = region.chunk(index);
    // Someone faulted while we worked, perhaps in a view that map_chunk did not see yet.
    if (chunk.wanted()) {
      left_asleep |= 1ULL << i;
      demanded = true;
    }
    chunk.set_wanted(lock, false);
    chunk.publish(lock);
    policy->candidate(region.first_chunk + index);
  }
  if (demanded) make_current(lock, head, count_);
  publishing.fetch_sub(1);
  const auto read_us = static_cast<std::uint32_t>((read_ended - read_began) / 1000);
  note(lock, TraceKind::fetch, read_began, head,
       read_us | (purpose == Purpose::prefetch ? kPrefetchFetch : 0));
  if (purpose == Purpose::prefetch && region.chunk(first).prefetched()) retain(lock, head);
  after_fetch_reconcile(lock, stats.evictions.load(std::memory_order_relaxed) != evictions_before);
  if (demanded && config.prefetch_depth != 0) top_up(lock, read_ended);
  if (left_asleep != 0) {
    // Woken threads fault again and find the chunk RESIDENT; nothing is lost if it is gone by then.
    lock.unlock();
    for (std::uint32_t i = 0; i < count_; ++i) {
      if ((left_asleep >> i) & 1) wake_chunk(region, first + i);
    }
    lock.lock();
  }
}

bool Pager::Impl::map_chunk(const Region& region, ChunkIndex index, std::uint64_t skip) {
  const Chunk& c = region.plan()[index];
  FillEvents events;
  bool complete = true;
  views.for_each(region.id, c.offset, c.bytes, [&](const ViewSpan& span) {
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
  for (std::uint32_t i = 0; i < count_; ++i) {
    ChunkState& chunk = region.chunk(first + i);
    chunk.set_wanted(lock, false);
    chunk.set_prefetched(lock, false);
    chunk.abandon_fetch(lock);
  }
  lock.unlock();
  for (std::uint32_t i = 0; i < count_; ++i)
    wake_chunk(region, first + i);  // I-6
  lock.lock();
  transition.notify_all();
}

void Pager::Impl::poison_run(Lock& lock, Region& region, ChunkIndex first, std::uint32_t count_,
                             const ReadOutcome& outcome, Reservation reservation) {
  const std::uint64_t offset = region.plan()[first].offset;
  const Chunk& last = region.plan()[first + count_ - 1];
  const std::uint64_t bytes = last.offset + last.bytes - offset;
  for (std::uint32_t i = 0; i < count_; ++i) {
    ChunkState& chunk = region.chunk(first + i);
    chunk.set_wanted(lock, false);
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

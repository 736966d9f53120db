// Jobs: from a chunk that is wanted to a read that is done.
//
//     begin_run -> queue (demand | prefetch) -> slot, disk -> staged -> fetch.cpp
//
// A job is a run of chunks, headed by the first of them. Reads are started by whoever makes one
// possible: the thread that queues a job, or the one that gives a slot back; a read that ends puts
// its slot where the workers look. Demand comes first at every one of these places, and once more
// in the reader's own queue.

#include <algorithm>

#include "base/clock.hpp"
#include "pager/impl.hpp"

namespace resid {
namespace {

// The longest run one job may cover; a run's marks are kept in one word.
constexpr std::uint32_t kRunMax = 64;

// To copy more than this takes longer than to wake a worker.
constexpr std::uint64_t kFilledByReader = 256 * 1024;

}  // namespace

// ---- Queues

void Pager::Impl::push(Lock& lock, JobQueue& queue, ChunkId head) {
  ChunkState& c = state(head);
  c.next = kNoChunk;
  c.prev = queue.tail;
  if (queue.tail != kNoChunk) {
    state(queue.tail).next = head;
  } else {
    queue.head = head;
  }
  queue.tail = head;
  ++queue.size;
  for_run(head, [&](ChunkState& chunk) { chunk.set_queued(lock, true); });
}

void Pager::Impl::erase(Lock& lock, JobQueue& queue, ChunkId head) {
  ChunkState& c = state(head);
  if (c.prev != kNoChunk) {
    state(c.prev).next = c.next;
  } else {
    queue.head = c.next;
  }
  if (c.next != kNoChunk) {
    state(c.next).prev = c.prev;
  } else {
    queue.tail = c.prev;
  }
  --queue.size;
  for_run(head, [&](ChunkState& chunk) { chunk.set_queued(lock, false); });
}

ChunkId Pager::Impl::pop(Lock& lock, JobQueue& queue) {
  const ChunkId head = queue.head;
  erase(lock, queue, head);
  return head;
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
  for (ChunkIndex i = first; i < end; ++i) {
    region.chunk(i).begin_fetch(lock, now);
    region.chunk(i).run = 0;
  }
  region.chunk(first).run = end - first;
  return region.first_chunk + first;
}

ChunkId Pager::Impl::head_of(ChunkId chunk) const {
  while (state(chunk).run == 0)
    --chunk;
  return chunk;
}

Pager::Impl::Run Pager::Impl::run_of(ChunkId head) const {
  const Place place = locate(head);
  Region& region = *place.region;
  const std::uint32_t count_ = region.chunk(place.index).run;
  const Chunk& first = region.plan()[place.index];
  const Chunk& last = region.plan()[place.index + count_ - 1];
  return {&region, place.index, count_, first.offset, last.offset + last.bytes - first.offset};
}

void Pager::Impl::demand_run(Lock& lock, ChunkId head) {
  push(lock, demand, head);
  raise_to(stats.queue_high_water, demand.size);
  start_reads(lock);
}

// ---- Reads

void Pager::Impl::start_reads(Lock& lock) {
  while (demand.size != 0) {
    if (test_fault.load(std::memory_order_relaxed) == TestFault::drop_next_job) {
      test_fault.store(TestFault::none);
      pop(lock, demand);
      continue;
    }
    if (!start_read(lock, demand.head, true) && !free_slot(lock, demand.head)) return;
  }
  while (prefetch.size != 0) {
    if (!start_read(lock, prefetch.head, false)) return;
  }
}

// A demand must not wait for a prefetch that itself waits for the program to read on. Where a slot
// comes free anyway it is waited for.
bool Pager::Impl::free_slot(Lock& lock, ChunkId head) {
  const std::uint64_t bytes = run_of(head).bytes;
  if (staging.comes_free(lock, bytes)) return false;
  for (Slot* slot = staging.first_prefetch(); slot != nullptr; slot = slot->next) {
    if (slot->area.bytes() < bytes) continue;
    decline_staged(lock, *slot);
    return true;
  }
  return false;
}

bool Pager::Impl::start_read(Lock& lock, ChunkId head, bool is_demand) {
  const Run run = run_of(head);
  Slot* slot = staging.take(lock, run.bytes, is_demand);
  if (slot == nullptr) return false;
  erase(lock, is_demand ? demand : prefetch, head);
  slot->head = head;
  slot->spare = !is_demand && state(head).warm();
  for_run(head, [&](ChunkState& chunk) {
    chunk.set_carried(lock, true);
    chunk.slot = slot;
  });
  ReadRequest& request = slot->request;
  request.store = &run.region->store();
  request.offset = run.offset;
  request.bytes = run.bytes;
  request.into = slot->area.data();
  request.urgent = is_demand;
  reader->submit(request);
  return true;
}

void Pager::Impl::read_done(ReadRequest& request) {
  const ReadOutcome& outcome = request.outcome;
  const bool got_it = outcome.status == Status::ok;
  const std::uint64_t end = request.store->bytes();
  const std::uint64_t got =
      request.offset >= end ? 0 : std::min(request.bytes, end - request.offset);
  // Past the end of a file a mapping shows zeros; the slot holds what was there before.
  if (got_it) std::fill(request.into + got, request.into + request.bytes, std::uint8_t{0});
  Lock lock(mutex);
  Slot& slot = staging.at(request.tag);
  const std::uint64_t took = request.ended_ns - request.began_ns;
  if (outcome.retried) bump(stats.read_retries);
  if (got_it) {
    // In the trace before it is counted: the program may end at any moment.
    const auto read_us = static_cast<std::uint32_t>(took / 1000);
    note(lock, TraceKind::fetch, request.began_ns, slot.head,
         read_us | (slot.demand ? 0 : kPrefetchFetch));
    bump(stats.fetches);
    bump(stats.bytes_fetched, got);
    count_read(lock, run_of(slot.head));
    stats.read_ns.record(took);
  } else {
    bump(stats.read_failures);
  }
  staging.read_done(lock, slot);
  room_changed = true;
  // A small one that somebody waits for is there sooner than a worker would be awake. Where more is
  // on its way the reader's thread has that to do.
  const bool alone = staging.reading() == 0 && demand.size == 0;
  // A failure is told at length, which is no work for this thread.
  const bool here = got_it && slot.demand && alone && request.bytes <= kFilledByReader &&
                    finish(lock, slot, Filler::reader);
  const bool for_a_worker = !here || warming(lock);
  lock.unlock();
  if (!for_a_worker) return;
  work.notify_one();
  transition.notify_all();
}

// ---- Workers

void Pager::Impl::worker_loop() {
  Lock lock(mutex);
  for (;;) {
    if (stop.load()) return;
    if (Slot* slot = staging.first_demand(); slot != nullptr) {
      finish(lock, *slot, Filler::worker);
    } else if (slot = staging.first_prefetch(); slot != nullptr && room_changed) {
      // What is tried in vain waits for the next change: nothing else can make room.
      room_changed = false;
      if (finish(lock, *slot, Filler::worker)) room_changed = true;
    } else if (!punch_ahead(lock) && !warm_up(lock)) {
      work.wait(lock);
    }
  }
}

}  // namespace resid

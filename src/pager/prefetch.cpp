// Fetching ahead of need. Off unless a depth is configured.
//
// Reads ahead go to slots, as many as there are, and become resident as room comes: by evicting
// what is needed later than they are (admission), or what the plan has done with.
//
// A prefetched chunk becomes RESIDENT without anyone waiting for it. It is mapped but for its first
// page, so that its first touch is a minor fault: that is how its use is noticed (`consumed`), even
// in a program that knows nothing of us. Until then it is retained: pinned, in a ring that holds
// `prefetch_depth` chunks; a newer arrival pushes the oldest out, and a demand fetch that finds
// nothing else to evict breaks the newest pin (counted: it shows that the budget is too tight for
// the depth).

#include "pager/impl.hpp"

namespace resid {

bool Pager::Impl::queue_prefetch(Lock& lock, ChunkId chunk, std::uint64_t now) {
  const Place place = locate(chunk);
  ChunkState& c = place.region->chunk(place.index);
  if (c.phase() != ChunkPhase::absent || c.declined_until_ns > now) return false;
  push(lock, prefetch, begin_run(lock, *place.region, {place.index, 1}, place.index, now));
  c.set_prefetched(lock, true);
  bump(stats.prefetch_issued);
  start_reads(lock);
  return true;
}

void Pager::Impl::demand_prefetched(Lock& lock, ChunkId id, std::uint64_t now) {
  const ChunkId head = head_of(id);
  ChunkState& chunk = state(head);
  bump(stats.prefetch_late);
  for_run(head, [&](ChunkState& each) { each.set_prefetched(lock, false); });
  chunk.since_ns = now;  // the demand's latency counts from here
  if (chunk.queued()) {
    erase(lock, prefetch, head);
    demand_run(lock, head);
  } else if (Slot* slot = chunk.slot; slot != nullptr) {
    if (slot->phase == SlotPhase::reading) reader->urge(slot->request);
    staging.make_demand(lock, *slot);
    if (slot->phase == SlotPhase::staged) work.notify_one();
  }
}

void Pager::Impl::top_up(Lock& lock, std::uint64_t now) {
  if (config.prefetch_depth == 0) return;
  const std::size_t n = policy->upcoming(next_up);
  ChunkId left_out = kNoChunk;
  for (std::size_t i = 0; i < n && left_out == kNoChunk; ++i) {
    // Only what can be started now: what waited in a queue would be out of date after a jump.
    if (staging.has_room_ahead(lock, bytes_of(next_up[i]))) {
      queue_prefetch(lock, next_up[i], now);
    } else if (state(next_up[i]).phase() == ChunkPhase::absent) {
      left_out = next_up[i];
    }
  }
  if (left_out == kNoChunk) return;
  // After a jump slots may hold what is needed later than what finds no slot.
  Slot* furthest = nullptr;
  std::int64_t distance = policy->next_use_distance(left_out);
  for (Slot* slot = staging.first_prefetch(); slot != nullptr; slot = slot->next) {
    const std::int64_t d = policy->next_use_distance(slot->head);
    if (d <= distance) continue;
    furthest = slot;
    distance = d;
  }
  if (furthest == nullptr) return;
  decline_staged(lock, *furthest);
  queue_prefetch(lock, left_out, now);
}

bool Pager::Impl::may_fill(const Lock&, ChunkId chunk, std::uint64_t bytes) {
  if (!policy->plans()) return true;
  const std::size_t n = policy->upcoming(next_up);
  for (std::size_t i = 0; i < n; ++i) {
    if (next_up[i] == chunk) return true;
    const std::uint64_t nearer = bytes_of(next_up[i]);
    if (state(next_up[i]).phase() == ChunkPhase::resident) continue;
    return budget.held() + bytes + nearer <= budget.limit();
  }
  return true;
}

void Pager::Impl::retain(Lock& lock, ChunkId chunk) {
  if (!config.prefetch_pinned || retained.empty()) return;
  if (retained_count == retained.size()) release_oldest_retained(lock);
  retained[(retained_head + retained_count) % retained.size()] = chunk;
  ++retained_count;
  state(chunk).set_retained(lock, true);
  add_pin(lock, chunk);
}

void Pager::Impl::release_retained(Lock& lock, ChunkId chunk) {
  state(chunk).set_retained(lock, false);
  drop_pin(lock, chunk);
}

bool Pager::Impl::release_oldest_retained(Lock& lock) {
  const ChunkId oldest = retained[retained_head];
  retained_head = (retained_head + 1) % retained.size();
  --retained_count;
  if (oldest == kNoChunk) return false;
  release_retained(lock, oldest);
  return true;
}

void Pager::Impl::consumed(Lock& lock, ChunkId chunk, std::uint64_t now) {
  ChunkState& state_ = state(chunk);
  state_.set_prefetched(lock, false);
  bump(stats.prefetch_useful);
  if (state_.retained()) {
    for (std::size_t i = 0; i < retained_count; ++i) {
      ChunkId& place = retained[(retained_head + i) % retained.size()];
      if (place == chunk) place = kNoChunk;
    }
    release_retained(lock, chunk);
  }
  make_current(lock, chunk, 1);
  room_came(lock);
  top_up(lock, now);
}

bool Pager::Impl::break_retention(Lock& lock) {
  while (retained_count != 0) {
    --retained_count;
    const ChunkId newest = retained[(retained_head + retained_count) % retained.size()];
    if (newest == kNoChunk) continue;
    release_retained(lock, newest);
    bump(stats.prefetch_pin_broken);
    return true;
  }
  return false;
}

}  // namespace resid

// Fetching ahead of need. Off unless a depth is configured.
//
// A prefetched chunk becomes RESIDENT without anyone waiting for it. It is mapped but for its first
// page, so that its first touch is a minor fault: that is how its use is noticed (`consumed`), even
// in a program that knows nothing of us. Until then it is retained: pinned, in a ring that holds
// `prefetch_depth` chunks; a newer arrival pushes the oldest out, and a demand fetch that finds
// nothing else to evict breaks the oldest pin (counted: it shows that the budget is too tight for
// the depth).

#include "pager/impl.hpp"

namespace resid {

void Pager::Impl::top_up(Lock& lock, ChunkId chunk, std::uint64_t now) {
  ChunkId next = chunk;
  for (std::uint32_t ahead = 0; ahead < config.prefetch_depth; ++ahead) {
    next = policy->predict_next(next);
    if (next == kNoChunk || next == chunk) return;
    const Place place = locate(next);
    ChunkState& state_ = place.region->chunk(place.index);
    if (state_.phase() != ChunkPhase::absent) continue;
    if (state_.since_ns > now) continue;  // declined a moment ago
    const ChunkId head = begin_run(lock, *place.region, {place.index, 1}, place.index, now);
    state_.set_prefetched(lock, true);
    push(lock, prefetch, head);
    bump(stats.prefetch_issued);
    work.notify_one();
  }
}

void Pager::Impl::retain(Lock& lock, ChunkId chunk) {
  if (!config.prefetch_pinned || retained.empty()) return;
  if (retained_count == retained.size()) {
    const ChunkId oldest = retained[retained_head];
    retained_head = (retained_head + 1) % retained.size();
    --retained_count;
    if (oldest != kNoChunk) release_retained(lock, oldest);
  }
  retained[(retained_head + retained_count) % retained.size()] = chunk;
  ++retained_count;
  state(chunk).set_retained(lock, true);
  add_pin(lock, chunk);
}

void Pager::Impl::release_retained(Lock& lock, ChunkId chunk) {
  state(chunk).set_retained(lock, false);
  drop_pin(lock, chunk);
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
  top_up(lock, chunk, now);
}

bool Pager::Impl::break_retention(Lock& lock) {
  while (retained_count != 0) {
    const ChunkId oldest = retained[retained_head];
    retained_head = (retained_head + 1) % retained.size();
    --retained_count;
    if (oldest == kNoChunk) continue;
    bump(stats.prefetch_pin_broken);
    release_retained(lock, oldest);
    return true;
  }
  return false;
}

}  // namespace resid

// Lookahead: what the next layer's router will likely choose is fetched while this layer computes.
//
// A slice that is expected is a prefetch (PREFETCHED), and ANNOUNCED at the same time: it is mapped
// whole when it comes, since the engine says when it is used, and may take the place of any slice
// that the policy gives up. It goes behind every demand, in the queue, for a slot and at the disk.
// Where the router then names it, it becomes a demand wherever it is; where it does not:
//
//     queued        nothing was read: back to ABSENT
//     on its way    no longer ANNOUNCED: takes no room from anybody when it comes
//     resident      stays until the policy gives it up; counted as wasted, unless it is used

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "pager/impl.hpp"

namespace resid {
namespace {

// A read in vain costs a read, and one that is missing costs a wait. At this chance one slice in
// eleven is read in vain, over all that are read so.
constexpr float kLeastChance = 0.6F;

}  // namespace

bool Pager::Impl::expect_run(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index,
                             std::uint64_t now) {
  if (expected_count == kExpectedMost) return false;
  const ChunkId head = begin_run(lock, region, span, index, now);
  for_run(head, [&](ChunkState& chunk) {
    chunk.set_prefetched(lock, true);
    chunk.set_announced(lock, true);
  });
  push(lock, prefetch, head);
  expected[expected_count++] = head;
  bump(stats.prefetch_issued);
  return true;
}

void Pager::Impl::expect_slice(Lock& lock, Region& region, ChunkIndex index, std::uint64_t now,
                               std::uint64_t& room) {
  const ChunkSpan span = region.plan().span(region.plan()[index].offset, true);
  const std::uint32_t bytes = region.plan()[index].bytes;
  if (region.chunk(index).phase() == ChunkPhase::absent && room >= bytes) {
    if (!expect_run(lock, region, span, index, now)) return;
    room -= bytes;
    bump(stats.lookahead_issued_bytes, bytes);
  }
  for (ChunkIndex i = span.first; i < span.first + span.count; ++i) {
    const ChunkPhase phase = region.chunk(i).phase();
    // Not the seams: a tensor's last page may be in the declared order, where nobody is yet.
    if (i == index && phase == ChunkPhase::resident) policy->on_access(region.first_chunk + i);
    if (phase == ChunkPhase::absent && region.plan()[i].seam) {
      expect_run(lock, region, {i, 1}, i, now);
    }
  }
}

void Pager::Impl::expect_experts(Lock& lock, Region& region, std::int32_t layer,
                                 std::span<const Likely> likely) {
  // Half of what may be announced for the layer that is at work (experts.cpp): more would push that
  // out before it is used.
  std::uint64_t room = budget.unpinned() / 4;
  const std::uint64_t now = now_ns();
  for (const Likely& each : likely) {
    const ExpertId expert = each.expert;
    policy->on_expected(static_cast<std::uint32_t>(layer), std::span(&expert, 1));
    for (const ExpertIndex::Stack& stack : region.experts().stacks(layer)) {
      if (expert >= stack.experts) continue;
      for (const ChunkIndex chunk : region.experts().chunks(stack, expert))
        expect_slice(lock, region, chunk, now, room);
    }
  }
  start_reads(lock);
  if (room_wanted(lock)) work.notify_one();
}

void Pager::Impl::drop_expected(Lock& lock) {
  for (const ChunkId id : std::span(expected).first(expected_count)) {
    const ChunkState& head = state(id);
    // Another run may have begun there since.
    if (head.phase() != ChunkPhase::fetching || !head.prefetched() || head.run == 0) continue;
    bump(stats.lookahead_dropped_bytes, run_of(id).bytes);
    const bool queued = head.queued();
    // Nobody sleeps on it (I-6): who had touched it would have made it a demand.
    if (queued) erase(lock, prefetch, id);
    // No victim is given up for it any more.
    if (head.slot != nullptr && !head.slot->demand) head.slot->spare = true;
    for_run(id, [&](ChunkState& chunk) {
      chunk.set_announced(lock, false);
      if (!queued) return;
      chunk.set_prefetched(lock, false);
      chunk.abandon_fetch(lock);
    });
  }
  if (expected_count == 0) return;
  room_came(lock);
  transition.notify_all();
  expected_count = 0;
}

void Pager::look_ahead(const void* stack, std::span<const ExpertId> chosen, std::uint32_t used,
                       const HiddenState& state) {
  Impl& p = *impl_;
  const auto where = p.shown(stack, 1);
  if (!where || used == 0) return;
  Region* region = nullptr;
  std::int32_t layer = kNoLayer;
  {
    const Lock lock(p.mutex);
    region = p.regions[where->region].get();
    if (region->lookahead == nullptr || !p.policy->ranks_experts()) return;
    const ExpertIndex::Stack* first = p.first_stack(*region, where->offset);
    if (first == nullptr) return;
    layer = first->layer;
  }
  Lookahead& ahead = *region->lookahead;
  const std::unique_lock held(ahead.mutex, std::try_to_lock);
  if (!held) return;
  const std::uint64_t began = now_ns();
  if (layer == region->experts().first_stacks().front().layer) {
    const bool guessed = state.tokens <= RouterLookahead::kRows;
    if (guessed && ahead.token_began_ns != 0) ahead.pays.token(began - ahead.token_began_ns);
    ahead.token_began_ns = guessed ? began : 0;
  }
  if (!ahead.pays.on()) {
    bump(p.stats.lookahead_rested);
    return;
  }
  // What another context chooses says nothing of the state that this guess was made from.
  const bool own =
      std::exchange(ahead.owner, std::this_thread::get_id()) == std::this_thread::get_id();
  if (!own) ahead.router->forget();
  const std::span<const Likely> likely = ahead.router->guess(layer, state, kLeastChance);
  if (!likely.empty()) {
    Lock lock(p.mutex);
    p.expect_experts(lock, *region, ahead.router->next(layer), likely);
  }
  const RouterLookahead::Tally tally = ahead.router->learn(layer, chosen, used);
  bump(p.stats.lookahead_asked, tally.asked);
  bump(p.stats.lookahead_right, tally.right);
  bump(p.stats.lookahead_calls);
  bump(p.stats.lookahead_ns, now_ns() - began);
}

}  // namespace resid

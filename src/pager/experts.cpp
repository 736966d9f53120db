// Experts: what the router chose is demanded as one batch, before the first matrix product touches
// a byte of it.
//
// An engine that knows a layer's chosen experts says so (use_experts). All their slices, of every
// stacked tensor of the layer, are then looked at together: a resident one is told to the policy as
// used, an absent one is ANNOUNCED: its fetch begins as a demand, which no admission declines, but
// nobody waits for it yet. Where a slice is touched before it has come, the toucher waits as for
// any fetch under way, and the announcement is a demand like others from then on.
//
// Without this a layer's slices are read one after the other, each when its first byte is missed,
// with one request at the disk at a time.

#include <algorithm>
#include <array>
#include <bit>

#include "base/clock.hpp"
#include "pager/impl.hpp"

namespace resid {
namespace {

constexpr std::size_t kDistinct = 4096;  // more than any layer has; what is beyond comes by faults

}  // namespace

void Pager::Impl::announce(Lock& lock, Region& region, ChunkSpan span, ChunkIndex index,
                           std::uint64_t now) {
  const ChunkId head = begin_run(lock, region, span, index, now);
  for_run(head, [&](ChunkState& chunk) { chunk.set_announced(lock, true); });
  push(lock, demand, head);
  raise_to(stats.queue_high_water, demand.size);
}

void Pager::Impl::use_slice(Lock& lock, Region& region, ChunkIndex index, std::uint64_t now,
                            std::uint64_t& room) {
  const ChunkSpan span = region.plan().span(region.plan()[index].offset, true);
  const ChunkId id = region.first_chunk + index;
  const std::uint32_t bytes = region.plan()[index].bytes;
  bump(stats.expert_asked_bytes, bytes);
  count_asked(lock, region.plan()[index], region.chunk(index));
  switch (region.chunk(index).phase()) {
    case ChunkPhase::absent:
      bump(stats.expert_missing_bytes, bytes);
      if (room < bytes) break;
      room -= bytes;
      announce(lock, region, span, index, now);
      break;
    case ChunkPhase::fetching:
      bump(stats.expert_on_way_bytes, bytes);
      if (region.chunk(index).prefetched()) {
        if (region.chunk(index).warm()) bump(stats.warm_used_bytes, bytes);
        if (!region.chunk(index).wanted()) region.chunk(index).set_announced(lock, true);
        demand_prefetched(lock, id, now);
      }
      break;
    case ChunkPhase::resident:
      // What was fetched by hint, or by a declared order, tells by the fault on its first page.
      if (region.chunk(index).prefetched() && !region.chunk(index).retained()) {
        bump(region.chunk(index).warm() ? stats.warm_used_bytes : stats.expert_ahead_bytes, bytes);
        region.chunk(index).set_prefetched(lock, false);
        bump(stats.prefetch_useful);
      }
      break;
    case ChunkPhase::evicting:  // its owner sees a touch, and fetches it again
    case ChunkPhase::poisoned:  // the touch is refused
      break;
  }
  // The seams as well: they are this slice's too, and as young.
  for (ChunkIndex i = span.first; i < span.first + span.count; ++i) {
    policy->on_access(region.first_chunk + i);
    ChunkState& seam = region.chunk(i);
    if (i != index && seam.phase() == ChunkPhase::resident && !seam.retained()) {
      seam.set_prefetched(lock, false);
    }
    if (region.plan()[i].seam && region.chunk(i).phase() == ChunkPhase::absent) {
      announce(lock, region, {i, 1}, i, now);
    }
  }
}

const ExpertIndex::Stack* Pager::Impl::first_stack(const Region& region,
                                                   std::uint64_t offset) const {
  // By the tensor, not by the chunk: the page where it starts may be another tensor's too.
  for (const ExpertIndex::Stack& stack : region.experts().first_stacks()) {
    if (region.file().tensors[stack.tensor].offset == offset) return &stack;
  }
  return nullptr;
}

Pager::ExpertStack Pager::stack_at(const void* stack) const {
  const auto where = impl_->shown(stack, 1);
  if (!where) return {};
  const Lock lock(impl_->mutex);
  const auto* found = impl_->first_stack(*impl_->regions[where->region], where->offset);
  return found == nullptr ? ExpertStack{} : ExpertStack{found->layer, found->experts};
}

std::vector<std::string> Pager::stack_names() const {
  std::vector<std::string> names;
  {
    const Lock lock(impl_->mutex);
    for (const auto& region : impl_->regions) {
      for (const ExpertIndex::Stack& stack : region->experts().first_stacks())
        names.push_back(region->file().tensors[stack.tensor].name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool Pager::use_experts(const void* stack, std::span<const ExpertId> chosen, std::uint32_t used) {
  Impl& p = *impl_;
  const auto where = p.shown(stack, 1);
  if (!where) return false;
  Lock lock(p.mutex);
  // The others are there to compare with, and know what a program tells by its faults.
  if (!p.policy->ranks_experts()) return false;
  Region& region = *p.regions[where->region];
  // Once a layer, when the first of its stacks that the engine comes to is named.
  const ExpertIndex::Stack* first = p.first_stack(region, where->offset);
  if (first == nullptr) return false;
  const std::int32_t layer = first->layer;
  p.policy->on_routing(static_cast<std::uint32_t>(layer), chosen, used);
  // A prompt names an expert many times; it is read once. In rising order, as ggml computes them.
  std::array<std::uint64_t, (kExpertsMost + 63) / 64> seen{};
  for (const ExpertId expert : chosen)
    seen[expert / 64] |= std::uint64_t{1} << expert % 64;
  std::array<ExpertId, kDistinct> experts;
  std::size_t distinct = 0;
  for (std::size_t word = 0; word < seen.size(); ++word) {
    for (std::uint64_t bits = seen[word]; bits != 0 && distinct < experts.size(); bits &= bits - 1)
      experts[distinct++] =
          static_cast<ExpertId>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  // What is announced beyond that would push out what was, before it is used: it comes by faults.
  std::uint64_t room = p.budget.unpinned() / 2;
  const std::uint64_t now = now_ns();
  bump(p.stats.expert_layers);
  bump(p.stats.expert_asked, distinct);
  p.count_layer(lock, layer, chosen, used);
  for (const ExpertIndex::Stack& each : region.experts().stacks(layer)) {
    for (const ExpertId expert : std::span(experts).first(distinct)) {
      if (expert >= each.experts) continue;
      for (const ChunkIndex chunk : region.experts().chunks(each, expert))
        p.use_slice(lock, region, chunk, now, room);
    }
  }
  p.drop_expected(lock);
  p.start_reads(lock);
  if (p.room_wanted(lock)) p.work.notify_one();
  return true;
}

}  // namespace resid

// Warm start: the slices that earlier runs used most are fetched into room that nobody has claimed
// yet, before a router has spoken.
//
//   W-1  Behind everybody: a slice is begun only while no demand and no other prefetch is queued or
//        at the disk, and no more of them at a time than fill the disk's queue.
//   W-2  It gives nothing up: a slice that finds no room when it has come is dropped, and that is
//        the end of the warm start. It comes to an end, and does not begin again.
//   W-3  Room is left for what every token reads and is no expert's, and for the experts of one
//        token.
//   W-4  The list is made when a file is added, where memory may be taken; nothing is later (I-13).
//
// Such a slice is WARM, PREFETCHED and ANNOUNCED: mapped whole when it comes, since the engine says
// when it is used. Whoever touches it, or a router that names it, makes a demand of it wherever it
// is.

#include <algorithm>
#include <tuple>

#include "base/clock.hpp"
#include "pager/impl.hpp"
#include "sense/experts.hpp"

namespace resid {

Pager::Impl::Warm Pager::Impl::warm_list(std::span<const OrderedFile> files,
                                         std::span<const ChunkId> every_token,
                                         std::span<const std::uint32_t> bytes, const ExpertMap& map,
                                         const PagerConfig& config) {
  const ExpertUsage& usage = config.usage;
  Warm warm;
  if (usage.empty() || map.shape.layers == 0 || usage.experts < map.shape.experts) return warm;
  struct Hot {
    float share;
    ExpertPlace place;
    ChunkId chunk;
  };
  std::vector<Hot> hot;
  std::uint64_t slices = 0;
  for (const OrderedFile& file : files) {
    for (ChunkIndex i = 0; i < file.plan->size(); ++i) {
      const ChunkId id = file.first_chunk + i;
      const ExpertPlace place = map.places[id];
      if (place.layer == ExpertPlace::kNone) continue;
      slices += bytes[id];
      const std::uint32_t number = map.layer_numbers[place.layer];
      const auto at = std::lower_bound(usage.layers.begin(), usage.layers.end(), number);
      if (at == usage.layers.end() || *at != number) continue;
      const auto position = static_cast<std::size_t>(at - usage.layers.begin());
      if (usage.tokens[position] <= 0 || usage.of(position)[place.expert] <= 0) continue;
      const double share = usage.of(position)[place.expert] / usage.tokens[position];
      hot.push_back({static_cast<float>(share), place, id});
    }
  }
  // All slices of an expert together: one alone saves no wait.
  std::sort(hot.begin(), hot.end(), [](const Hot& a, const Hot& b) {
    return std::tuple(-a.share, a.place.layer, a.place.expert, a.chunk) <
           std::tuple(-b.share, b.place.layer, b.place.expert, b.chunk);
  });
  std::vector<std::uint32_t> taken(map.shape.layers, 0);  // experts of the layer
  ExpertPlace last;
  for (const Hot& each : hot) {
    const bool same = each.place.layer == last.layer && each.place.expert == last.expert;
    // What is beyond a cap would be given up first.
    if (!same && config.expert_cap != 0 && taken[each.place.layer] == config.expert_cap) continue;
    taken[each.place.layer] += same ? 0 : 1;
    last = each.place;
    warm.chunks.push_back(each.chunk);
  }
  std::vector<bool> counted(bytes.size(), false);
  for (const ChunkId id : every_token) {
    if (counted[id]) continue;
    counted[id] = true;
    warm.leave += bytes[id];
  }
  warm.leave += slices / map.shape.experts * map.shape.used;
  return warm;
}

bool Pager::Impl::warm_up(Lock& lock) {
  if (!warm_open) return false;
  while (warm.next != warm.chunks.size()) {
    const Place place = locate(warm.chunks[warm.next]);
    Region& region = *place.region;
    if (region.chunk(place.index).phase() != ChunkPhase::absent) {
      ++warm.next;
      continue;
    }
    if (demand.size != 0 || prefetch.size != 0 || staging.comes_free(lock, 0)) return false;  // W-1
    const std::uint64_t coming = staging.coming_bytes(lock) + staging.spare_bytes(lock);
    const ChunkSpan span = region.plan().span(region.plan()[place.index].offset, true);
    std::uint64_t bytes = 0;
    for (ChunkIndex i = span.first; i < span.first + span.count; ++i)
      bytes += region.plan()[i].bytes;
    const std::uint64_t at_disk = std::uint64_t{config.reader.depth} * config.reader.piece_bytes;
    if (coming != 0 && coming + bytes > at_disk) return false;
    if (warm_bytes + bytes + warm.leave > budget.unpinned() ||
        budget.held() + coming + bytes > budget.limit()) {
      end_warm(lock);  // W-2, W-3
      return false;
    }
    if (!staging.has_room_ahead(lock, bytes)) return false;
    ++warm.next;
    const ChunkId head = begin_run(lock, region, span, place.index, now_ns());
    for_run(head, [&](ChunkState& chunk) {
      chunk.set_prefetched(lock, true);
      chunk.set_announced(lock, true);
      chunk.set_warm(lock, true);
    });
    push(lock, prefetch, head);
    warm_bytes += bytes;
    bump(stats.prefetch_issued);
    bump(stats.warm_slices);
    bump(stats.warm_bytes, region.plan()[place.index].bytes);
    start_reads(lock);
    return true;
  }
  end_warm(lock);
  return false;
}

void Pager::Impl::end_warm(const Lock&) {
  warm.next = warm.chunks.size();
  if (!warm.chunks.empty()) stats.warm_ended.store(1, std::memory_order_relaxed);
}

}  // namespace resid

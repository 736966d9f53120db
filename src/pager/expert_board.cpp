// Counting for the expert board (expert_board.hpp).

#include "pager/expert_board.hpp"

#include <algorithm>

#include "pager/impl.hpp"

namespace resid {
namespace {

bool is_slice(const Chunk& chunk) {
  return is_routed(chunk.role) && !chunk.seam;
}

// Whose slices a run belongs to; a seam that is fetched alone to that of the slice beside it.
std::int32_t layer_of_run(const ChunkPlan& plan, ChunkIndex first, std::uint32_t count) {
  for (ChunkIndex i = first; i < first + count; ++i) {
    if (is_slice(plan[i])) return plan[i].layer;
    if (!plan[i].seam) return kNoLayer;
  }
  const ChunkIndex after = first + count;
  if (first > 0 && is_slice(plan[first - 1])) return plan[first - 1].layer;
  return after < plan.size() && is_slice(plan[after]) ? plan[after].layer : kNoLayer;
}

ExpertBoard::Tally& source_of(ExpertBoard::Layer& layer, const ChunkState& slice) {
  switch (slice.phase()) {
    case ChunkPhase::fetching:
      return slice.prefetched() ? layer.prefetched : layer.missed;
    case ChunkPhase::resident:
      if (slice.prefetched()) return layer.prefetched;
      return slice.holds != 0 ? layer.pinned : layer.cached;
    default:
      return layer.missed;
  }
}

}  // namespace

void Pager::Impl::show_layers(const Lock&, const Region& region) {
  if (config.board == nullptr) return;
  for (const ExpertIndex::Stack& stack : region.experts().first_stacks()) {
    ExpertBoard::Layer* layer = config.board->layer(stack.layer);
    if (layer != nullptr) layer->experts.store(std::min(stack.experts, ExpertBoard::kExpertsMost));
  }
}

void Pager::Impl::count_layer(const Lock&, std::int32_t layer, std::span<const ExpertId> chosen,
                              std::uint32_t used) {
  ExpertBoard* board = config.board;
  ExpertBoard::Layer* shown = board == nullptr ? nullptr : board->layer(layer);
  if (shown == nullptr) return;
  bump(shown->tokens, used == 0 ? 0 : chosen.size() / used);
  for (const ExpertId expert : chosen)
    board->use(static_cast<std::uint32_t>(layer), expert);
}

void Pager::Impl::count_asked(const Lock&, const Chunk& slice, const ChunkState& state_) {
  ExpertBoard::Layer* layer = config.board == nullptr ? nullptr : config.board->layer(slice.layer);
  if (layer == nullptr) return;
  layer->asked.add(slice.bytes);
  source_of(*layer, state_).add(slice.bytes);
}

void Pager::Impl::count_read(const Lock&, const Run& run) {
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const Chunk& c = run.region->plan()[run.first + i];
    if (!is_slice(c)) continue;
    bump(stats.expert_fetched_bytes, c.bytes);
    ExpertBoard::Layer* layer = config.board == nullptr ? nullptr : config.board->layer(c.layer);
    if (layer != nullptr) bump(layer->read_bytes, c.bytes);
  }
}

void Pager::Impl::end_wait(const Lock&, const Region& region, ChunkIndex first,
                           std::uint32_t count_, std::uint64_t now) {
  std::uint64_t since = 0;
  for (ChunkIndex i = first; i < first + count_; ++i) {
    std::uint64_t& touched = region.chunk(i).touched_ns;
    if (touched != 0 && (since == 0 || touched < since)) since = touched;
    touched = 0;
  }
  if (since == 0 || now <= since || config.board == nullptr) return;
  ExpertBoard::Layer* layer = config.board->layer(layer_of_run(region.plan(), first, count_));
  if (layer != nullptr) bump(layer->wait_ns, now - since);
}

}  // namespace resid

#include "sense/experts.hpp"

#include <algorithm>
#include <limits>

namespace resid {
namespace {

bool is_slice(const Chunk& chunk) {
  return is_routed(chunk.role) && !chunk.seam && chunk.layer >= 0 && chunk.expert >= 0 &&
         chunk.expert <= std::numeric_limits<ExpertId>::max();
}

}  // namespace

ExpertMap expert_map(std::span<const OrderedFile> files) {
  ExpertMap map;
  for (const OrderedFile& file : files) {
    map.shape.used = std::max(map.shape.used, file.file->experts_used);
    for (const Chunk& chunk : file.plan->chunks()) {
      if (!is_slice(chunk)) continue;
      map.layer_numbers.push_back(static_cast<std::uint32_t>(chunk.layer));
      map.shape.experts = std::max(map.shape.experts, static_cast<std::uint32_t>(chunk.expert) + 1);
    }
  }
  auto& layers = map.layer_numbers;
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  map.shape.layers = static_cast<std::uint32_t>(layers.size());
  // A file that does not say how many a token uses: as many as a ranking may be told of.
  map.shape.used = std::clamp(map.shape.used, 1U, std::max(map.shape.experts, 1U));
  for (const OrderedFile& file : files) {
    map.places.resize(std::max<std::size_t>(map.places.size(),
                                            std::size_t{file.first_chunk} + file.plan->size()));
    for (ChunkIndex i = 0; i < file.plan->size(); ++i) {
      const Chunk& chunk = (*file.plan)[i];
      if (!is_slice(chunk)) continue;
      const auto at =
          std::lower_bound(layers.begin(), layers.end(), static_cast<std::uint32_t>(chunk.layer));
      map.places[file.first_chunk + i] = {static_cast<std::uint32_t>(at - layers.begin()),
                                          static_cast<ExpertId>(chunk.expert)};
    }
  }
  return map;
}

}  // namespace resid

#include "sense/order.hpp"

namespace resid {

std::vector<ChunkId> forward_order(std::span<const OrderedFile> files, bool without_experts) {
  std::vector<const ModelFile*> structured;
  std::vector<const ChunkPlan*> plans;
  std::vector<ChunkId> firsts;
  for (const OrderedFile& f : files) {
    if (f.file->format == Format::raw) continue;
    structured.push_back(f.file);
    plans.push_back(f.plan);
    firsts.push_back(f.first_chunk);
  }
  std::vector<ChunkId> sequence;
  for (const OrderEntry& entry : declared_order(structured, plans)) {
    const Chunk& chunk = (*plans[entry.file])[entry.chunk];
    if (without_experts && chunk.expert != kNoExpert && is_routed(chunk.role)) continue;
    sequence.push_back(firsts[entry.file] + entry.chunk);
  }
  for (const OrderedFile& f : files) {
    if (f.file->format != Format::raw) continue;
    for (ChunkIndex i = 0; i < f.plan->size(); ++i)
      sequence.push_back(f.first_chunk + i);
  }
  return sequence;
}

}  // namespace resid

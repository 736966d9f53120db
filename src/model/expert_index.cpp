#include "model/expert_index.hpp"

#include <algorithm>

namespace resid {

ExpertIndex ExpertIndex::make(const ModelFile& file, const ChunkPlan& plan) {
  ExpertIndex index;
  std::int32_t last_layer = kNoLayer;
  for (std::uint32_t t = 0; t < file.tensors.size(); ++t) {
    const Tensor& tensor = file.tensors[t];
    if (tensor.experts == 0 || tensor.layer < 0) continue;
    // The small ones (biases, scales) are read with the rest of the layer, not by routing.
    if (!is_routed(tensor.role)) continue;
    index.stacks_.push_back({t, tensor.layer, tensor.experts, 0});
    last_layer = std::max(last_layer, tensor.layer);
  }
  if (index.stacks_.empty()) return index;
  std::sort(index.stacks_.begin(), index.stacks_.end(), [&](const Stack& a, const Stack& b) {
    const Tensor& x = file.tensors[a.tensor];
    const Tensor& y = file.tensors[b.tensor];
    if (x.layer != y.layer) return x.layer < y.layer;
    return x.role != y.role ? x.role < y.role : x.step < y.step;
  });
  index.layer_begins_.assign(static_cast<std::size_t>(last_layer) + 2, 0);
  for (const Stack& stack : index.stacks_)
    ++index.layer_begins_[static_cast<std::size_t>(stack.layer) + 1];
  for (std::size_t i = 1; i < index.layer_begins_.size(); ++i)
    index.layer_begins_[i] += index.layer_begins_[i - 1];

  // Chunks are in the order of the file, and so are a tensor's experts.
  for (Stack& stack : index.stacks_) {
    const Tensor& tensor = file.tensors[stack.tensor];
    stack.first = static_cast<std::uint32_t>(index.starts_.size());
    ChunkIndex chunk = plan.find(tensor.offset);
    const std::uint64_t end = tensor.offset + tensor.bytes;
    for (std::uint32_t e = 0; e < stack.experts; ++e) {
      index.starts_.push_back(static_cast<std::uint32_t>(index.chunks_.size()));
      for (; chunk < plan.size() && plan[chunk].offset < end; ++chunk) {
        const Chunk& c = plan[chunk];
        if (c.seam) continue;
        if (c.expert > static_cast<std::int32_t>(e)) break;
        index.chunks_.push_back(chunk);
      }
    }
  }
  index.starts_.push_back(static_cast<std::uint32_t>(index.chunks_.size()));
  for (const Stack& stack : index.stacks_) {
    const auto& firsts = index.first_stacks_;
    if (firsts.empty() || firsts.back().layer != stack.layer) index.first_stacks_.push_back(stack);
  }
  return index;
}

std::span<const ExpertIndex::Stack> ExpertIndex::stacks(std::int32_t layer) const {
  if (layer < 0 || static_cast<std::size_t>(layer) + 1 >= layer_begins_.size()) return {};
  const auto at = static_cast<std::size_t>(layer);
  return std::span(stacks_).subspan(layer_begins_[at], layer_begins_[at + 1] - layer_begins_[at]);
}

}  // namespace resid

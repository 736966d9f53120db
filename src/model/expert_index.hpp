#pragma once
// Which chunks hold which expert of which layer: what must be read when the router has spoken.
//
// A layer's experts lie in stacked tensors (gate, up, down; or a fused gate_up and down), slice e
// of each being expert e. Seams are left out: ChunkPlan::span() finds them beside a slice's chunks.

#include <cstdint>
#include <span>
#include <vector>

#include "model/chunk_plan.hpp"

namespace resid {

class ExpertIndex {
 public:
  ExpertIndex() = default;  // of a model without experts
  // Statuses: none; a plan without experts gives an empty index.
  static ExpertIndex make(const ModelFile& file, const ChunkPlan& plan);

  bool empty() const { return stacks_.empty(); }

  // One stacked tensor.
  struct Stack {
    std::uint32_t tensor = kNoTensor;
    std::int32_t layer = kNoLayer;
    std::uint32_t experts = 0;
    std::uint32_t first = 0;  // into starts_: where its expert 0 is
  };
  // The stacks of one layer in the order in which they are read; empty when it has none.
  std::span<const Stack> stacks(std::int32_t layer) const;
  // The first stack of each layer.
  std::span<const Stack> first_stacks() const { return first_stacks_; }
  // Chunks of one expert's slice, by offset. `expert` < stack.experts.
  std::span<const ChunkIndex> chunks(const Stack& stack, std::uint32_t expert) const {
    const std::uint32_t at = stack.first + expert;
    return std::span(chunks_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
  }

 private:
  std::vector<Stack> stacks_;                // by layer, then role
  std::vector<Stack> first_stacks_;          // by layer
  std::vector<std::uint32_t> layer_begins_;  // by layer, and one more: into stacks_
  std::vector<std::uint32_t> starts_;        // by stack and expert, and one more: into chunks_
  std::vector<ChunkIndex> chunks_;
};

}  // namespace resid

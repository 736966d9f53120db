#pragma once
// The declared order as the policies want it: chunk ids over all regions.

#include <span>
#include <vector>

#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "policy/policy.hpp"

namespace resid {

// One file under control: its structure, its plan, and the id of the plan's first chunk.
struct OrderedFile {
  const ModelFile* file = nullptr;
  const ChunkPlan* plan = nullptr;
  ChunkId first_chunk = 0;
};

// The order in which a forward pass over all `files` reads their chunks. Files without structure
// (`--match`) follow in the order of their bytes. `without_experts`: leaves out the slices that a
// router chooses from.
std::vector<ChunkId> forward_order(std::span<const OrderedFile> files, bool without_experts);

}  // namespace resid

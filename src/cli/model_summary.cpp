#include "cli/model_summary.hpp"

#include <algorithm>

namespace resid::cli {
namespace {

bool is_stacked(Role role) {
  return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_down;
}

void count_tensors(const ModelFile& file, FileSummary& share, ModelSummary& out) {
  for (const Tensor& t : file.tensors) {
    share.tensor_bytes += t.bytes;
    const auto add = [&](Share& s) {
      ++s.tensors;
      s.bytes += t.bytes;
    };
    add(out.roles[t.role]);
    add(out.types[t.type]);
    LayerShare& layer = out.layers[t.layer];
    add(layer);
    if (!is_stacked(t.role) || t.experts == 0) continue;
    layer.expert_bytes += t.bytes;
    layer.bytes_per_expert += t.bytes / t.experts;
  }
}

}  // namespace

Result<ModelSummary> summarise(const Model& model, std::uint64_t chunk_max) {
  ModelSummary out;
  out.chunk_max = chunk_max;
  for (const ModelFile& file : model.files) {
    auto plan = ChunkPlan::make(file, chunk_max);
    if (!plan) return tl::unexpected(plan.error());
    FileSummary share;
    share.path = file.path;
    share.bytes = file.bytes;
    share.metadata_bytes = file.data_offset;
    share.tensors = file.tensors.size();
    share.chunks = plan->size();
    count_tensors(file, share, out);
    // The reader has made sure that tensors neither overlap nor reach past the end.
    share.padding_bytes = share.bytes - share.metadata_bytes - share.tensor_bytes;
    for (const Chunk& c : plan->chunks()) {
      ++out.roles[c.role].chunks;
      ++out.layers[c.layer].chunks;
      out.seams += c.seam ? 1 : 0;
    }
    out.largest_chunk = std::max<std::uint64_t>(out.largest_chunk, plan->largest());

    out.total.bytes += share.bytes;
    out.total.metadata_bytes += share.metadata_bytes;
    out.total.tensor_bytes += share.tensor_bytes;
    out.total.padding_bytes += share.padding_bytes;
    out.total.tensors += share.tensors;
    out.total.chunks += share.chunks;
    out.files.push_back(std::move(share));
  }
  return out;
}

}  // namespace resid::cli

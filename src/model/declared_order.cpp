#include <algorithm>
#include <tuple>

#include "model/chunk_plan.hpp"

namespace resid {
namespace {

struct Read {
  const Tensor* tensor = nullptr;
  std::uint32_t file = 0;
  std::uint8_t phase = 0;  // 0 before the layers, 1 in a layer, 2 after them

  auto key() const {
    return std::tuple(phase, tensor->layer, tensor->role, tensor->step, tensor->expert, file,
                      tensor->offset);
  }
};

bool reads_output(std::span<const ModelFile* const> files) {
  for (const ModelFile* file : files) {
    for (const Tensor& tensor : file->tensors) {
      if (tensor.role == Role::output) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<OrderEntry> declared_order(std::span<const ModelFile* const> files,
                                       std::span<const ChunkPlan* const> plans) {
  // Only the first part of a split model carries the metadata.
  std::uint32_t layers = 0;
  std::uint32_t drafts = 0;
  for (const ModelFile* file : files) {
    layers = std::max(layers, file->layers);
    drafts = std::max(drafts, file->draft_layers);
  }
  const std::uint32_t read_layers = layers - std::min(drafts, layers);
  const bool tied = !reads_output(files);

  std::vector<Read> reads;
  for (std::uint32_t f = 0; f < files.size(); ++f) {
    for (const Tensor& tensor : files[f]->tensors) {
      if (tensor.bytes == 0 || tensor.role == Role::header) continue;
      Read read{&tensor, f};
      if (tensor.role == Role::embedding) {
        if (!tied || tensor.step != 0) continue;
        read.phase = 3;
      } else if (tensor.role == Role::output_norm || tensor.role == Role::output) {
        read.phase = 2;
      } else if (tensor.layer != kNoLayer) {
        if (drafts > 0 && static_cast<std::uint32_t>(tensor.layer) >= read_layers) continue;
        read.phase = 1;
      }
      reads.push_back(read);
    }
  }
  std::sort(reads.begin(), reads.end(),
            [](const Read& a, const Read& b) { return a.key() < b.key(); });

  std::vector<OrderEntry> order;
  for (const Read& read : reads) {
    const ChunkPlan& plan = *plans[read.file];
    const ChunkIndex last = plan.find(read.tensor->offset + read.tensor->bytes - 1);
    for (ChunkIndex i = plan.find(read.tensor->offset); i <= last; ++i) {
      const bool repeated =
          !order.empty() && order.back().file == read.file && order.back().chunk == i;
      if (!repeated) order.push_back({read.file, i});
    }
  }
  // The order is a cycle: its end meets its beginning.
  if (order.size() > 1 && order.front().file == order.back().file &&
      order.front().chunk == order.back().chunk) {
    order.pop_back();
  }
  return order;
}

}  // namespace resid

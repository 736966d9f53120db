#include "preload/usage.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "expert/usage_history.hpp"

namespace resid::preload {

ExpertUsage remembered_usage(ExpertArea& area, const ModelFile& file) {
  static_assert(UsageHistory::kLayersMost <= ExpertBoard::kLayersMost &&
                UsageHistory::kExpertsMost <= ExpertBoard::kExpertsMost);
  std::string path(area.history.data(), ::strnlen(area.history.data(), area.history.size()));
  if (path.empty() || file.experts == 0) return {};
  const auto model = open_model(file.path);
  if (!model) return {};
  const auto shape = UsageHistory::of(*model);
  if (!shape || shape->usage.empty()) return {};
  std::uint64_t known = area.model.load(std::memory_order_acquire);
  if (known == 0) {
    area.experts = shape->usage.experts;
    for (const std::uint32_t layer : shape->usage.layers)
      area.has_experts[layer] = 1;
    area.model.compare_exchange_strong(known, shape->model, std::memory_order_acq_rel);
  }
  if (known != 0 && known != shape->model) area.other_model.store(1);
  if (path.ends_with('/')) path += usage_file_name(shape->model);
  auto history = read_usage(path);
  if (!history || history->model != shape->model || !history->same_shape(*shape)) return {};
  return std::move(history->usage);
}

}  // namespace resid::preload

#include "model/readers.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "model/byte_reader.hpp"

namespace resid {

std::string assign_purpose(Tensor& tensor, const TensorPurpose& purpose, std::uint64_t slowest) {
  tensor.layer = purpose.layer;
  tensor.expert = purpose.expert;
  tensor.role = purpose.role;
  tensor.step = purpose.step;
  if (!purpose.stacked || tensor.bytes == 0 || slowest == 0) return {};
  if (slowest > kMaxExperts) {
    return fmt::format("{} experts; at most {} are allowed", slowest, kMaxExperts);
  }
  if (tensor.bytes % slowest != 0) {
    return fmt::format("{} bytes do not divide among {} experts", tensor.bytes, slowest);
  }
  tensor.experts = static_cast<std::uint32_t>(slowest);
  return {};
}

Result<void> settle_tensors(ModelFile& file, const std::vector<std::uint64_t>& where) {
  std::vector<Tensor>& tensors = file.tensors;
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto field = [&](std::uint32_t i, std::string_view what) {
    return fmt::format("tensor '{}' {}", printable(tensors[i].name), what);
  };

  // Sorting, not hashing: a file made to collide must not cost quadratic time.
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int names = tensors[a].name.compare(tensors[b].name);
    return names != 0 ? names < 0 : a < b;
  });
  for (std::size_t k = 1; k < order.size(); ++k) {
    if (tensors[order[k - 1]].name == tensors[order[k]].name) {
      return fail_at(Status::malformed, file.path, where[order[k]], field(order[k], "name"),
                     fmt::format("already used, see offset {}", where[order[k - 1]]));
    }
  }

  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(tensors[a].offset, tensors[a].bytes) <
           std::pair(tensors[b].offset, tensors[b].bytes);
  });
  for (std::size_t k = 1; k < order.size(); ++k) {
    const Tensor& before = tensors[order[k - 1]];
    const Tensor& after = tensors[order[k]];
    if (after.offset < before.offset + before.bytes) {
      return fail_at(
          Status::malformed, file.path, where[order[k]], field(order[k], "offset"),
          fmt::format("the data at {} overlaps tensor '{}', which ends at {}", after.offset,
                      printable(before.name), before.offset + before.bytes));
    }
  }

  std::vector<Tensor> sorted;
  sorted.reserve(tensors.size());
  for (const std::uint32_t i : order)
    sorted.push_back(std::move(tensors[i]));
  tensors = std::move(sorted);
  return {};
}

void count_layers(ModelFile& file) {
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;
  for (const Tensor& tensor : file.tensors) {
    layers = std::max(layers, static_cast<std::uint32_t>(tensor.layer + 1));
    experts = std::max({experts, tensor.experts, static_cast<std::uint32_t>(tensor.expert + 1)});
  }
  if (file.layers == 0) file.layers = layers;
  if (file.experts == 0) file.experts = experts;
  if (file.draft_layers >= file.layers) file.draft_layers = 0;
}

}  // namespace resid

#pragma once
// What `inspect` tells about a model: its bytes, counted by what they are for. The counts of every
// view add up to the size of the files.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"

namespace resid::cli {

struct Share {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
};

struct LayerShare : Share {
  std::uint64_t expert_bytes = 0;      // of the stacked expert tensors
  std::uint64_t bytes_per_expert = 0;  // of one expert, all its matrices
};

struct FileSummary {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t metadata_bytes = 0;  // header and tensor table, up to where tensor data starts
  std::uint64_t tensor_bytes = 0;
  std::uint64_t padding_bytes = 0;  // the rest: alignment between and behind tensors
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;
};

struct ModelSummary {
  std::vector<FileSummary> files;
  FileSummary total;  // path empty
  std::map<Role, Share> roles;
  std::map<std::int32_t, LayerShare> layers;  // kNoLayer: what belongs to none
  std::map<std::string, Share> types;         // quantisation; chunks are not counted
  std::uint64_t chunk_max = 0;
  std::uint64_t largest_chunk = 0;
  std::uint64_t seams = 0;
};

Result<ModelSummary> summarise(const Model& model, std::uint64_t chunk_max);

}  // namespace resid::cli

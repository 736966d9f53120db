#pragma once
// What the two readers share: limits, and the checks that do not depend on the format.

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.hpp"
#include "model/tensor_names.hpp"

namespace resid {

// Limits that no real model comes near, and that bound the time and memory a hostile one can take.
// The largest mixture-of-experts checkpoints have about 100,000 tensors over all their files.
inline constexpr std::uint64_t kMaxTensors = 1U << 20;
inline constexpr std::uint64_t kMaxExperts = 65535;
inline constexpr std::uint64_t kMaxName = 1024;
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the reference reader's own

// `file` comes with path, format and bytes filled in.
Result<ModelFile> read_gguf(int fd, ModelFile file);
Result<ModelFile> read_safetensors(int fd, ModelFile file);

// Gives `tensor` (name, dims and bytes known) its layer, role and experts. `slowest` is the
// dimension that counts the experts of a stacked tensor. Returns the reason when it cannot be.
std::string assign_purpose(Tensor& tensor, const TensorPurpose& purpose, std::uint64_t slowest);

// Sorts the tensors by offset and checks that no two share a name or a byte. `where[i]` is the
// offset in the file of what describes tensor i.
Result<void> settle_tensors(ModelFile& file, const std::vector<std::uint64_t>& where);

// Layers and experts as the tensors show them, for what the metadata did not say.
void count_layers(ModelFile& file);

}  // namespace resid

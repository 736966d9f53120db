#pragma once
// From a tensor's name to what it is for. Names are conventions, not format: a name that is not
// known gives Role::other and costs order, never correctness.

#include <cstdint>
#include <string_view>

#include "model/model.hpp"

namespace resid {

struct TensorPurpose {
  std::int32_t layer = kNoLayer;
  std::int32_t expert = kNoExpert;  // of a tensor that is one expert's alone
  Role role = Role::other;
  std::uint8_t step = 0;  // see Tensor::step
  bool stacked = false;   // the slowest dimension counts experts
};

// llama.cpp's names: `blk.3.attn_q.weight`.
TensorPurpose purpose_of_gguf_name(std::string_view name);

// Names of the transformers library and of the original checkpoints that share its parts:
// `model.layers.3.self_attn.q_proj.weight`.
TensorPurpose purpose_of_safetensors_name(std::string_view name);

}  // namespace resid

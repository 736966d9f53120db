#include "model/tensor_names.hpp"

#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>

namespace resid {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (has(text, part)) return true;
  }
  return false;
}

// A decimal number that is the whole of `text`. Six digits are plenty for a layer or an expert; the
// bound keeps a hostile name from making a model of two thousand million layers.
std::optional<std::int32_t> number(std::string_view text) {
  if (text.empty() || text.size() > 6) return std::nullopt;
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Cuts `text` at its first dot and returns what stood before it.
std::string_view pop_part(std::string_view& text) {
  const std::size_t dot = text.find('.');
  const std::string_view part = text.substr(0, dot);
  text = dot == std::string_view::npos ? std::string_view{} : text.substr(dot + 1);
  return part;
}

// Finds `part`.N. at the start of `name` or after a dot; returns N and cuts `name` to what follows.
std::optional<std::int32_t> pop_indexed(std::string_view& name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos;
       at = name.find(part, at + 1)) {
    const std::size_t after = at + part.size();
    if ((at != 0 && name[at - 1] != '.') || after >= name.size() || name[after] != '.') continue;
    std::string_view rest = name.substr(after + 1);
    const std::optional<std::int32_t> index = number(pop_part(rest));
    if (!index) continue;
    name = rest;
    return index;
  }
  return std::nullopt;
}

// Which of the tensors of an attention (or recurrent) block is read when: queries, values and keys
// are computed in that order and the projection back comes last (llama.cpp src/llama-graph.cpp,
// build_attn). Files keep them sorted by name, with the projection before the queries.
std::uint8_t attention_step(std::string_view stem) {
  if (has_any(stem, {"output", "_out", "out_proj", "o_proj", "c_proj", "dense"})) return 3;
  if (has_any(stem, {"attn_v", "v_proj", "value"})) return 1;
  if (has_any(stem, {"attn_k", "attn_kv", "k_proj", "kv_", "k_norm", "key", "sinks"})) return 2;
  return 0;
}

struct Rule {
  std::string_view stem;
  Role role;
};

Role role_of_part(std::string_view stem, bool of_expert) {
  if (stem.starts_with("ffn_gate")) return of_expert ? Role::expert_gate : Role::ffn_gate;
  if (stem.starts_with("ffn_up")) return of_expert ? Role::expert_up : Role::ffn_up;
  if (stem.starts_with("ffn_down")) return of_expert ? Role::expert_down : Role::ffn_down;
  return Role::other;
}

// A tensor of a layer; `name` is what follows `blk.N.`.
void gguf_layer_tensor(std::string_view name, TensorPurpose& out) {
  const std::string_view stem = pop_part(name);

  if (stem.ends_with("exps") && stem != "ffn_norm_exps") {
    out.role = role_of_part(stem, true);  // ffn_gate_up_exps counts as gate: it is read first
    out.stacked = out.role != Role::other;
    return;
  }
  if (stem.ends_with("_shexp")) {
    out.role = Role::shared_expert;
    return;
  }
  if (stem == "ffn_gate" || stem == "ffn_up" || stem == "ffn_down") {
    // Files older than April 2024 keep one tensor an expert: ffn_gate.7.weight.
    std::string_view rest = name;
    if (const auto expert = number(pop_part(rest))) out.expert = *expert;
    out.role = role_of_part(stem, out.expert != kNoExpert);
    return;
  }
  static constexpr std::array kRules{
      Rule{"ffn_gate_inp", Role::router},
      Rule{"ffn_gate_tid2eid", Role::router},
      Rule{"exp_probs_b", Role::router},
      Rule{"exp_probs_b_vl", Role::router},
      Rule{"attn_norm", Role::attention_norm},
      Rule{"attn_norm_2", Role::attention_norm},
      Rule{"ffn_norm", Role::ffn_norm},
      Rule{"ffn_norm_exps", Role::ffn_norm},
      Rule{"post_attention_norm", Role::ffn_norm},
      Rule{"pre_ffw_norm_2", Role::ffn_norm},
      Rule{"ffn_sub_norm", Role::ffn_up},
      Rule{"channel_mix_receptance", Role::ffn_gate},
      Rule{"channel_mix_lerp_k", Role::ffn_gate},
      Rule{"channel_mix_lerp_r", Role::ffn_gate},
      Rule{"channel_mix_key", Role::ffn_up},
      Rule{"channel_mix_value", Role::ffn_down},
      Rule{"nextn", Role::other},
  };
  for (const Rule& rule : kRules) {
    if (stem == rule.stem) {
      out.role = rule.role;
      return;
    }
  }
  if (stem.starts_with("attn_") || stem.starts_with("cross_attn_") || stem.starts_with("ssm_") ||
      stem.starts_with("time_mix_") || stem.starts_with("indexer") || stem == "shortconv") {
    out.role = Role::attention;
    out.step = attention_step(stem == "shortconv" ? name : stem);
  }
}

// The stem of a projection of an expert or feed-forward block, in the spellings of transformers
// (gate_proj), Mixtral (w1, w3, w2), GPT-2 (c_fc), NeoX (dense_h_to_4h), OPT (fc1).
enum class Part : std::uint8_t { none, gate, up, down };

Part part_of(std::string_view rest) {
  while (!rest.empty()) {
    const std::string_view stem = pop_part(rest);
    if (stem.starts_with("gate_up_proj") || stem.starts_with("gate_proj") || stem == "w1" ||
        stem == "linear_1") {
      return Part::gate;
    }
    if (stem.starts_with("up_proj") || stem == "w3" || stem == "c_fc" || stem == "fc1" ||
        stem == "fc_in" || stem == "dense_h_to_4h" || stem == "linear_v") {
      return Part::up;
    }
    if (stem.starts_with("down_proj") || stem == "w2" || stem == "c_proj" || stem == "fc2" ||
        stem == "fc_out" || stem == "dense_4h_to_h") {
      return Part::down;
    }
  }
  return Part::none;
}

Role expert_role(Part part) {
  switch (part) {
    case Part::up:
      return Role::expert_up;
    case Part::down:
      return Role::expert_down;
    case Part::gate:
    case Part::none:
      break;
  }
  return Role::expert_gate;
}

// A tensor of a layer; `rest` is what follows `layers.N.`.
void safetensors_layer_tensor(std::string_view rest, TensorPurpose& out) {
  if (has_any(rest, {"shared_expert", "shared_mlp"})) {
    out.role = Role::shared_expert;
    return;
  }
  std::string_view after_experts = rest;
  if (const auto expert = pop_indexed(after_experts, "experts")) {
    out.expert = *expert;
    out.role = expert_role(part_of(after_experts));
    return;
  }
  if (has(rest, "experts.")) {
    // All experts in one tensor, the expert being the first dimension.
    out.role = expert_role(part_of(rest));
    out.stacked = true;
    return;
  }
  if (has_any(rest, {"mlp.gate.", "moe.gate.", "block_sparse_moe.gate.", "router"})) {
    out.role = Role::router;
    return;
  }
  static constexpr std::array kNorms{
      Rule{"input_layernorm", Role::attention_norm},
      Rule{"attention_norm", Role::attention_norm},
      Rule{"operator_norm", Role::attention_norm},
      Rule{"ln_1", Role::attention_norm},
      Rule{"post_attention_layernorm", Role::ffn_norm},
      Rule{"pre_feedforward_layernorm", Role::ffn_norm},
      Rule{"ffn_norm", Role::ffn_norm},
      Rule{"ln_2", Role::ffn_norm},
  };
  std::string_view copy = rest;
  const std::string_view block = pop_part(copy);
  for (const Rule& norm : kNorms) {
    if (block == norm.stem) {
      out.role = norm.role;
      return;
    }
  }
  if (block.ends_with("attn") || block.ends_with("attention") || block == "mixer" ||
      block == "mamba" || block == "conv") {
    out.role = Role::attention;
    out.step = attention_step(copy);
    return;
  }
  if (has_any(block, {"mlp", "feed_forward", "ffn", "fc1", "fc2"})) {
    switch (part_of(rest)) {
      case Part::gate:
        out.role = Role::ffn_gate;
        break;
      case Part::up:
        out.role = Role::ffn_up;
        break;
      case Part::down:
        out.role = Role::ffn_down;
        break;
      case Part::none:
        break;
    }
  }
}

}  // namespace

TensorPurpose purpose_of_gguf_name(std::string_view name) {
  TensorPurpose out;
  std::string_view rest = name;
  if (const auto layer = pop_indexed(rest, "blk")) {
    out.layer = *layer;
    gguf_layer_tensor(rest, out);
    return out;
  }
  const std::string_view stem = pop_part(rest);
  if (stem == "token_embd") {
    out.role = Role::embedding;
  } else if (stem == "per_layer_token_embd" || stem == "position_embd" || stem == "token_types") {
    out.role = Role::embedding;
    out.step = 1;
  } else if (stem == "output" || stem == "cls") {
    out.role = Role::output;
  } else if (stem.starts_with("output_")) {
    out.role = Role::output_norm;
  } else if ((stem == "enc" || stem == "dec") && rest.starts_with("output_norm")) {
    out.role = Role::output_norm;
  }
  return out;
}

TensorPurpose purpose_of_safetensors_name(std::string_view name) {
  TensorPurpose out;
  for (const std::string_view part : {"layers", "h", "blocks", "block"}) {
    std::string_view rest = name;
    if (const auto layer = pop_indexed(rest, part)) {
      out.layer = *layer;
      safetensors_layer_tensor(rest, out);
      return out;
    }
  }
  if (has_any(name,
              {"embed_tokens.", "tok_embeddings.", "word_embeddings.", "wte.", "embed_in."})) {
    out.role = Role::embedding;
  } else if (has_any(name, {"embed_positions.", "wpe.", "token_type_embeddings."})) {
    out.role = Role::embedding;
    out.step = 1;
  } else if (has_any(name, {"lm_head.", "embed_out."}) || name.starts_with("output.")) {
    out.role = Role::output;
  } else if (has_any(name, {"ln_f.", "final_layernorm.", "final_layer_norm."}) ||
             name.starts_with("norm.") || has(name, "model.norm.")) {
    out.role = Role::output_norm;
  }
  return out;
}

}  // namespace resid

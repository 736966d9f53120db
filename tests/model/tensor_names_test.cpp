#include "model/tensor_names.hpp"

#include <gtest/gtest.h>

namespace resid::test {
namespace {

struct Case {
  const char* name;
  std::int32_t layer;
  Role role;
  std::int32_t expert = kNoExpert;
  bool stacked = false;
};

void expect(const Case& c, const TensorPurpose& got) {
  EXPECT_EQ(got.layer, c.layer) << c.name;
  EXPECT_EQ(name(got.role), name(c.role)) << c.name;
  EXPECT_EQ(got.expert, c.expert) << c.name;
  EXPECT_EQ(got.stacked, c.stacked) << c.name;
}

TEST(TensorNames, GgufNames) {
  const Case cases[] = {
      {"token_embd.weight", kNoLayer, Role::embedding},
      {"per_layer_token_embd.weight", kNoLayer, Role::embedding},
      {"position_embd.weight", kNoLayer, Role::embedding},
      {"output_norm.weight", kNoLayer, Role::output_norm},
      {"output.weight", kNoLayer, Role::output},
      {"rope_freqs.weight", kNoLayer, Role::other},
      {"blk.0.attn_norm.weight", 0, Role::attention_norm},
      {"blk.11.attn_q.weight", 11, Role::attention},
      {"blk.11.attn_q.bias", 11, Role::attention},
      {"blk.3.attn_qkv.weight", 3, Role::attention},
      {"blk.3.attn_q_norm.weight", 3, Role::attention},
      {"blk.3.attn_output.weight", 3, Role::attention},
      {"blk.3.ssm_in.weight", 3, Role::attention},
      {"blk.3.ssm_a", 3, Role::attention},
      {"blk.3.time_mix_key.weight", 3, Role::attention},
      {"blk.3.ffn_norm.weight", 3, Role::ffn_norm},
      {"blk.3.post_attention_norm.weight", 3, Role::ffn_norm},
      {"blk.3.post_ffw_norm.weight", 3, Role::other},
      {"blk.3.ffn_gate.weight", 3, Role::ffn_gate},
      {"blk.3.ffn_up.weight", 3, Role::ffn_up},
      {"blk.3.ffn_down.weight", 3, Role::ffn_down},
      {"blk.3.ffn_gate_inp.weight", 3, Role::router},
      {"blk.3.exp_probs_b.bias", 3, Role::router},
      {"blk.3.ffn_gate_exps.weight", 3, Role::expert_gate, kNoExpert, true},
      {"blk.3.ffn_gate_up_exps.weight", 3, Role::expert_gate, kNoExpert, true},
      {"blk.3.ffn_up_exps.weight", 3, Role::expert_up, kNoExpert, true},
      {"blk.3.ffn_down_exps.bias", 3, Role::expert_down, kNoExpert, true},
      {"blk.3.ffn_norm_exps.weight", 3, Role::ffn_norm},
      {"blk.3.ffn_gate_shexp.weight", 3, Role::shared_expert},
      {"blk.3.ffn_gate_inp_shexp.weight", 3, Role::shared_expert},
      {"blk.3.ffn_gate.7.weight", 3, Role::expert_gate, 7},
      {"blk.3.ffn_up.0.weight", 3, Role::expert_up, 0},
      {"blk.3.ffn_down.63.weight", 3, Role::expert_down, 63},
      {"blk.3.nextn.eh_proj.weight", 3, Role::other},
      {"v.blk.4.attn_q.weight", 4, Role::attention},
      {"blk.99999999.attn_q.weight", kNoLayer, Role::other},
      {"blk.-1.attn_q.weight", kNoLayer, Role::other},
      {"blk.x.attn_q.weight", kNoLayer, Role::other},
      {"blk.", kNoLayer, Role::other},
      {"blk.5", 5, Role::other},
      {"a name nobody gives", kNoLayer, Role::other},
  };
  for (const Case& c : cases)
    expect(c, purpose_of_gguf_name(c.name));
}

TEST(TensorNames, SafetensorsNames) {
  const Case cases[] = {
      {"model.embed_tokens.weight", kNoLayer, Role::embedding},
      {"model.language_model.embed_tokens.weight", kNoLayer, Role::embedding},
      {"transformer.wte.weight", kNoLayer, Role::embedding},
      {"lm_head.weight", kNoLayer, Role::output},
      {"output.weight", kNoLayer, Role::output},
      {"model.norm.weight", kNoLayer, Role::output_norm},
      {"model.layers.4.input_layernorm.weight", 4, Role::attention_norm},
      {"model.layers.4.self_attn.q_proj.weight", 4, Role::attention},
      {"model.layers.4.self_attn.q_norm.weight", 4, Role::attention},
      {"model.layers.4.linear_attn.in_proj_qkvz.weight", 4, Role::attention},
      {"model.layers.4.post_attention_layernorm.weight", 4, Role::ffn_norm},
      {"model.layers.4.mlp.gate_proj.weight", 4, Role::ffn_gate},
      {"model.layers.4.mlp.up_proj.weight", 4, Role::ffn_up},
      {"model.layers.4.mlp.down_proj.weight_scale_inv", 4, Role::ffn_down},
      {"model.layers.4.mlp.gate.weight", 4, Role::router},
      {"model.layers.4.mlp.gate.e_score_correction_bias", 4, Role::router},
      {"model.layers.4.mlp.router.weight", 4, Role::router},
      {"model.layers.4.block_sparse_moe.gate.weight", 4, Role::router},
      {"model.layers.4.mlp.experts.17.gate_proj.weight", 4, Role::expert_gate, 17},
      {"model.layers.4.mlp.experts.17.up_proj.weight", 4, Role::expert_up, 17},
      {"model.layers.4.mlp.experts.17.down_proj.weight_scale", 4, Role::expert_down, 17},
      {"model.layers.4.block_sparse_moe.experts.2.w1.weight", 4, Role::expert_gate, 2},
      {"model.layers.4.block_sparse_moe.experts.2.w3.weight", 4, Role::expert_up, 2},
      {"model.layers.4.block_sparse_moe.experts.2.w2.weight", 4, Role::expert_down, 2},
      {"model.layers.4.mlp.experts.gate_up_proj", 4, Role::expert_gate, kNoExpert, true},
      {"model.layers.4.mlp.experts.down_proj_bias", 4, Role::expert_down, kNoExpert, true},
      {"model.layers.4.mlp.shared_experts.up_proj.weight", 4, Role::shared_expert},
      {"model.layers.4.mlp.shared_expert_gate.weight", 4, Role::shared_expert},
      {"layers.4.attention.wq.weight", 4, Role::attention},
      {"layers.4.feed_forward.w2.weight", 4, Role::ffn_down},
      {"transformer.h.4.attn.c_attn.weight", 4, Role::attention},
      {"transformer.h.4.mlp.c_fc.weight", 4, Role::ffn_up},
      {"transformer.h.4.ln_1.weight", 4, Role::attention_norm},
      {"model.layers.4.something.new", 4, Role::other},
      {"model.layers.", kNoLayer, Role::other},
  };
  for (const Case& c : cases)
    expect(c, purpose_of_safetensors_name(c.name));
}

TEST(TensorNames, AttentionIsReadQueryFirstAndProjectionLast) {
  const auto step = [](const char* name) { return purpose_of_gguf_name(name).step; };
  EXPECT_LT(step("blk.0.attn_q.weight"), step("blk.0.attn_v.weight"));
  EXPECT_LT(step("blk.0.attn_v.weight"), step("blk.0.attn_k.weight"));
  EXPECT_LT(step("blk.0.attn_k.weight"), step("blk.0.attn_output.weight"));
  EXPECT_LT(step("blk.0.ssm_in.weight"), step("blk.0.ssm_out.weight"));
  const auto other = [](const char* name) { return purpose_of_safetensors_name(name).step; };
  EXPECT_LT(other("model.layers.0.self_attn.q_proj.weight"),
            other("model.layers.0.self_attn.v_proj.weight"));
  EXPECT_LT(other("model.layers.0.self_attn.k_proj.weight"),
            other("model.layers.0.self_attn.o_proj.weight"));
}

TEST(TensorNames, OnlyTheTokenEmbeddingIsStepZero) {
  EXPECT_EQ(purpose_of_gguf_name("token_embd.weight").step, 0);
  EXPECT_NE(purpose_of_gguf_name("per_layer_token_embd.weight").step, 0);
  EXPECT_NE(purpose_of_gguf_name("position_embd.weight").step, 0);
}

}  // namespace
}  // namespace resid::test

#include <gtest/gtest.h>

#include "model/chunk_plan.hpp"
#include "model/tensor_names.hpp"

namespace resid::test {
namespace {

// A model of named tensors, each of which fills whole pages unless it says otherwise.
class Named {
 public:
  explicit Named(std::vector<std::pair<std::string, std::uint64_t>> tensors) {
    file_.bytes = file_.data_offset = kPage;
    for (const auto& [name, bytes] : tensors) {
      Tensor tensor;
      tensor.name = name;
      tensor.offset = file_.bytes;
      tensor.bytes = bytes;
      const TensorPurpose purpose = purpose_of_gguf_name(name);
      tensor.layer = purpose.layer;
      tensor.role = purpose.role;
      tensor.step = purpose.step;
      tensor.expert = purpose.expert;
      if (purpose.stacked) tensor.experts = 2;
      file_.bytes += bytes;
      file_.layers = std::max(file_.layers, static_cast<std::uint32_t>(tensor.layer + 1));
      file_.tensors.push_back(tensor);
    }
  }
  ModelFile& file() { return file_; }
  ChunkPlan plan() const { return *ChunkPlan::make(file_); }

 private:
  ModelFile file_;
};

// The order as names of tensors, `*` marking a seam (named after its owner).
std::vector<std::string> order_of(std::vector<Named> models) {
  std::vector<ChunkPlan> plans;
  for (const Named& model : models)
    plans.push_back(model.plan());
  std::vector<const ModelFile*> files;
  std::vector<const ChunkPlan*> pointers;
  for (std::size_t i = 0; i < models.size(); ++i) {
    files.push_back(&models[i].file());
    pointers.push_back(&plans[i]);
  }
  std::vector<std::string> out;
  for (const OrderEntry& entry : declared_order(files, pointers)) {
    const Chunk& chunk = plans[entry.file][entry.chunk];
    std::string name = files[entry.file]->tensors[chunk.tensor].name;
    if (chunk.expert != kNoExpert) name += "#" + std::to_string(chunk.expert);
    out.push_back((chunk.seam ? "*" : "") + name);
  }
  return out;
}

using Names = std::vector<std::string>;

TEST(DeclaredOrder, GoesLayerByLayerAndRoleByRole) {
  // Sorted by name, as files are.
  EXPECT_EQ(order_of({Named({{"output.weight", kPage},
                             {"output_norm.weight", kPage},
                             {"token_embd.weight", kPage},
                             {"blk.0.attn_k", kPage},
                             {"blk.0.attn_norm", kPage},
                             {"blk.0.attn_output", kPage},
                             {"blk.0.attn_q", kPage},
                             {"blk.0.attn_v", kPage},
                             {"blk.0.ffn_down", kPage},
                             {"blk.0.ffn_gate", kPage},
                             {"blk.0.ffn_norm", kPage},
                             {"blk.0.ffn_up", kPage},
                             {"blk.1.attn_norm", kPage},
                             {"blk.10.attn_norm", kPage},
                             {"blk.2.attn_norm", kPage}})}),
            (Names{"blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_v", "blk.0.attn_k",
                   "blk.0.attn_output", "blk.0.ffn_norm", "blk.0.ffn_gate", "blk.0.ffn_up",
                   "blk.0.ffn_down", "blk.1.attn_norm", "blk.2.attn_norm", "blk.10.attn_norm",
                   "output_norm.weight", "output.weight"}));
}

TEST(DeclaredOrder, TiedEmbeddingStandsLast) {
  EXPECT_EQ(order_of({Named({{"token_embd.weight", kPage},
                             {"per_layer_token_embd.weight", kPage},
                             {"output_norm.weight", kPage},
                             {"blk.0.attn_q", kPage}})}),
            (Names{"blk.0.attn_q", "output_norm.weight", "token_embd.weight"}));
}

TEST(DeclaredOrder, AnOutputInAnotherFileUnties) {
  EXPECT_EQ(order_of({Named({{"token_embd.weight", kPage}, {"blk.0.attn_q", kPage}}),
                      Named({{"output.weight", kPage}})}),
            (Names{"blk.0.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, ExpertsStandAtTheirLayerInExpertOrder) {
  EXPECT_EQ(order_of({Named({{"blk.0.ffn_down_exps", 2 * kPage},
                             {"blk.0.ffn_gate_exps", 2 * kPage},
                             {"blk.0.ffn_gate_inp", kPage},
                             {"blk.0.ffn_up_exps", 2 * kPage},
                             {"blk.0.ffn_up_shexp", kPage},
                             {"output.weight", kPage}})}),
            (Names{"blk.0.ffn_gate_inp", "blk.0.ffn_gate_exps#0", "blk.0.ffn_gate_exps#1",
                   "blk.0.ffn_up_exps#0", "blk.0.ffn_up_exps#1", "blk.0.ffn_down_exps#0",
                   "blk.0.ffn_down_exps#1", "blk.0.ffn_up_shexp", "output.weight"}));
}

TEST(DeclaredOrder, ExpertsOfTheirOwnTensorsStandByNumber) {
  EXPECT_EQ(order_of({Named({{"blk.0.ffn_up.10.weight", kPage},
                             {"blk.0.ffn_up.2.weight", kPage},
                             {"output.weight", kPage}})}),
            (Names{"blk.0.ffn_up.2.weight#2", "blk.0.ffn_up.10.weight#10", "output.weight"}));
}

TEST(DeclaredOrder, PiecesFollowTheirOffsets) {
  const Names order = order_of({Named({{"blk.0.attn_q", 5 << 20}, {"output.weight", kPage}})});
  EXPECT_EQ(order, (Names{"blk.0.attn_q", "blk.0.attn_q", "blk.0.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, ASeamStandsWhereverOneOfItsTensorsIsRead) {
  // attn_k's last bytes and attn_q's first share a page; attn_q is read first.
  EXPECT_EQ(order_of({Named({{"blk.0.attn_k", kPage + 64},
                             {"blk.0.attn_q", 2 * kPage - 64},
                             {"blk.0.attn_v", kPage},
                             {"output.weight", kPage}})}),
            (Names{"*blk.0.attn_q", "blk.0.attn_q", "blk.0.attn_v", "blk.0.attn_k", "*blk.0.attn_q",
                   "output.weight"}));
}

TEST(DeclaredOrder, NeighboursAreNeverTheSameChunk) {
  // Read one after the other, the two name their seam once.
  EXPECT_EQ(order_of({Named({{"blk.0.attn_q", kPage + 64},
                             {"blk.0.attn_v", 2 * kPage - 64},
                             {"output.weight", kPage}})}),
            (Names{"blk.0.attn_q", "*blk.0.attn_v", "blk.0.attn_v", "output.weight"}));
}

TEST(DeclaredOrder, TheEndOfTheCycleIsNotItsBeginning) {
  EXPECT_EQ(order_of({Named({{"output.weight", kPage + 64}, {"blk.0.attn_q", 2 * kPage - 64}})}),
            (Names{"*blk.0.attn_q", "blk.0.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, DraftLayersAreLeftOut) {
  Named model({{"blk.0.attn_q", kPage}, {"blk.1.attn_q", kPage}, {"output.weight", kPage}});
  model.file().draft_layers = 1;
  EXPECT_EQ(order_of({model}), (Names{"blk.0.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, OneLayerMayLieInTwoFiles) {
  EXPECT_EQ(order_of({Named({{"blk.0.ffn_up", kPage}, {"blk.1.attn_q", kPage}}),
                      Named({{"blk.0.attn_q", kPage}, {"output.weight", kPage}})}),
            (Names{"blk.0.attn_q", "blk.0.ffn_up", "blk.1.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, EmptyTensorsAreLeftOut) {
  EXPECT_EQ(
      order_of({Named({{"blk.0.attn_k", 0}, {"blk.0.attn_q", kPage}, {"output.weight", kPage}})}),
      (Names{"blk.0.attn_q", "output.weight"}));
}

TEST(DeclaredOrder, NothingToReadIsNoOrder) {
  EXPECT_TRUE(declared_order({}, {}).empty());
}

}  // namespace
}  // namespace resid::test

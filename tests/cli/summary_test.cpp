// Every byte of a model is counted once.

#include "cli/model_summary.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "synth/synth.hpp"

namespace resid::cli {
namespace {

class Summary : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "summary-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Model model(SynthArch arch) {
    SynthRequest r;
    r.arch = arch;
    r.layers = 3;
    r.hidden = 96;
    r.ff = 64;
    r.head_dim = 24;  // norms of 96 bytes and odd sizes: there is padding
    r.heads = 4;
    if (arch == SynthArch::qwen3moe) r.experts = 5;
    const std::string path = folder_ / "m.gguf";
    SynthOptions options;
    options.replace = true;
    auto written = write_synth(resolve_shape(r).value(), path, options);
    EXPECT_TRUE(written) << written.error().line();
    return open_model(path).value();
  }

  std::filesystem::path folder_;
};

TEST_F(Summary, EveryViewAddsUpToTheFile) {
  for (const SynthArch arch : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    const Model m = model(arch);
    auto s = summarise(m, ChunkPlan::kDefaultChunkMax);
    ASSERT_TRUE(s) << s.error().line();
    EXPECT_EQ(s->total.bytes, m.bytes());
    EXPECT_EQ(s->total.metadata_bytes + s->total.tensor_bytes + s->total.padding_bytes,
              s->total.bytes);
    Share roles;
    for (const auto& [role, share] : s->roles) {
      roles.tensors += share.tensors;
      roles.bytes += share.bytes;
      roles.chunks += share.chunks;
    }
    Share layers;
    for (const auto& [layer, share] : s->layers) {
      layers.tensors += share.tensors;
      layers.bytes += share.bytes;
      layers.chunks += share.chunks;
    }
    std::uint64_t types = 0;
    for (const auto& [type, share] : s->types)
      types += share.bytes;
    EXPECT_EQ(roles.bytes, s->total.tensor_bytes);
    EXPECT_EQ(layers.bytes, s->total.tensor_bytes);
    EXPECT_EQ(types, s->total.tensor_bytes);
    EXPECT_EQ(roles.tensors, s->total.tensors);
    EXPECT_EQ(layers.tensors, s->total.tensors);
    EXPECT_EQ(roles.chunks, s->total.chunks);
    EXPECT_EQ(layers.chunks, s->total.chunks);
    EXPECT_EQ(s->layers.size(), 4U);  // three, and what belongs to none
  }
}

TEST_F(Summary, OneExpertIsItsShareOfTheStackedTensors) {
  auto s = summarise(model(SynthArch::qwen3moe), ChunkPlan::kDefaultChunkMax);
  ASSERT_TRUE(s) << s.error().line();
  for (const auto& [layer, share] : s->layers) {
    EXPECT_EQ(share.bytes_per_expert * 5, share.expert_bytes);
    EXPECT_EQ(share.expert_bytes > 0, layer != kNoLayer);
  }
}

TEST_F(Summary, SmallerChunksAreMoreChunks) {
  const Model m = model(SynthArch::qwen3);
  const auto large = summarise(m, 1 << 20);
  const auto small = summarise(m, 4096);
  ASSERT_TRUE(large && small);
  EXPECT_GT(small->total.chunks, large->total.chunks);
  EXPECT_EQ(small->largest_chunk, 4096U);
}

TEST_F(Summary, AChunkSizeThePlanRefusesIsAFailure) {
  EXPECT_FALSE(summarise(model(SynthArch::qwen3), 1000));
}

}  // namespace
}  // namespace resid::cli

#include <gtest/gtest.h>

#include "read_bytes.hpp"
#include "safetensors_bytes.hpp"

namespace resid::test {
namespace {

ModelFile read_good(const std::string& bytes) {
  Result<ModelFile> read = read_bytes(bytes);
  if (!read) ADD_FAILURE() << read.error().line();
  return read ? std::move(*read) : ModelFile{};
}

TEST(SafetensorsReader, ReadsTensors) {
  const std::string bytes = small_safetensors();
  const ModelFile model = read_good(bytes);
  EXPECT_EQ(model.format, Format::safetensors);
  EXPECT_EQ(model.version, 0U);
  EXPECT_EQ(model.bytes, bytes.size());
  EXPECT_EQ(model.data_offset, bytes.size() - 304);
  EXPECT_EQ(model.alignment, 8U);
  EXPECT_EQ(model.layers, 1U);
  ASSERT_EQ(model.tensors.size(), 3U);
  EXPECT_EQ(model.tensors[0].role, Role::embedding);
  const Tensor& down = model.tensors[1];
  EXPECT_EQ(down.name, "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(down.type, "F32");
  EXPECT_EQ(down.dims, (std::vector<std::uint64_t>{4, 4}));
  EXPECT_EQ(down.offset, model.data_offset + 160);
  EXPECT_EQ(down.bytes, 64U);
  EXPECT_EQ(down.layer, 0);
  EXPECT_EQ(down.role, Role::ffn_down);
  EXPECT_EQ(model.tensors[2].role, Role::output);
}

TEST(SafetensorsReader, KnowsTheSizeOfEveryType) {
  const std::vector<std::pair<const char*, std::uint64_t>> bits{
      {"BOOL", 8},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto& [type, size] : bits) {
    const ModelFile model =
        read_good(safetensors("{" + entry("t", type, "[8,3]", 0, size * 3) + "}", size * 3));
    ASSERT_EQ(model.tensors.size(), 1U) << type;
    EXPECT_EQ(model.tensors[0].bytes, size * 3) << type;
    EXPECT_EQ(model.tensors[0].type, type);
  }
}

TEST(SafetensorsReader, AcceptsNoTensors) {
  EXPECT_TRUE(read_good(safetensors("{}      ", 0)).tensors.empty());
}

TEST(SafetensorsReader, AcceptsScalarsAndEmptyTensors) {
  const ModelFile model = read_good(safetensors("{" + entry("scalar", "F32", "[]", 0, 4) + "," +
                                                    entry("empty", "F32", "[0,7]", 4, 4) + "," +
                                                    entry("after", "U8", "[2]", 4, 6) + "}",
                                                6));
  ASSERT_EQ(model.tensors.size(), 3U);
  EXPECT_EQ(model.tensors[1].name, "empty");
  EXPECT_EQ(model.tensors[1].bytes, 0U);
}

TEST(SafetensorsReader, AcceptsAnyOrderOfTensorsAndMembers) {
  const ModelFile model =
      read_good(safetensors(R"({"late":{"data_offsets":[4,8],"shape":[4],"dtype":"U8"},)" +
                                entry("early", "F32", "[1]", 0, 4) + "}",
                            8));
  ASSERT_EQ(model.tensors.size(), 2U);
  EXPECT_EQ(model.tensors[0].name, "early");
}

TEST(SafetensorsReader, PassesOverUnknownMembers) {
  const ModelFile model = read_good(
      safetensors(R"({"t":{"dtype":"U8","note":{"a":[1,{"b":null}],"c":-1.5},"more":true,"s":"x",)"
                  R"("n":[],"shape":[4],"data_offsets":[0,4]}})",
                  4));
  ASSERT_EQ(model.tensors.size(), 1U);
  EXPECT_EQ(model.tensors[0].bytes, 4U);
}

TEST(SafetensorsReader, DecodesEscapedNames) {
  const ModelFile model = read_good(
      safetensors(R"({"a\"\u0062\\":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  ASSERT_EQ(model.tensors.size(), 1U);
  EXPECT_EQ(model.tensors[0].name, "a\"b\\");
}

TEST(SafetensorsReader, NumbersTheExpertOfATensor) {
  const ModelFile model = read_good(safetensors(
      "{" + entry("model.layers.2.mlp.experts.5.up_proj.weight", "U8", "[4]", 0, 4) + "}", 4));
  ASSERT_EQ(model.tensors.size(), 1U);
  EXPECT_EQ(model.tensors[0].expert, 5);
  EXPECT_EQ(model.tensors[0].experts, 0U);
  EXPECT_EQ(model.tensors[0].role, Role::expert_up);
  EXPECT_EQ(model.layers, 3U);
  EXPECT_EQ(model.experts, 6U);
}

TEST(SafetensorsReader, SlicesATensorOfAllExpertsByItsFirstDimension) {
  const ModelFile model = read_good(safetensors(
      "{" + entry("model.layers.0.mlp.experts.gate_up_proj", "U8", "[3,2,2]", 0, 12) + "}", 12));
  ASSERT_EQ(model.tensors.size(), 1U);
  EXPECT_EQ(model.tensors[0].experts, 3U);
  EXPECT_EQ(model.tensors[0].role, Role::expert_gate);
}

TEST(SafetensorsReader, LooksLikeAModel) {
  EXPECT_TRUE(looks_like_model(memfd_of(small_safetensors()).get()));
  EXPECT_TRUE(looks_like_model(memfd_of(safetensors("{}", 0)).get()));
  EXPECT_FALSE(looks_like_model(memfd_of(small_safetensors().substr(0, 40)).get()));
}

}  // namespace
}  // namespace resid::test

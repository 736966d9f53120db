#include <gtest/gtest.h>

#include <fcntl.h>

#include "gguf_bytes.hpp"
#include "model/ggml_types.hpp"
#include "read_bytes.hpp"

namespace resid::test {
namespace {

ModelFile read_good(const std::string& bytes) {
  Result<ModelFile> read = read_bytes(bytes);
  if (!read) ADD_FAILURE() << read.error().line();
  return read ? std::move(*read) : ModelFile{};
}

TEST(GgufReader, ReadsMetadataAndTensors) {
  GgufBytes file = small_gguf();
  const std::string bytes = file.build();
  const ModelFile model = read_good(bytes);
  EXPECT_EQ(model.format, Format::gguf);
  EXPECT_EQ(model.version, 3U);
  EXPECT_EQ(model.bytes, bytes.size());
  EXPECT_EQ(model.data_offset, file.at["data"]);
  EXPECT_EQ(model.alignment, 32U);
  EXPECT_EQ(model.architecture, "qwen3");
  EXPECT_EQ(model.model_name, "tiny");
  EXPECT_EQ(model.layers, 2U);
  EXPECT_EQ(model.split_count, 1U);
  ASSERT_EQ(model.tensors.size(), 5U);
  const Tensor& q = model.tensors[2];
  EXPECT_EQ(q.name, "blk.0.attn_q.weight");
  EXPECT_EQ(q.type, "Q4_0");
  EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{64, 64}));
  EXPECT_EQ(q.bytes, 64U / 32 * 18 * 64);
  EXPECT_EQ(q.layer, 0);
  EXPECT_EQ(q.role, Role::attention);
}

TEST(GgufReader, ReadsVersion2) {
  GgufBytes file = small_gguf();
  file.version = 2;
  EXPECT_EQ(read_good(file.build()).version, 2U);
}

TEST(GgufReader, ReadsAFileWithoutTensors) {
  const ModelFile model = read_good(GgufBytes().text("general.architecture", "x").build());
  EXPECT_TRUE(model.tensors.empty());
  EXPECT_EQ(model.data_offset, model.bytes);
}

TEST(GgufReader, HonoursTheAlignmentKey) {
  GgufBytes file;
  file.alignment = 4096;
  file.number("general.alignment", 4096).floats("a", 8).floats("b", 8);
  const ModelFile model = read_good(file.build());
  EXPECT_EQ(model.data_offset, 4096U);
  EXPECT_EQ(model.tensors[1].offset, 8192U);
}

TEST(GgufReader, AlignmentAppliesWhereverItsKeyStands) {
  GgufBytes file;
  file.alignment = 64;
  file.text("z", "z").number("general.alignment", 64).floats("a", 8);
  EXPECT_EQ(read_good(file.build()).data_offset % 64, 0U);
}

TEST(GgufReader, SortsTensorsByOffset) {
  const ModelFile model =
      read_good(GgufBytes().floats("late", 8, 64).floats("early", 8, 0).build());
  EXPECT_EQ(model.tensors[0].name, "early");
  EXPECT_EQ(model.tensors[1].name, "late");
}

TEST(GgufReader, AcceptsEveryScalarType) {
  GgufBytes file;
  file.key("u8", kU8, le(1, 1)).key("i8", kI8, le(1, 1)).key("u16", kU16, le(1, 2));
  file.key("i16", kI16, le(1, 2)).key("u32", kU32, u32(1)).key("i32", kI32, u32(1));
  file.key("f32", kF32, u32(1)).key("bool", kBoolean, le(0, 1)).text("text", "t");
  file.key("u64", kU64, u64(1)).key("i64", kI64, u64(1)).key("f64", kF64, u64(1));
  file.floats("a", 8);
  EXPECT_EQ(read_good(file.build()).tensors.size(), 1U);
}

TEST(GgufReader, SkipsArraysOfEveryScalarType) {
  GgufBytes file;
  for (const auto& [type, size] :
       std::initializer_list<std::pair<std::uint32_t, std::size_t>>{{kU8, 1},
                                                                    {kI8, 1},
                                                                    {kU16, 2},
                                                                    {kI16, 2},
                                                                    {kU32, 4},
                                                                    {kI32, 4},
                                                                    {kF32, 4},
                                                                    {kBoolean, 1},
                                                                    {kU64, 8},
                                                                    {kI64, 8},
                                                                    {kF64, 8}}) {
    file.key("array" + std::to_string(type), kArray,
             u32(type) + u64(5) + std::string(5 * size, '\1'));
  }
  file.key("empty", kArray, u32(kText) + u64(0)).floats("a", 8);
  EXPECT_EQ(read_good(file.build()).tensors.size(), 1U);
}

TEST(GgufReader, SkipsAVocabularyLargerThanItsBuffer) {
  std::string words;
  for (int i = 0; i < 40'000; ++i)
    words += gguf_string("word" + std::to_string(i));
  GgufBytes file;
  file.key("tokenizer.ggml.tokens", kArray, u32(kText) + u64(40'000) + words).floats("a", 8);
  EXPECT_EQ(read_good(file.build()).tensors[0].name, "a");
}

TEST(GgufReader, TakesNumbersOfAnyIntegerType) {
  GgufBytes file;
  file.text("general.architecture", "q").key("q.block_count", kU64, u64(7));
  file.key("q.expert_count", kI32, u32(8)).key("q.expert_used_count", kU16, le(2, 2));
  const ModelFile model = read_good(file.build());
  EXPECT_EQ(model.layers, 7U);
  EXPECT_EQ(model.experts, 8U);
  EXPECT_EQ(model.experts_used, 2U);
}

TEST(GgufReader, IgnoresCountsOfAnotherArchitecture) {
  GgufBytes file;
  file.text("general.architecture", "q").number("clip.block_count", 9).floats("blk.2.x", 8);
  EXPECT_EQ(read_good(file.build()).layers, 3U);
}

TEST(GgufReader, PassesOverPerLayerArraysOfCounts) {
  GgufBytes file;
  file.text("general.architecture", "q");
  file.key("q.expert_count", kArray, u32(kU32) + u64(2) + u32(1) + u32(2));
  EXPECT_EQ(read_good(file.build()).experts, 0U);
}

TEST(GgufReader, ReadsSplitKeys) {
  GgufBytes file;
  file.key("split.no", kU16, le(1, 2)).key("split.count", kU16, le(3, 2));
  file.key("split.tensors.count", kI32, u32(11));
  const ModelFile model = read_good(file.build());
  EXPECT_EQ(model.split_no, 1U);
  EXPECT_EQ(model.split_count, 3U);
  EXPECT_EQ(model.split_tensors, 11U);
}

TEST(GgufReader, CountsExpertsOfStackedTensors) {
  GgufBytes file;
  file.tensor({"blk.0.ffn_gate_up_exps.weight", {256, 4, 6}, 12, 144 * 4 * 6});
  file.tensor({"blk.0.ffn_down_exps.bias", {16, 6}, 0, 16 * 6 * 4});
  file.tensor({"blk.0.ffn_down_exps.scale", {6}, 0, 6 * 4});
  const ModelFile model = read_good(file.build());
  for (const Tensor& tensor : model.tensors)
    EXPECT_EQ(tensor.experts, 6U) << tensor.name;
  EXPECT_EQ(model.experts, 6U);
}

TEST(GgufReader, ComputesTheSizeOfEveryType) {
  for (std::uint32_t number = 0; number < ggml_type_count(); ++number) {
    const GgmlType type = ggml_type(number);
    ASSERT_FALSE(type.name.empty()) << number;
    if (type.block == 0) continue;
    GgufBytes file;
    file.tensor({"t", {type.block * 3ULL, 5}, number, type.block_bytes * 15ULL});
    const ModelFile model = read_good(file.build());
    ASSERT_EQ(model.tensors.size(), 1U);
    EXPECT_EQ(model.tensors[0].bytes, type.block_bytes * 15ULL) << type.name;
    EXPECT_EQ(model.tensors[0].type, type.name);
  }
}

// The sizes that most files are made of, from the definitions of the formats themselves.
TEST(GgufReader, KnowsBitsPerWeight) {
  const auto bits = [](std::uint32_t number) {
    const GgmlType type = ggml_type(number);
    return 8.0 * type.block_bytes / type.block;
  };
  EXPECT_EQ(bits(0), 32);       // F32
  EXPECT_EQ(bits(1), 16);       // F16
  EXPECT_EQ(bits(2), 4.5);      // Q4_0
  EXPECT_EQ(bits(8), 8.5);      // Q8_0
  EXPECT_EQ(bits(10), 2.625);   // Q2_K
  EXPECT_EQ(bits(11), 3.4375);  // Q3_K
  EXPECT_EQ(bits(12), 4.5);     // Q4_K
  EXPECT_EQ(bits(13), 5.5);     // Q5_K
  EXPECT_EQ(bits(14), 6.5625);  // Q6_K
  EXPECT_EQ(bits(30), 16);      // BF16
  EXPECT_EQ(bits(39), 4.25);    // MXFP4
  EXPECT_EQ(bits(40), 4.5);     // NVFP4
}

TEST(GgufReader, LeavesTheFilePositionAlone) {
  const Fd fd = memfd_of(small_gguf().build());
  ASSERT_EQ(::lseek(fd.get(), 17, SEEK_SET), 17);
  EXPECT_TRUE(looks_like_model(fd.get()));
  EXPECT_TRUE(read_model_file(fd.get(), kPath).has_value());
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_CUR), 17);
}

TEST(LooksLikeModel, IsFalseForOtherThings) {
  EXPECT_FALSE(looks_like_model(-1));
  EXPECT_FALSE(looks_like_model(memfd_of("").get()));
  EXPECT_FALSE(looks_like_model(memfd_of("GGU").get()));
  EXPECT_FALSE(looks_like_model(memfd_of("\x7f"
                                         "ELF\2\1\1 and more bytes")
                                    .get()));
  EXPECT_FALSE(looks_like_model(memfd_of("{\"a json\": \"document\"}").get()));
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const Fd reader(pipe_fds[0]);
  const Fd writer(pipe_fds[1]);
  EXPECT_FALSE(looks_like_model(reader.get()));
}

TEST(LooksLikeModel, IsTrueForADamagedModel) {
  EXPECT_TRUE(looks_like_model(memfd_of("GGUF").get()));
}

}  // namespace
}  // namespace resid::test

// One test for each way in which a GGUF file can contradict itself.

#include <gtest/gtest.h>

#include "gguf_bytes.hpp"
#include "read_bytes.hpp"

namespace resid::test {
namespace {

// `bytes` with `patch` written over what stands at `offset`.
std::string patched(std::string bytes, std::uint64_t offset, const std::string& patch) {
  return bytes.replace(offset, patch.size(), patch);
}

// A file with one damaged key value: built with `type` and `value` under the name `key`.
BadFile bad_key(const std::string& kind, const std::string& key, std::uint32_t type,
                const std::string& value, Status status, std::uint64_t place,
                const std::string& field, const std::string& reason) {
  GgufBytes file;
  file.text("general.architecture", "qwen3").key(key, type, value).floats("output.weight", 8);
  const std::string bytes = file.build();
  return {kind,  bytes, status, file.at[key] + 8 + key.size() + place, "key '" + key + "' " + field,
          reason};
}

// A file with one damaged tensor.
BadFile bad_tensor(const std::string& kind, GgufBytes::Tensor tensor, Status status,
                   const std::string& place, std::uint64_t plus, const std::string& field,
                   const std::string& reason) {
  GgufBytes file;
  const std::string name = tensor.name;
  file.floats("output_norm.weight", 8).tensor(std::move(tensor));
  const std::string bytes = file.build();
  return {kind,  bytes, status, file.at[name + place] + plus, "tensor '" + name + "' " + field,
          reason};
}

// A tensor placed by hand after a good one of 32 bytes at relative offset 0.
BadFile misplaced(const std::string& kind, std::int64_t offset, const std::string& reason) {
  GgufBytes file;
  file.floats("first.weight", 16).floats("second.weight", 16, offset);
  std::string bytes = file.build();
  if (offset > 1'000'000) bytes.resize(file.at["data"] + 128);
  return {kind,
          bytes,
          Status::malformed,
          file.at["second.weight offset"],
          "tensor 'second.weight' offset",
          reason};
}

std::vector<BadFile> bad_files() {
  GgufBytes good = small_gguf();
  const std::string bytes = good.build();
  const std::uint64_t huge = ~std::uint64_t{0};
  constexpr Status kMalformed = Status::malformed;
  constexpr Status kUnsupported = Status::unsupported;

  std::vector<BadFile> out{
      {"wrong_magic", patched(bytes, 0, "GGUM"), Status::not_a_model, 0, "magic", "neither"},
      {"only_magic", "GGUF", kMalformed, 4, "version", "0 bytes left in the file"},
      {"version_0", patched(bytes, 4, u32(0)), kUnsupported, 4, "version", "GGUF version 0"},
      {"version_1", patched(bytes, 4, u32(1)), kUnsupported, 4, "version", "GGUF version 1"},
      {"version_4", patched(bytes, 4, u32(4)), kUnsupported, 4, "version", "GGUF version 4"},
      {"big_endian", patched(bytes, 4, std::string("\0\0\0\3", 4)), kUnsupported, 4, "version",
       "big-endian"},
      {"tensor_count_missing", bytes.substr(0, 12), kMalformed, 8, "tensor count", "4 bytes left"},
      {"key_count_missing", bytes.substr(0, 16), kMalformed, 16, "key count", "0 bytes left"},
      {"tensor_count_lies", patched(bytes, 8, u64(huge)), kMalformed, 8, "tensor count",
       "18446744073709551615 cannot fit"},
      {"tensor_count_lies_a_little", patched(bytes, 8, u64(bytes.size() / 25 + 1)), kMalformed, 8,
       "tensor count", "cannot fit"},
      {"key_count_lies", patched(bytes, 16, u64(huge)), kMalformed, 16, "key count", "cannot fit"},
      {"key_name_length_lies", patched(bytes, 24, u64(huge)), kMalformed, 24, "key '0' name",
       "bytes long, with"},
      {"key_name_too_long", patched(bytes + std::string(70000, 'x'), 24, u64(65536)), kMalformed,
       24, "key '0' name", "65535 are allowed"},
      {"key_name_empty", GgufBytes().text("", "x").build(), kMalformed, 24, "key '0' name",
       "empty"},
      {"key_name_with_zero_byte", GgufBytes().text(std::string("a\0b", 3), "x").build(), kMalformed,
       24, "key '0' name", "zero byte"},
      {"key_type_unknown", patched(bytes, good.at["a.bool type"], u32(13)), kMalformed,
       good.at["a.bool type"], "key 'a.bool' value type", "13 is not a GGUF value type"},
      {"bool_is_two", patched(bytes, good.at["a.bool value"], "\2"), kMalformed,
       good.at["a.bool value"], "key 'a.bool' value", "neither false nor true"},
      {"array_type_unknown", patched(bytes, good.at["a.floats value"], u32(77)), kMalformed,
       good.at["a.floats value"], "key 'a.floats' array type", "77 is not"},
      {"array_of_arrays", patched(bytes, good.at["a.floats value"], u32(kArray)), kUnsupported,
       good.at["a.floats value"], "key 'a.floats' array type", "arrays of arrays"},
      {"array_length_lies", patched(bytes, good.at["a.floats value"] + 4, u64(huge / 2)),
       kMalformed, good.at["a.floats value"] + 4, "key 'a.floats' array length", "cannot fit"},
      {"array_length_times_size_wraps",
       patched(bytes, good.at["a.floats value"] + 4, u64((huge >> 2) + 2)), kMalformed,
       good.at["a.floats value"] + 4, "key 'a.floats' array length", "cannot fit"},
      {"string_array_length_lies", patched(bytes, good.at["a.strings value"] + 4, u64(huge)),
       kMalformed, good.at["a.strings value"] + 4, "key 'a.strings' array length", "cannot fit"},
      {"string_in_array_length_lies", patched(bytes, good.at["a.strings value"] + 12, u64(huge)),
       kMalformed, good.at["a.strings value"] + 12, "key 'a.strings' array element", "bytes long"},
      {"string_value_length_lies", patched(bytes, good.at["general.name value"], u64(huge)),
       kMalformed, good.at["general.name value"], "key 'general.name' value", "bytes long"},

      bad_key("architecture_not_text", "general.name", kU32, u32(1), kMalformed, 0, "value type",
              "type 4 where another"),
      bad_key("alignment_not_u32", "general.alignment", kU64, u64(32), kMalformed, 0, "value type",
              "type 10 where another"),
      bad_key("alignment_zero", "general.alignment", kU32, u32(0), kMalformed, 4, "value",
              "not a power of two"),
      bad_key("alignment_four", "general.alignment", kU32, u32(4), kMalformed, 4, "value",
              "not a power of two of at least 8"),
      bad_key("alignment_48", "general.alignment", kU32, u32(48), kMalformed, 4, "value",
              "48 is not a power of two"),
      bad_key("alignment_array", "general.alignment", kArray, u32(kU32) + u64(1) + u32(32),
              kMalformed, 0, "value type", "type 9 where another"),
      bad_key("layer_count_text", "qwen3.block_count", kText, gguf_string("six"), kMalformed, 0,
              "value type", "type 8 where another"),
      bad_key("layer_count_negative", "qwen3.block_count", kI32, u32(0xfffffffa), kMalformed, 4,
              "value", "negative"),
      bad_key("layer_count_huge", "qwen3.block_count", kU64, u64(huge / 2), kMalformed, 4, "value",
              "out of range"),
      bad_key("layer_count_absurd", "qwen3.block_count", kU32, u32(2'000'000), kMalformed, 4,
              "value", "2000000 layers"),
      bad_key("expert_count_absurd", "qwen3.expert_count", kU32, u32(70'000), kMalformed, 4,
              "value", "70000 experts"),
      bad_key("split_count_absurd", "split.count", kU32, u32(100'000), kMalformed, 4, "value",
              "100000 parts"),
      bad_key("split_no_beyond_count", "split.no", kU16, le(1, 2), kMalformed, 4, "value",
              "part 1 of 1"),
      bad_key("split_no_float", "split.no", kF32, u32(0), kMalformed, 0, "value type",
              "type 6 where another"),

      bad_tensor("tensor_name_empty", {"", {8}, 0, 32}, kMalformed, "", 0, "", ""),
      bad_tensor("tensor_name_too_long", {std::string(1025, 'n'), {8}, 0, 32}, kMalformed, "", 0,
                 "", ""),
      bad_tensor("tensor_name_with_zero_byte", {std::string("a\0b", 3), {8}, 0, 32}, kMalformed, "",
                 0, "", ""),
      bad_tensor("five_dimensions", {"t", {8, 1, 1, 1, 1}, 0, 32}, kMalformed, " dims", 0,
                 "dimension count", "5; at most 4"),
      bad_tensor("dimension_zero", {"t", {8, 0}, 0, 0}, kMalformed, " dims", 12, "dimension",
                 "1 is zero"),
      bad_tensor("row_not_whole_blocks", {"t", {33}, 2, 36}, kMalformed, " dims", 4, "dimension",
                 "33 elements are not whole blocks of 32 (Q4_0)"),
      bad_tensor("scalar_of_a_block_type", {"t", {}, 12, 144}, kMalformed, " dims", 4, "dimension",
                 "not whole blocks of 256"),
      bad_tensor("row_bytes_overflow", {"t", {std::uint64_t{1} << 63}, 28, 0}, kMalformed, " dims",
                 4, "dimension", "overflows"),
      bad_tensor("product_overflows", {"t", {1ULL << 30, 1ULL << 30, 1ULL << 30}, 0, 0}, kMalformed,
                 " dims", 4, "dimension", "overflows"),
      bad_tensor("type_unknown", {"t", {32}, 43, 32}, kUnsupported, " type", 0, "type",
                 "unknown tensor type 43"),
      bad_tensor("type_far_out", {"t", {32}, 0xffffffff, 32}, kUnsupported, " type", 0, "type",
                 "unknown tensor type 4294967295"),
      bad_tensor("type_removed", {"t", {32}, 31, 32}, kUnsupported, " type", 0, "type",
                 "type 31 (Q4_0_4_4), which ggml has removed"),
      bad_tensor("too_many_experts", {"blk.0.ffn_up_exps.weight", {1, 1, 70'000}, 24, 70'000},
                 kMalformed, " dims", 4, "dimension", "70000 experts"),
      bad_tensor("block_shared_by_experts", {"blk.0.ffn_up_exps.scale", {64}, 2, 36}, kMalformed,
                 " dims", 4, "dimension", "36 bytes do not divide among 64 experts"),

      misplaced("offset_not_aligned", 72, "72 is not a multiple of the alignment 32"),
      misplaced("overlap", 32, "overlaps tensor 'first.weight'"),
      misplaced("same_place", 0, "overlaps tensor"),
      misplaced("past_the_end", 1'000'032, "pass the end of the file"),
      misplaced("offset_wraps", std::int64_t{0x7fffffffffffffe0}, "pass the end of the file"),
  };

  GgufBytes twice;
  twice.text("k", "x").number("k", 1);
  out.push_back({"duplicate_key", twice.build(), kMalformed, twice.at["k"], "key 'k' name",
                 "already used at offset 24"});
  GgufBytes twins;
  twins.floats("t", 8).floats("u", 8).floats("t", 8);
  out.push_back({"duplicate_tensor", twins.build(), kMalformed, twins.at["t offset"],
                 "tensor 't' name", "already used"});
  GgufBytes short_file;
  short_file.floats("a", 8).floats("b", 8);
  std::string cut = short_file.build();
  cut.pop_back();
  out.push_back({"last_byte_missing", cut, kMalformed, short_file.at["b offset"],
                 "tensor 'b' offset", "pass the end of the file"});
  GgufBytes odd;
  odd.floats("a", 8, 0x40000000).number("general.alignment", 0x80000000);
  out.push_back({"alignment_beyond_file", odd.build().substr(0, 200), kMalformed,
                 odd.at["a offset"], "tensor 'a' offset", "not a multiple"});
  for (BadFile& bad : out) {
    // The subject of a bad tensor name is the tensor's number: it has no name to go by.
    if (bad.kind.starts_with("tensor_name_")) bad.field = "tensor '1' name";
    if (bad.kind == "tensor_name_empty") bad.reason = "empty";
    if (bad.kind == "tensor_name_too_long") bad.reason = "1024 are allowed";
    if (bad.kind == "tensor_name_with_zero_byte") bad.reason = "zero byte";
  }
  return out;
}

class GgufCorruption : public testing::TestWithParam<BadFile> {};

TEST_P(GgufCorruption, IsRefusedNamingOffsetFieldAndReason) {
  expect_refused(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufCorruption, testing::ValuesIn(bad_files()), bad_file_name);

TEST(GgufCorruptionTest, EveryTruncationIsAnError) {
  const std::string whole = small_gguf().build();
  ASSERT_TRUE(read_bytes(whole).has_value());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto read = read_bytes(whole.substr(0, bytes));
    ASSERT_FALSE(read.has_value()) << "accepted the first " << bytes << " bytes";
    EXPECT_FALSE(read.error().why.empty());
    EXPECT_EQ(exit_code(read.error().status), 2);
  }
}

// Whatever a single damaged byte does, the result is a refusal or a table that keeps its promises.
TEST(GgufCorruptionTest, NoDamagedByteBreaksThePromises) {
  const std::string whole = small_gguf().build();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      const auto read = read_bytes(bytes);
      if (!read) continue;
      std::uint64_t end = read->data_offset;
      for (const Tensor& tensor : read->tensors) {
        ASSERT_GE(tensor.offset, end) << "byte " << i;
        end = tensor.offset + tensor.bytes;
      }
      ASSERT_LE(end, read->bytes) << "byte " << i;
    }
  }
}

TEST(GgufCorruptionTest, TextFromTheFileIsMadeFitToPrint) {
  const auto read = read_bytes(GgufBytes().floats("\x1b[31m\n\xff", 8).key("k", 99, "").build());
  ASSERT_FALSE(read.has_value());
  for (const char c : read.error().line())
    EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

}  // namespace
}  // namespace resid::test

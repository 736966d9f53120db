// One test for each way in which a safetensors file can contradict itself.

#include <gtest/gtest.h>

#include "read_bytes.hpp"
#include "safetensors_bytes.hpp"

namespace resid::test {
namespace {

// A header of one entry with these members, `data` bytes behind it. The entry begins at offset 9.
BadFile bad_entry(const std::string& kind, const std::string& members, std::uint64_t data,
                  const std::string& field, const std::string& reason,
                  Status status = Status::malformed) {
  return {kind,  safetensors("{\"t\":{" + members + "}}", data), status, 9, "tensor 't' " + field,
          reason};
}

BadFile bad_shape(const std::string& kind, const std::string& shape, const std::string& reason) {
  return bad_entry(kind, R"("dtype":"F32","data_offsets":[0,4],"shape":)" + shape, 4, "shape",
                   reason);
}

BadFile bad_offsets(const std::string& kind, const std::string& offsets,
                    const std::string& reason) {
  return bad_entry(kind, R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets, 4,
                   "data_offsets", reason);
}

BadFile bad_json(const std::string& kind, const std::string& header, std::uint64_t offset) {
  return {kind, safetensors(header, 0), Status::malformed, offset, "header", "not valid JSON"};
}

std::vector<BadFile> bad_files() {
  constexpr Status kMalformed = Status::malformed;
  const std::string good = small_safetensors();
  const std::string a = entry("a", "U8", "[4]", 0, 4);
  const std::uint64_t second = 8 + 1 + a.size() + 1;  // offset of a second entry
  const auto two = [&](const std::string& b, std::uint64_t data) {
    return safetensors("{" + a + "," + b + "}", data);
  };
  const auto data_at = [&](const std::string& b) { return 8 + 3 + a.size() + b.size(); };
  const std::string hole = entry("b", "U8", "[4]", 5, 9);
  const std::string late = entry("b", "U8", "[4]", 4, 8);

  return {
      {"length_beyond_file", u64(good.size()) + good.substr(8), Status::not_a_model, 0, "magic",
       "neither GGUF nor"},
      {"length_beyond_limit", u64(100'000'001) + good.substr(8), Status::not_a_model, 0, "magic",
       "neither GGUF nor"},
      {"not_an_object", safetensors("[\"a\"]", 0), Status::not_a_model, 0, "magic", "neither"},
      bad_json("unclosed_object", "{\"a\":{", 14),
      bad_json("trailing_text", "{} {}", 11),
      bad_json("missing_comma", "{\"a\" 1}", 13),
      bad_json("bad_escape", R"({"a\q":1})", 12),
      bad_json("not_utf8", "{\"a\xff\":1}", 11),
      bad_json("control_character", "{\"a\n\":1}", 11),

      bad_entry("dtype_missing", R"("shape":[1],"data_offsets":[0,4])", 4, "dtype", "missing"),
      bad_entry("shape_missing", R"("dtype":"F32","data_offsets":[0,4])", 4, "shape", "missing"),
      bad_entry("offsets_missing", R"("dtype":"F32","shape":[1])", 4, "data_offsets", "missing"),
      bad_entry("dtype_unknown", R"("dtype":"F31","shape":[1],"data_offsets":[0,4])", 4, "dtype",
                "unknown type 'F31'", Status::unsupported),
      bad_entry("dtype_number", R"("dtype":4,"shape":[1],"data_offsets":[0,4])", 4, "dtype",
                "not text"),
      bad_entry("dtype_list", R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])", 4, "dtype",
                "not text"),
      bad_entry("dtype_twice", R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])", 4,
                "dtype", "given twice"),
      bad_entry("shape_twice", R"("shape":[1],"shape":[1])", 4, "shape", "given twice"),
      bad_entry("offsets_twice", R"("data_offsets":[0,4],"data_offsets":[0,4])", 4, "data_offsets",
                "given twice"),
      bad_entry("unknown_member_nested_too_deep", "\"x\":" + std::string(40, '['), 4, "value",
                "nested more than 16 deep"),
      bad_shape("shape_number", "1", "not a list of numbers"),
      bad_shape("shape_object", "{}", "not a list of numbers"),
      bad_shape("shape_of_text", "[\"1\"]", "not a list of numbers"),
      bad_shape("shape_nested", "[[1]]", "not a list of numbers"),
      bad_shape("shape_negative", "[-1]", "not a whole number"),
      bad_shape("shape_fraction", "[1.0]", "not a whole number"),
      bad_shape("shape_beyond_64_bits", "[18446744073709551616]", "not a whole number"),
      bad_shape("shape_product_overflows", "[4294967296,4294967296]", "overflows"),
      bad_shape(
          "shape_of_65_dimensions",
          [] {
            std::string ones = "[1";
            for (int i = 0; i < 64; ++i)
              ones += ",1";
            return ones + "]";
          }(),
          "more than 64 dimensions"),
      bad_entry("half_a_byte", R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2, "shape",
                "12 bits are not whole bytes"),
      bad_offsets("offsets_number", "0", "not a list of two numbers"),
      bad_offsets("offsets_of_one", "[0]", "missing a number"),
      bad_offsets("offsets_of_three", "[0,4,8]", "more than two"),
      bad_offsets("offsets_negative", "[-4,0]", "not a whole number"),
      bad_offsets("offsets_backwards", "[4,0]", "4 is after 0"),
      bad_offsets("offsets_past_the_end", "[4,8]", "8 passes the end of the data at 4"),
      bad_offsets("offsets_huge", "[18446744073709551612,18446744073709551615]",
                  "passes the end of the data"),
      bad_offsets("offsets_too_short", "[0,3]", "3 bytes, type and shape need 4"),
      {"entry_not_an_object", safetensors("{\"t\":1}", 0), kMalformed, 9, "tensor 't'",
       "not an object"},
      {"entry_a_list", safetensors("{\"t\":[]}", 0), kMalformed, 9, "tensor 't'", "not an object"},
      {"name_empty", safetensors("{\"\":{}}", 0), kMalformed, 9, "name", "empty"},
      {"name_too_long", safetensors("{\"" + std::string(1025, 'n') + "\":{}}", 0), kMalformed, 9,
       "name", "1024 are allowed"},
      {"name_with_zero_byte", safetensors(R"({"a\u0000b":{}})", 0), kMalformed, 9, "name",
       "zero byte"},
      {"metadata_twice", safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0), kMalformed, 27,
       "__metadata__", "already used"},
      {"metadata_not_text", safetensors(R"({"__metadata__":{"a":1}})", 0), kMalformed, 9,
       "__metadata__", "not text"},
      {"metadata_nested", safetensors(R"({"__metadata__":{"a":{}}})", 0), kMalformed, 9,
       "__metadata__", "an object where it may not stand"},
      {"duplicate_tensor", two(entry("a", "U8", "[4]", 4, 8), 8), kMalformed, second,
       "tensor 'a' name", "already used, see offset 9"},
      {"overlap", two(entry("b", "U8", "[4]", 2, 6), 6), kMalformed, second, "tensor 'b' offset",
       "overlaps tensor 'a'"},
      {"hole", two(hole, 9), kMalformed, data_at(hole) + 4, "tensor 'b' data_offsets",
       "1 bytes before it belong to no tensor"},
      {"bytes_after_the_last", two(late, 9), kMalformed, data_at(late) + 8, "data",
       "1 bytes at the end belong to no tensor"},
      {"last_byte_missing", two(late, 7), kMalformed, second, "tensor 'b' data_offsets",
       "8 passes the end of the data at 7"},
      {"escaped_name_found_again", safetensors("{" + a + R"(,"q\"\\":2})", 4), kMalformed, second,
       "tensor 'q", "not an object"},
      {"too_many_experts",
       safetensors(
           "{" + entry("model.layers.0.mlp.experts.up_proj", "U8", "[70000]", 0, 70000) + "}",
           70000),
       kMalformed, 9, "shape", "70000 experts"},
  };
}

class SafetensorsCorruption : public testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsCorruption, IsRefusedNamingOffsetFieldAndReason) {
  expect_refused(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, SafetensorsCorruption, testing::ValuesIn(bad_files()),
                         bad_file_name);

TEST(SafetensorsCorruptionTest, EveryTruncationIsAnError) {
  const std::string whole = small_safetensors();
  ASSERT_TRUE(read_bytes(whole).has_value());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto read = read_bytes(whole.substr(0, bytes));
    ASSERT_FALSE(read.has_value()) << "accepted the first " << bytes << " bytes";
    EXPECT_EQ(exit_code(read.error().status), 2);
  }
}

TEST(SafetensorsCorruptionTest, NoDamagedByteBreaksThePromises) {
  const std::string whole = small_safetensors();
  for (std::size_t i = 0; i < whole.size() - 304; ++i) {
    for (int value = 0; value < 256; value += 15) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(value);
      const auto read = read_bytes(bytes);
      if (!read) continue;
      std::uint64_t end = read->data_offset;
      for (const Tensor& tensor : read->tensors) {
        ASSERT_EQ(tensor.offset, end) << "byte " << i;
        end = tensor.offset + tensor.bytes;
      }
      ASSERT_EQ(end, read->bytes) << "byte " << i;
    }
  }
}

}  // namespace
}  // namespace resid::test

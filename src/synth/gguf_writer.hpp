#pragma once
// The writing half of GGUF version 3: metadata and tensor table in memory, tensor data left to the
// caller, who may stream it. Little endian whatever the machine.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace resid {

// The tensor types that this writer knows; the values are those of the format.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8 };

// Elements and bytes of one block of `type`; a row must be a whole number of blocks.
struct GgufBlock {
  std::uint32_t elements = 1;
  std::uint32_t bytes = 0;
};
GgufBlock block_of(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::uint64_t> dims;  // fastest dimension first
  std::uint64_t offset = 0;         // from the start of the data section
  std::uint64_t bytes = 0;          // without the padding behind it
};

class GgufHeader {
 public:
  // `alignment`: a power of two; written as general.alignment unless it is the format's
  // default, 32.
  explicit GgufHeader(std::uint32_t alignment = kDefaultAlignment);

  static constexpr std::uint32_t kDefaultAlignment = 32;

  // Metadata, in the order of the calls. A key must not be added twice.
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_strings(std::string_view key, std::span<const std::string> values);

  // Tensors, in the order in which their data follows. The first dimension must be a multiple of
  // block_of(type).elements.
  void add_tensor(std::string name, GgufType type, std::vector<std::uint64_t> dims);

  std::span<const GgufTensor> tensors() const { return tensors_; }
  std::uint32_t alignment() const { return alignment_; }

  // Everything before the tensor data, padded to the alignment.
  std::string bytes() const;
  // Bytes of the data section: every tensor is padded to the alignment, the last one too.
  std::uint64_t data_bytes() const { return data_bytes_; }
  std::uint64_t padded(std::uint64_t bytes) const {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }

 private:
  void add_key(std::string_view key, std::uint32_t type);

  std::uint32_t alignment_;
  std::uint64_t keys_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::string metadata_;  // encoded
  std::vector<GgufTensor> tensors_;
};

}  // namespace resid

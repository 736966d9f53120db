#include "synth/gguf_writer.hpp"

#include <bit>
#include <type_traits>

namespace resid {
namespace {

// Metadata value types of the format.
enum : std::uint32_t {
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
};

constexpr std::uint32_t kVersion = 3;

template <class T>
void put(std::string& out, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (unsigned i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
}

void put_string(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace

GgufBlock block_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return {1, 4};
    case GgufType::f16:
      return {1, 2};
    case GgufType::q4_0:
      return {32, 18};  // half scale, 32 nibbles
    case GgufType::q8_0:
      return {32, 34};  // half scale, 32 bytes
  }
  return {1, 4};
}

GgufHeader::GgufHeader(std::uint32_t alignment) : alignment_(alignment) {
  if (alignment != kDefaultAlignment) add_u32("general.alignment", alignment);
}

void GgufHeader::add_key(std::string_view key, std::uint32_t type) {
  ++keys_;
  put_string(metadata_, key);
  put(metadata_, type);
}

void GgufHeader::add_u32(std::string_view key, std::uint32_t value) {
  add_key(key, kU32);
  put(metadata_, value);
}

void GgufHeader::add_f32(std::string_view key, float value) {
  add_key(key, kF32);
  put(metadata_, std::bit_cast<std::uint32_t>(value));
}

void GgufHeader::add_bool(std::string_view key, bool value) {
  add_key(key, kBool);
  put<std::uint8_t>(metadata_, value ? 1 : 0);
}

void GgufHeader::add_string(std::string_view key, std::string_view value) {
  add_key(key, kString);
  put_string(metadata_, value);
}

void GgufHeader::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  add_key(key, kArray);
  put<std::uint32_t>(metadata_, kI32);
  put<std::uint64_t>(metadata_, values.size());
  for (const std::int32_t v : values)
    put(metadata_, static_cast<std::uint32_t>(v));
}

void GgufHeader::add_strings(std::string_view key, std::span<const std::string> values) {
  add_key(key, kArray);
  put<std::uint32_t>(metadata_, kString);
  put<std::uint64_t>(metadata_, values.size());
  for (const std::string& v : values)
    put_string(metadata_, v);
}

void GgufHeader::add_tensor(std::string name, GgufType type, std::vector<std::uint64_t> dims) {
  GgufTensor tensor;
  std::uint64_t elements = 1;
  for (const std::uint64_t d : dims)
    elements *= d;
  const GgufBlock block = block_of(type);
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.dims = std::move(dims);
  tensor.offset = data_bytes_;
  tensor.bytes = elements / block.elements * block.bytes;
  data_bytes_ += padded(tensor.bytes);
  tensors_.push_back(std::move(tensor));
}

std::string GgufHeader::bytes() const {
  std::string out = "GGUF";
  put(out, kVersion);
  put<std::uint64_t>(out, tensors_.size());
  put<std::uint64_t>(out, keys_);
  out += metadata_;
  for (const GgufTensor& t : tensors_) {
    put_string(out, t.name);
    put(out, static_cast<std::uint32_t>(t.dims.size()));
    for (const std::uint64_t d : t.dims)
      put(out, d);
    put(out, static_cast<std::uint32_t>(t.type));
    put(out, t.offset);
  }
  out.resize(padded(out.size()), '\0');
  return out;
}

}  // namespace resid

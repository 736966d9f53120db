#pragma once
// Builds GGUF files in memory, field by field, and remembers where each field went, so that a test
// can damage exactly one of them and demand that the message names its place.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace resid::test {

inline std::string le(std::uint64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
inline std::string u32(std::uint64_t value) {
  return le(value, 4);
}
inline std::string u64(std::uint64_t value) {
  return le(value, 8);
}
inline std::string gguf_string(const std::string& text) {
  return u64(text.size()) + text;
}

// GGUF value types.
enum : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBoolean = 7,
  kText = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

class GgufBytes {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::uint64_t bytes = 0;
    std::int64_t offset = -1;  // relative to the data; -1: after the tensor before, aligned
  };

  std::uint32_t version = 3;
  std::uint64_t alignment = 32;             // used for placing; write the key too when it is not 32
  std::map<std::string, std::uint64_t> at;  // field -> offset in the file, after build()

  GgufBytes& key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys_.push_back({name, type, value});
    return *this;
  }
  GgufBytes& text(const std::string& name, const std::string& value) {
    return key(name, kText, gguf_string(value));
  }
  GgufBytes& number(const std::string& name, std::uint32_t value) {
    return key(name, kU32, u32(value));
  }
  GgufBytes& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // An F32 tensor of one dimension.
  GgufBytes& floats(const std::string& name, std::uint64_t count, std::int64_t offset = -1) {
    return tensor({name, {count}, 0, count * 4, offset});
  }

  std::string build() {
    std::string out = "GGUF" + u32(version);
    at["tensor count"] = out.size();
    out += u64(tensors_.size());
    at["key count"] = out.size();
    out += u64(keys_.size());
    for (const auto& [name, type, value] : keys_) {
      at[name] = out.size();
      out += gguf_string(name);
      at[name + " type"] = out.size();
      out += u32(type);
      at[name + " value"] = out.size();
      out += value;
    }
    std::uint64_t end = 0;
    for (const Tensor& tensor : tensors_) {
      at[tensor.name] = out.size();
      out += gguf_string(tensor.name);
      at[tensor.name + " dims"] = out.size();
      out += u32(tensor.dims.size());
      for (const std::uint64_t dim : tensor.dims)
        out += u64(dim);
      at[tensor.name + " type"] = out.size();
      out += u32(tensor.type);
      at[tensor.name + " offset"] = out.size();
      const std::uint64_t offset =
          tensor.offset >= 0 ? static_cast<std::uint64_t>(tensor.offset) : padded(end);
      out += u64(offset);
      end = std::max(end, offset + tensor.bytes);
    }
    if (!tensors_.empty()) {
      out.resize(padded(out.size()), '\0');
      at["data"] = out.size();
      // Tensors placed absurdly far out are left without their data.
      out.resize(out.size() + std::min<std::uint64_t>(end, 1 << 18), 'w');
    }
    return out;
  }

 private:
  struct Key {
    std::string name;
    std::uint32_t type;
    std::string value;
  };
  std::uint64_t padded(std::uint64_t n) const {
    return (n + alignment - 1) / alignment * alignment;
  }
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

// A small valid model: keys of every kind, two layers.
inline GgufBytes small_gguf() {
  GgufBytes out;
  out.text("general.architecture", "qwen3")
      .text("general.name", "tiny")
      .number("qwen3.block_count", 2)
      .key("a.bool", kBoolean, le(1, 1))
      .key("a.strings", kArray, u32(kText) + u64(2) + gguf_string("x") + gguf_string("yz"))
      .key("a.floats", kArray, u32(kF32) + u64(3) + std::string(12, 'f'))
      .tensor({"token_embd.weight", {64, 10}, 8, 64 / 32 * 34 * 10})
      .floats("blk.0.attn_norm.weight", 64)
      .tensor({"blk.0.attn_q.weight", {64, 64}, 2, 64 / 32 * 18 * 64})
      .floats("blk.1.attn_norm.weight", 64)
      .floats("output_norm.weight", 64);
  return out;
}

}  // namespace resid::test

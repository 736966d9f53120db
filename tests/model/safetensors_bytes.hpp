#pragma once
// Builds safetensors files in memory.

#include <cstdint>
#include <string>

#include "gguf_bytes.hpp"

namespace resid::test {

// A file with this header and `data` bytes after it.
inline std::string safetensors(const std::string& header, std::uint64_t data) {
  return u64(header.size()) + header + std::string(data, 'w');
}

inline std::string entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

inline std::string small_safetensors() {
  return safetensors("{\"__metadata__\":{\"format\":\"pt\"}," +
                         entry("model.embed_tokens.weight", "BF16", "[10,8]", 0, 160) + "," +
                         entry("model.layers.0.mlp.down_proj.weight", "F32", "[4,4]", 160, 224) +
                         "," + entry("lm_head.weight", "F8_E4M3", "[10,8]", 224, 304) + "}  ",
                     304);
}

}  // namespace resid::test

#pragma once
// The tensor types a GGUF file may name: block and block size of each, as ggml lays them out.

#include <cstdint>
#include <string_view>

namespace resid {

struct GgmlType {
  std::string_view name;    // empty: the number is not a type
  std::uint32_t block = 0;  // elements in a block; 0: a type that ggml has removed
  std::uint32_t block_bytes = 0;
};

// The type with this number. An unknown number gives a row without a name; a removed type has a
// name and no block.
GgmlType ggml_type(std::uint32_t number);

// One more than the highest known number.
std::uint32_t ggml_type_count();

}  // namespace resid

// safetensors files. The input is the header and its first byte a number of data bytes, so that
// the length in front is always right and the effort goes into the JSON.

#include <vector>

#include "model_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint64_t header = size - 1;
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 8; ++i)
    bytes.push_back(static_cast<std::uint8_t>(header >> (8 * i)));
  bytes.insert(bytes.end(), data + 1, data + size);
  bytes.resize(bytes.size() + data[0] * 16U);
  resid::fuzz::check_file(bytes.data(), bytes.size());
  return 0;
}

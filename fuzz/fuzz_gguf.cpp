// GGUF files. The magic is put there, so that no effort goes into finding it.

#include <cstring>
#include <vector>

#include "model_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  if (bytes.size() >= 4) std::memcpy(bytes.data(), "GGUF", 4);
  resid::fuzz::check_file(bytes.data(), bytes.size());
  return 0;
}

// Tables of tensors of any shape: four bytes place one tensor after the one before.

#include <algorithm>
#include <string>

#include "model_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace resid;
  if (size < 3) return 0;
  ModelFile file;
  file.path = "input";
  file.data_offset = data[0] * 97ULL;
  const std::uint64_t chunk_max = (data[1] % 32 + 1) * kPage;
  const std::uint64_t tail = data[2] * 61ULL;
  std::uint64_t end = file.data_offset;
  for (std::size_t i = 3; i + 4 <= size; i += 4) {
    Tensor tensor;
    tensor.name = std::to_string(i);
    tensor.role = static_cast<Role>(data[i] % (static_cast<int>(Role::output) + 1));
    tensor.layer = data[i] / 32 - 1;
    if (data[i + 1] & 1) end = page_up(end);
    if (data[i + 1] & 2) end += data[i + 1] * 33ULL;
    tensor.offset = end;
    tensor.bytes = data[i + 2] * 129ULL;
    if (data[i + 3] & 1) tensor.bytes = page_up(tensor.bytes);
    if (data[i + 3] & 2) {
      tensor.experts = data[i + 3] / 4U + 1;
      tensor.bytes *= tensor.experts;
    }
    end += tensor.bytes;
    file.tensors.push_back(tensor);
  }
  file.bytes = std::max<std::uint64_t>(end + tail, 1);
  fuzz::check_plan(file, chunk_max);
  return 0;
}

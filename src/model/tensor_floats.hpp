#pragma once
// The numbers of a small tensor, for whoever has to compute with it: routers and norms.

#include <vector>

#include "base/status.hpp"
#include "model/model.hpp"

namespace resid {

// All of the tensor's elements, in the order in which they are stored. `fd` is a descriptor of the
// tensor's file, read with pread. Statuses: unsupported (a type other than F32, F16 and BF16),
// read_failed, out_of_memory.
Result<std::vector<float>> read_floats(int fd, const Tensor& tensor);

}  // namespace resid

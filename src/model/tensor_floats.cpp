#include "model/tensor_floats.hpp"

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <new>

#include "base/sys.hpp"

namespace resid {
namespace {

// IEEE 754 binary16.
float from_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31;
  const std::uint32_t exponent = half >> 10 & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -small : small;
}

// The upper half of a binary32.
float from_brain(std::uint16_t brain) {
  return std::bit_cast<float>(std::uint32_t{brain} << 16);
}

std::uint64_t element_bytes(const std::string& type) {
  if (type == "F32") return 4;
  return type == "F16" || type == "BF16" ? 2 : 0;
}

}  // namespace

Result<std::vector<float>> read_floats(int fd, const Tensor& tensor) {
  const std::uint64_t size = element_bytes(tensor.type);
  if (size == 0) {
    return fail(Status::unsupported, tensor.name, "it is of type " + tensor.type,
                "only F32, F16 and BF16 are computed with");
  }
  // Its dimensions were checked against its bytes when the file was read.
  const std::uint64_t count = tensor.bytes / size;
  try {
    std::vector<char> raw(count * size);
    for (std::uint64_t done = 0; done < raw.size();) {
      const auto n = sys::pread(fd, raw.data() + done, raw.size() - done, tensor.offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return fail_errno(Status::read_failed, tensor.name, n < 0 ? errno : EIO);
      done += static_cast<std::uint64_t>(n);
    }
    std::vector<float> out(count);
    if (size == 4) {
      std::memcpy(out.data(), raw.data(), raw.size());
      return out;
    }
    const bool half = tensor.type == "F16";
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, raw.data() + 2 * i, sizeof bits);
      out[i] = half ? from_half(bits) : from_brain(bits);
    }
    return out;
  } catch (const std::bad_alloc&) {
    return fail(Status::out_of_memory, tensor.name, "no memory for its numbers");
  }
}

}  // namespace resid

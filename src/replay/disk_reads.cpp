#include "replay/disk_reads.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace resid {

DiskReads::DiskReads()
    : io_(::open("/proc/self/io", O_RDONLY | O_CLOEXEC)),  // every read of it is a fresh answer
      base_(total()) {}

std::optional<std::uint64_t> DiskReads::bytes() const {
  const auto now = total();
  if (!now || !base_) return std::nullopt;
  return *now - *base_;
}

std::optional<std::uint64_t> DiskReads::total() const {
  constexpr const char* kField = "\nread_bytes: ";
  std::array<char, 512> text{};
  if (!io_ || ::pread(io_.get(), text.data(), text.size() - 1, 0) <= 0) return std::nullopt;
  const char* at = std::strstr(text.data(), kField);
  if (at == nullptr) return std::nullopt;
  return std::strtoull(at + std::strlen(kField), nullptr, 10);
}

}  // namespace resid

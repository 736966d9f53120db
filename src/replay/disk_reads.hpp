#pragma once
// Bytes that this process made the kernel read from disks, read-ahead and direct reads included:
// read_bytes of /proc/self/io (CONFIG_TASK_IO_ACCOUNTING, in every distribution's kernel).

#include <cstdint>
#include <optional>

#include "base/fd.hpp"

namespace resid {

class DiskReads {
 public:
  DiskReads();
  // Since this object was made; nothing where the kernel does not count.
  std::optional<std::uint64_t> bytes() const;

 private:
  std::optional<std::uint64_t> total() const;
  Fd io_;
  std::optional<std::uint64_t> base_;
};

}  // namespace resid

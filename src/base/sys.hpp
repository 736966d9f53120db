#pragma once
// System calls that must not pass through libc's symbols: the preload library interposes those, and
// the pager may run inside it. Return values and errno are as in libc.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace resid::sys {

inline void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
                  std::uint64_t offset) {
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
inline int munmap(void* address, std::size_t bytes) {
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}
inline int madvise(void* address, std::size_t bytes, int advice) {
  return static_cast<int>(::syscall(SYS_madvise, address, bytes, advice));
}
inline int mlock2(const void* address, std::size_t bytes, unsigned flags) {
  return static_cast<int>(::syscall(SYS_mlock2, address, bytes, flags));
}
inline ssize_t write(int fd, const void* data, std::size_t bytes) {
  return ::syscall(SYS_write, fd, data, bytes);
}
inline ssize_t pread(int fd, void* data, std::size_t bytes, std::uint64_t offset) {
  return ::syscall(SYS_pread64, fd, data, bytes, offset);
}
inline ssize_t pwrite(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
}
inline int fadvise(int fd, std::uint64_t offset, std::uint64_t bytes, int advice) {
  return static_cast<int>(::syscall(SYS_fadvise64, fd, offset, bytes, advice));
}

}  // namespace resid::sys

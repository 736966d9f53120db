#include "preload/real.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/sys.hpp"

namespace resid::preload {
namespace {

void* raw_mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  return sys::mmap(address, bytes, protection, flags, fd, static_cast<std::uint64_t>(offset));
}
void* raw_mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, void* address) {
  return reinterpret_cast<void*>(::syscall(SYS_mremap, old, old_bytes, bytes, flags, address));
}
int raw_mprotect(void* address, std::size_t bytes, int protection) {
  return static_cast<int>(::syscall(SYS_mprotect, address, bytes, protection));
}
int raw_posix_madvise(void* address, std::size_t bytes, int advice) {
  // As glibc does: DONTNEED is destructive on Linux and only a hint in POSIX.
  if (advice == POSIX_MADV_DONTNEED) return 0;
  const int saved = errno;
  const int error = sys::madvise(address, bytes, advice) == 0 ? 0 : errno;
  errno = saved;
  return error;
}
int raw_mlock(const void* address, std::size_t bytes) {
  return sys::mlock2(address, bytes, 0);
}
int raw_munlock(const void* address, std::size_t bytes) {
  return static_cast<int>(::syscall(SYS_munlock, address, bytes));
}
int raw_mlockall(int flags) {
  return static_cast<int>(::syscall(SYS_mlockall, flags));
}
int raw_munlockall() {
  return static_cast<int>(::syscall(SYS_munlockall));
}
int raw_posix_fadvise(int fd, off_t offset, off_t bytes, int advice) {
  const int saved = errno;
  const int error = sys::fadvise(fd, static_cast<std::uint64_t>(offset),
                                 static_cast<std::uint64_t>(bytes), advice) == 0
                        ? 0
                        : errno;
  errno = saved;
  return error;
}
ssize_t raw_readahead(int fd, off_t offset, std::size_t bytes) {
  return ::syscall(SYS_readahead, fd, offset, bytes);
}
ssize_t raw_pwrite(int fd, const void* data, std::size_t bytes, off_t offset) {
  return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
}
ssize_t raw_writev(int fd, const iovec* parts, int count) {
  return ::syscall(SYS_writev, fd, parts, count);
}
ssize_t raw_pwritev(int fd, const iovec* parts, int count, off_t offset) {
  return ::syscall(SYS_pwritev, fd, parts, count, offset, 0L);  // the high half is for 32-bit
}
ssize_t raw_sendto(int fd, const void* data, std::size_t bytes, int flags, const sockaddr* to,
                   socklen_t to_bytes) {
  return ::syscall(SYS_sendto, fd, data, bytes, flags, to, to_bytes);
}
ssize_t raw_send(int fd, const void* data, std::size_t bytes, int flags) {
  return raw_sendto(fd, data, bytes, flags, nullptr, 0);
}
ssize_t raw_sendmsg(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

template <class F>
void take(F& entry, const char* name) {
  if (void* found = ::dlsym(RTLD_NEXT, name)) entry = reinterpret_cast<F>(found);
}

// stdio has no system call to fall back on; both symbols always exist in libc.
std::size_t first_fwrite(const void* data, std::size_t size, std::size_t n, std::FILE* stream) {
  take(real.fwrite, "fwrite");
  return real.fwrite == first_fwrite ? 0 : real.fwrite(data, size, n, stream);
}
std::size_t first_fwrite_unlocked(const void* data, std::size_t size, std::size_t n,
                                  std::FILE* stream) {
  take(real.fwrite_unlocked, "fwrite_unlocked");
  return real.fwrite_unlocked == first_fwrite_unlocked
             ? 0
             : real.fwrite_unlocked(data, size, n, stream);
}

}  // namespace

constinit Real real = {
    .mmap = raw_mmap,
    .munmap = sys::munmap,
    .mremap = raw_mremap,
    .mprotect = raw_mprotect,
    .madvise = sys::madvise,
    .posix_madvise = raw_posix_madvise,
    .mlock = raw_mlock,
    .mlock2 = sys::mlock2,
    .munlock = raw_munlock,
    .mlockall = raw_mlockall,
    .munlockall = raw_munlockall,
    .posix_fadvise = raw_posix_fadvise,
    .readahead = raw_readahead,
    .write = sys::write,
    .pwrite = raw_pwrite,
    .writev = raw_writev,
    .pwritev = raw_pwritev,
    .send = raw_send,
    .sendto = raw_sendto,
    .sendmsg = raw_sendmsg,
    .fwrite = first_fwrite,
    .fwrite_unlocked = first_fwrite_unlocked,
};

void resolve_real() {
  take(real.mmap, "mmap");
  take(real.munmap, "munmap");
  take(real.mremap, "mremap");
  take(real.mprotect, "mprotect");
  take(real.madvise, "madvise");
  take(real.posix_madvise, "posix_madvise");
  take(real.mlock, "mlock");
  take(real.mlock2, "mlock2");
  take(real.munlock, "munlock");
  take(real.mlockall, "mlockall");
  take(real.munlockall, "munlockall");
  take(real.posix_fadvise, "posix_fadvise");
  take(real.readahead, "readahead");
  take(real.write, "write");
  take(real.pwrite, "pwrite");
  take(real.writev, "writev");
  take(real.pwritev, "pwritev");
  take(real.send, "send");
  take(real.sendto, "sendto");
  take(real.sendmsg, "sendmsg");
  take(real.fwrite, "fwrite");
  take(real.fwrite_unlocked, "fwrite_unlocked");
}

}  // namespace resid::preload

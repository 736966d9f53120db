// write, send and kin. They differ from libc's only for a buffer inside an app view under a
// user-mode-only userfaultfd; see bounce.hpp.

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "preload/bounce.hpp"
#include "preload/export.hpp"
#include "preload/real.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

bool needs_copy(const void* data, std::size_t bytes) {
  const Pager* pager = Session::pager();
  return pager != nullptr && bytes != 0 && !pager->kernel_faults_handled() &&
         pager->in_view(data, bytes) && !Inside::active();
}

bool needs_copy(const iovec* parts, int count) {
  const Pager* pager = Session::pager();
  if (pager == nullptr || pager->kernel_faults_handled() || parts == nullptr) return false;
  for (int i = 0; i < count; ++i) {
    if (needs_copy(parts[i].iov_base, parts[i].iov_len)) return true;
  }
  return false;
}

// Sockets other than streams keep message boundaries: a message is sent whole or not at all.
bool keeps_boundaries(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  const int saved = errno;
  const bool socket = ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  errno = saved;
  return socket && type != SOCK_STREAM;
}

ssize_t write_parts(int fd, const iovec* parts, int count, off_t offset, bool positioned) {
  std::size_t total = 0;
  if (!total_of(parts, count, total)) {
    errno = EINVAL;
    return -1;
  }
  const bool whole = !positioned && keeps_boundaries(fd);
  return put_through(
      parts, count, total, whole, [&](const char* data, std::size_t bytes, std::size_t done) {
        return positioned ? real.pwrite(fd, data, bytes, offset + static_cast<off_t>(done))
                          : real.write(fd, data, bytes);
      });
}

ssize_t write_one(int fd, const void* data, std::size_t bytes, off_t offset, bool positioned) {
  const iovec part{const_cast<void*>(data), bytes};
  return write_parts(fd, &part, 1, offset, positioned);
}

std::size_t put_items(std::size_t (*put)(const void*, std::size_t, std::size_t, std::FILE*),
                      const void* data, std::size_t size, std::size_t n, std::FILE* stream) {
  std::size_t total = 0;
  if (__builtin_mul_overflow(size, n, &total)) return 0;
  const iovec part{const_cast<void*>(data), total};
  const ssize_t done =
      put_through(&part, 1, total, false, [&](const char* at, std::size_t bytes, std::size_t) {
        return static_cast<ssize_t>(put(at, 1, bytes, stream));
      });
  return done <= 0 ? 0 : static_cast<std::size_t>(done) / size;
}

ssize_t write_at(int fd, const void* data, std::size_t bytes, off_t offset) {
  if (!needs_copy(data, bytes)) return real.pwrite(fd, data, bytes, offset);
  return write_one(fd, data, bytes, offset, true);
}

ssize_t write_parts_at(int fd, const iovec* parts, int count, off_t offset) {
  if (!needs_copy(parts, count)) return real.pwritev(fd, parts, count, offset);
  return write_parts(fd, parts, count, offset, true);
}

}  // namespace
}  // namespace resid::preload

using namespace resid::preload;

RESID_EXPORT ssize_t write(int fd, const void* data, std::size_t bytes) {
  if (!needs_copy(data, bytes)) return real.write(fd, data, bytes);
  return write_one(fd, data, bytes, 0, false);
}

RESID_EXPORT ssize_t pwrite(int fd, const void* data, std::size_t bytes, off_t offset) {
  return write_at(fd, data, bytes, offset);
}
RESID_EXPORT ssize_t pwrite64(int fd, const void* data, std::size_t bytes, off64_t offset) {
  return write_at(fd, data, bytes, offset);
}

RESID_EXPORT ssize_t writev(int fd, const iovec* parts, int count) {
  if (!needs_copy(parts, count)) return real.writev(fd, parts, count);
  return write_parts(fd, parts, count, 0, false);
}

RESID_EXPORT ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  return write_parts_at(fd, parts, count, offset);
}
RESID_EXPORT ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) {
  return write_parts_at(fd, parts, count, offset);
}

RESID_EXPORT ssize_t sendto(int fd, const void* data, std::size_t bytes, int flags,
                            const sockaddr* to, socklen_t to_bytes) {
  if (!needs_copy(data, bytes)) return real.sendto(fd, data, bytes, flags, to, to_bytes);
  const iovec part{const_cast<void*>(data), bytes};
  return put_through(&part, 1, bytes, keeps_boundaries(fd),
                     [&](const char* at, std::size_t n, std::size_t) {
                       return real.sendto(fd, at, n, flags, to, to_bytes);
                     });
}

RESID_EXPORT ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  if (!needs_copy(data, bytes)) return real.send(fd, data, bytes, flags);
  return ::sendto(fd, data, bytes, flags, nullptr, 0);
}

RESID_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message == nullptr || message->msg_iovlen > 1024 ||
      !needs_copy(message->msg_iov, static_cast<int>(message->msg_iovlen))) {
    return real.sendmsg(fd, message, flags);
  }
  std::size_t total = 0;
  if (!total_of(message->msg_iov, static_cast<int>(message->msg_iovlen), total)) {
    errno = EMSGSIZE;
    return -1;
  }
  return put_through(message->msg_iov, static_cast<int>(message->msg_iovlen), total,
                     keeps_boundaries(fd), [&](char* at, std::size_t n, std::size_t done) {
                       iovec part{at, n};
                       msghdr piece = *message;
                       piece.msg_iov = &part;
                       piece.msg_iovlen = 1;
                       if (done != 0) {  // descriptors and credentials travel once
                         piece.msg_control = nullptr;
                         piece.msg_controllen = 0;
                       }
                       return real.sendmsg(fd, &piece, flags);
                     });
}

RESID_EXPORT std::size_t fwrite(const void* data, std::size_t size, std::size_t n,
                                std::FILE* stream) {
  if (!needs_copy(data, size * n)) return real.fwrite(data, size, n, stream);
  // One call is one unit among threads (stdio's own lock is recursive).
  ::flockfile(stream);
  const std::size_t done = put_items(real.fwrite, data, size, n, stream);
  ::funlockfile(stream);
  return done;
}

RESID_EXPORT std::size_t fwrite_unlocked(const void* data, std::size_t size, std::size_t n,
                                         std::FILE* stream) {
  if (!needs_copy(data, size * n)) return real.fwrite_unlocked(data, size, n, stream);
  return put_items(real.fwrite_unlocked, data, size, n, stream);
}

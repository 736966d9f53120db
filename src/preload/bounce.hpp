#pragma once
// System calls that read weights, where the kernel may not fault on our views.
//
// With a user-mode-only userfaultfd (the route open to every user since kernel 5.11) a system call
// that meets an absent page of a view fails with EFAULT. A page that is resident in the memory file
// may still be absent from this view's page table (another view, a tripwire), so pinning alone does
// not help. The bytes are therefore copied by user-mode code, whose faults are served, and the
// system call gets the copy.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace resid::preload {

// Anonymous memory from the kernel, not malloc: write() is async-signal-safe and stays so.
class Bounce {
 public:
  explicit Bounce(std::size_t bytes);
  ~Bounce();
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  explicit operator bool() const { return data_ != nullptr; }
  char* data() { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Walks a list of buffers, copying them out in order.
class Gather {
 public:
  Gather(const iovec* parts, int count) : parts_(parts), count_(count) {}
  // Copies up to `room` bytes to `into`; returns how many. 0 at the end.
  std::size_t take(char* into, std::size_t room);

 private:
  const iovec* parts_;
  int count_;
  int at_ = 0;
  std::size_t within_ = 0;
};

// The largest single copy: one call up to this size stays one system call, as atomic as before.
inline constexpr std::size_t kBounceMax = 4 * 1024 * 1024;

// Sends all buffers through a copy, piece by piece. `put(data, bytes, done)` does one system call
// for `bytes` at stream position `done` and returns as write(2). `whole` forbids cutting: for
// sockets that keep message boundaries. Returns as write(2): the bytes taken, short when `put` came
// back short, -1 with errno when nothing was taken.
template <class Put>
ssize_t put_through(const iovec* parts, int count, std::size_t total, bool whole, Put&& put);

// Sum of the lengths; false on overflow or a count that the kernel would refuse.
bool total_of(const iovec* parts, int count, std::size_t& total);

}  // namespace resid::preload

#include <algorithm>
#include <cerrno>

namespace resid::preload {

template <class Put>
ssize_t put_through(const iovec* parts, int count, std::size_t total, bool whole, Put&& put) {
  Bounce bounce(std::max<std::size_t>(whole ? total : std::min(total, kBounceMax), 1));
  if (!bounce) {
    errno = ENOMEM;
    return -1;
  }
  Gather gather(parts, count);
  std::size_t done = 0;
  while (true) {
    const std::size_t n = gather.take(bounce.data(), bounce.bytes());
    if (n == 0 && (done != 0 || total != 0)) break;
    const ssize_t put_bytes = put(bounce.data(), n, done);
    if (put_bytes < 0) return done == 0 ? -1 : static_cast<ssize_t>(done);
    done += static_cast<std::size_t>(put_bytes);
    if (static_cast<std::size_t>(put_bytes) < n || n == 0) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace resid::preload

#pragma once
// A store: the model file as bytes on a disk. Opened for direct reads where the file system can,
// identified so that a changed file is an error and never data (I-16).

#include <atomic>
#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid {

struct StoreIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  bool operator==(const StoreIdentity&) const = default;
};

// Identity of the file behind `fd`; `error` receives errno when it cannot be had.
bool store_identity(int fd, StoreIdentity& identity, int& error);

// How a read ended. `error` is an errno value for read_failed, `offset` the byte that could not be
// had.
struct ReadOutcome {
  Status status = Status::ok;
  int error = 0;
  std::uint64_t offset = 0;
  bool retried = false;
};

// A hook for fault injection: called before every read attempt; a value other than 0 makes that
// attempt fail with this errno, kShortRead makes it end early.
inline constexpr int kShortRead = -1;
using ReadFaultHook = int (*)(std::uint64_t offset, std::uint64_t bytes, bool direct);
extern std::atomic<ReadFaultHook> g_read_fault_hook;
// What the hook says; 0 without one.
int injected_read_fault(std::uint64_t offset, std::uint64_t bytes, bool direct);

// What of a range can be had.
struct ReadExtent {
  std::uint64_t bytes = 0;   // that the file has
  std::uint64_t direct = 0;  // the first of them, which direct reads can have
};

class Store {
 public:
  // Makes its own descriptors from `fd`, through /proc/self/fd so that a renamed or deleted path
  // does not matter; direct I/O where the file system allows it, else buffered reads whose pages
  // are dropped from the cache behind us.
  static Result<Store> open(int fd, std::string path);

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return identity_.bytes; }
  const StoreIdentity& identity() const { return identity_; }
  bool direct() const { return static_cast<bool>(direct_); }
  // Offset and length granularity of direct reads; 0 when there are none.
  std::uint32_t direct_alignment() const { return offset_align_; }

  // Fills `into` with [offset, offset + bytes) of the file, where the range may reach past its end
  // (those bytes are left alone). `offset` and `into` are page aligned. Checks the identity before
  // and after. Thread safe; allocates nothing. A failing or short direct read is tried once more
  // buffered.
  ReadOutcome read(std::uint64_t offset, std::uint64_t bytes, void* into) const;

  // ok, or store_changed.
  Status check_identity() const;

  // For those who issue the reads themselves (Reader). `offset` is page aligned.
  ReadExtent extent(std::uint64_t offset, std::uint64_t bytes) const;
  // A read of `bytes` has come `done` bytes far and now brought `got` more: moves `done` to where
  // the next attempt begins; false when there is no point in one. A short direct read may end off
  // the alignment that the device wants; what is left is read again from the last aligned byte, as
  // long as that gets on: a file that was cut off meanwhile ends at the same byte every time.
  bool advance(std::uint64_t got, std::uint64_t bytes, bool direct, std::uint64_t& done) const;
  // Buffered pages would be kept by the kernel beside our own copy and charged to the same group.
  void drop_pages(std::uint64_t offset, std::uint64_t bytes) const;

  // The buffered descriptor, for mapping the plain file.
  int plain_fd() const { return plain_.get(); }
  // -1 when there are no direct reads.
  int direct_fd() const { return direct_.get(); }

 private:
  Store() = default;
  ReadOutcome read_all(int fd, bool direct, std::uint64_t offset, std::uint64_t bytes,
                       std::uint8_t* into) const;
  std::string path_;
  StoreIdentity identity_;
  Fd plain_;
  Fd direct_;
  std::uint32_t offset_align_ = 0;
};

}  // namespace resid

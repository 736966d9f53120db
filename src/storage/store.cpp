#include "storage/store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid {

std::atomic<ReadFaultHook> g_read_fault_hook{nullptr};

int injected_read_fault(std::uint64_t offset, std::uint64_t bytes, bool direct) {
  const ReadFaultHook hook = g_read_fault_hook.load(std::memory_order_acquire);
  return hook == nullptr ? 0 : hook(offset, bytes, direct);
}

namespace {

// statx with STATX_DIOALIGN (kernel 6.1, commit 825cf206aed5); Debian 12's headers may lack it.
constexpr unsigned kStatxDioAlign = 0x2000U;
struct DioAlign {
  bool known = false;
  std::uint32_t memory = 0;
  std::uint32_t offset = 0;
};

DioAlign dio_align(int fd) {
  // struct statx is 256 bytes by ABI; the two fields stand at byte 152 (include/uapi/linux/stat.h).
  alignas(8) unsigned char raw[256] = {};
  DioAlign align;
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDioAlign, raw) != 0) return align;
  std::uint32_t mask = 0;
  std::memcpy(&mask, raw, sizeof mask);
  if ((mask & kStatxDioAlign) == 0) return align;
  align.known = true;
  std::memcpy(&align.memory, raw + 152, sizeof align.memory);
  std::memcpy(&align.offset, raw + 156, sizeof align.offset);
  return align;
}

std::int64_t nanoseconds(const timespec& ts) {
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace

bool store_identity(int fd, StoreIdentity& identity, int& error) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    error = errno;
    return false;
  }
  identity.device = st.st_dev;
  identity.inode = st.st_ino;
  identity.bytes = static_cast<std::uint64_t>(st.st_size);
  identity.mtime_ns = nanoseconds(st.st_mtim);
  identity.ctime_ns = nanoseconds(st.st_ctim);
  return true;
}

Result<Store> Store::open(int fd, std::string path) {
  Store store;
  store.path_ = std::move(path);
  int error = 0;
  if (!store_identity(fd, store.identity_, error)) {
    return fail_errno(Status::unreadable, store.path_, error);
  }
  if (store.identity_.bytes == 0) {
    return fail(Status::empty_file, store.path_, "the file has no bytes");
  }
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  store.plain_.reset(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
  // Without /proc a duplicate serves: we only use pread, which ignores the shared file position.
  if (!store.plain_) store.plain_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!store.plain_) return fail_errno(Status::unreadable, store.path_, errno);

  const DioAlign align = dio_align(store.plain_.get());
  // Chunks are page aligned in file and memory; a device that wants more is read buffered.
  const bool usable = !align.known || (align.offset != 0 && align.offset <= kPage &&
                                       align.memory != 0 && align.memory <= kPage);
  if (usable) {
    store.direct_.reset(::open(link.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    store.offset_align_ = align.known ? align.offset : static_cast<std::uint32_t>(kPage);
  }
  if (!store.direct_) store.offset_align_ = 0;
  return store;
}

Status Store::check_identity() const {
  StoreIdentity now;
  int error = 0;
  if (!store_identity(plain_.get(), now, error)) return Status::store_changed;
  return now == identity_ ? Status::ok : Status::store_changed;
}

ReadExtent Store::extent(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset >= identity_.bytes) return {};
  ReadExtent extent;
  extent.bytes = std::min(bytes, identity_.bytes - offset);
  // The last bytes of a file that is no multiple of the alignment cannot be had directly.
  if (direct_) extent.direct = extent.bytes - extent.bytes % offset_align_;
  return extent;
}

bool Store::advance(std::uint64_t got, std::uint64_t bytes, bool direct,
                    std::uint64_t& done) const {
  done += got;
  if (got == 0) return false;
  if (!direct || done >= bytes) return true;
  const std::uint64_t over = done % offset_align_;
  if (over >= got) return false;
  done -= over;
  return true;
}

void Store::drop_pages(std::uint64_t offset, std::uint64_t bytes) const {
  sys::fadvise(plain_.get(), offset, bytes, POSIX_FADV_DONTNEED);
}

ReadOutcome Store::read_all(int fd, bool direct, std::uint64_t offset, std::uint64_t bytes,
                            std::uint8_t* into) const {
  std::uint64_t done = 0;
  while (done < bytes) {
    const std::uint64_t want = bytes - done;
    const int injected = injected_read_fault(offset + done, want, direct);
    if (injected > 0) return {Status::read_failed, injected, offset + done, false};
    if (injected == kShortRead) return {Status::read_failed, 0, offset + done, false};
    const ssize_t n = sys::pread(fd, into + done, want, offset + done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return {Status::read_failed, errno, offset + done, false};
    }
    if (!advance(static_cast<std::uint64_t>(n), bytes, direct, done)) {
      return {Status::read_failed, 0, offset + done, false};
    }
  }
  return {};
}

ReadOutcome Store::read(std::uint64_t offset, std::uint64_t bytes, void* into) const {
  if (const Status status = check_identity(); status != Status::ok) {
    return {status, 0, offset, false};
  }
  const auto [wanted, head] = extent(offset, bytes);
  if (wanted == 0) return {};
  auto* out = static_cast<std::uint8_t*>(into);
  bool retried = false;
  if (head != 0) {
    ReadOutcome outcome = read_all(direct_.get(), true, offset, head, out);
    if (outcome.status != Status::ok) {
      retried = true;
      outcome = read_all(plain_.get(), false, offset, head, out);
      if (outcome.status != Status::ok) {
        outcome.retried = true;
        if (check_identity() != Status::ok) outcome.status = Status::store_changed;
        return outcome;
      }
    }
  }
  if (head < wanted) {
    ReadOutcome outcome = read_all(plain_.get(), false, offset + head, wanted - head, out + head);
    if (outcome.status != Status::ok) {
      outcome.retried = retried;
      if (check_identity() != Status::ok) outcome.status = Status::store_changed;
      return outcome;
    }
  }
  if (!direct_ || retried) drop_pages(offset, wanted);
  // Once more (I-16): a write during the read has set the times before it changed the first byte.
  if (const Status status = check_identity(); status != Status::ok) {
    return {status, 0, offset, retried};
  }
  return {Status::ok, 0, 0, retried};
}

}  // namespace resid

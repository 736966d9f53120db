#include "storage/page_cache.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid {
namespace {

constexpr long kCachestat = 451;  // SYS_cachestat, kernel 6.5; newer than Debian 12's headers

struct CachestatRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // 0: to the end of the file
};
struct Cachestat {
  std::uint64_t cached = 0;  // pages
  std::uint64_t dirty = 0;
  std::uint64_t writeback = 0;
  std::uint64_t evicted = 0;
  std::uint64_t recently_evicted = 0;
};

bool by_cachestat(int fd, std::uint64_t& bytes) {
  CachestatRange range;
  Cachestat stat;
  if (::syscall(kCachestat, fd, &range, &stat, 0) != 0) return false;
  bytes = stat.cached * kPage;
  return true;
}

// In windows, so that the vector of answers stays small. A mapping alone brings no page in.
bool by_mincore(int fd, std::uint64_t file_bytes, std::uint64_t& bytes) {
  constexpr std::uint64_t kWindow = 256 * 1024 * 1024;
  std::vector<unsigned char> pages(std::min(kWindow, page_up(file_bytes)) / kPage);
  bytes = 0;
  for (std::uint64_t offset = 0; offset < file_bytes; offset += kWindow) {
    const std::uint64_t length = std::min(kWindow, page_up(file_bytes - offset));
    void* view = sys::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, offset);
    if (view == MAP_FAILED) return false;
    const int result = ::mincore(view, length, pages.data());
    sys::munmap(view, length);
    if (result != 0) return false;
    for (std::uint64_t i = 0; i < length / kPage; ++i)
      bytes += (pages[i] & 1U) * kPage;
  }
  return true;
}

// Whether mincore's answer means anything: since kernel 5.2 (commit 134fca9063ad) it says that
// every page is there to whoever is neither the owner nor may write the file.
bool mincore_tells(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return false;
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return st.st_uid == ::geteuid() || ::geteuid() == 0 || ::access(link.c_str(), W_OK) == 0;
}

}  // namespace

std::string_view name(CacheSource source) {
  return source == CacheSource::cachestat ? "cachestat" : "mincore";
}

Result<CachedBytes> cached_bytes(int fd, std::uint64_t file_bytes, const std::string& path) {
  CachedBytes out;
  if (by_cachestat(fd, out.bytes)) return out;
  out.source = CacheSource::mincore;
  if (!mincore_tells(fd)) {
    return fail(Status::cache_unknown, path,
                "the kernel tells what is cached of it only to its owner and who may write it");
  }
  if (by_mincore(fd, file_bytes, out.bytes)) return out;
  return fail_errno(Status::cache_unknown, "asking what is cached of " + path, errno);
}

Result<CachedBytes> drop_cached(int fd, std::uint64_t file_bytes, const std::string& path) {
  constexpr int kTries = 20;
  constexpr timespec kPause{0, 50'000'000};
  ::fdatasync(fd);  // a dirty page cannot be dropped; a descriptor for reading may do this too
  for (int i = 0;; ++i) {
    sys::fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    auto left = cached_bytes(fd, file_bytes, path);
    if (!left || left->bytes == 0 || i == kTries) return left;
    ::nanosleep(&kPause, nullptr);
  }
}

}  // namespace resid

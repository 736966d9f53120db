#include "sweep/page_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/fd.hpp"
#include "base/units.hpp"

namespace resid::sweep {
namespace {

constexpr int kWarmRounds = 4;
constexpr std::size_t kBlock = 4U << 20;

// Calls act(fd, bytes, path) for every file and adds up what it says is cached.
template <class Act>
Result<CachedBytes> for_all(const std::vector<std::string>& files, Act act) {
  CachedBytes sum;
  for (const std::string& path : files) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return fail_errno(Status::unreadable, path, errno);
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
    Result<CachedBytes> one = act(fd.get(), static_cast<std::uint64_t>(st.st_size), path);
    if (!one) return one;
    sum.bytes += one->bytes;
    sum.source = one->source;
  }
  return sum;
}

}  // namespace

Result<CachedBytes> cached(const std::vector<std::string>& files) {
  return for_all(files, cached_bytes);
}

Result<CachedBytes> make_cold(const std::vector<std::string>& files) {
  auto left = for_all(files, drop_cached);
  if (left && left->bytes > kCold) {
    return fail(Status::system, files.front(),
                format_bytes(left->bytes) + " of the model stay in the page cache",
                "end what maps or reads it, then try again");
  }
  return left;
}

Result<CachedBytes> make_warm(const std::vector<std::string>& files) {
  const auto buffer = std::make_unique<char[]>(kBlock);
  return for_all(files, [&](int fd, std::uint64_t bytes, const std::string& path) {
    // A kernel that runs DAMON drops what nobody has used for a while, even as it is read here.
    for (int round = 0;; ++round) {
      for (std::uint64_t at = 0; at < bytes;) {
        const ssize_t n = ::pread(fd, buffer.get(), kBlock, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Result<CachedBytes>(fail_errno(Status::read_failed, path, errno));
        if (n == 0) break;
        at += static_cast<std::uint64_t>(n);
      }
      auto found = cached_bytes(fd, bytes, path);
      if (!found || found->bytes >= bytes || round == kWarmRounds) return found;
    }
  });
}

}  // namespace resid::sweep

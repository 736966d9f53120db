#include "replay/generated_store.hpp"

#include <fcntl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "base/units.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

void fill(std::vector<std::uint64_t>& words, std::uint64_t first) {
  std::uint64_t word = generated_word(first);
  for (std::uint64_t& w : words) {
    w = word;
    word += kWordStep;
  }
}

Result<void> write_all(int fd, const std::string& path, const std::uint64_t* words,
                       std::uint64_t bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(words);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd, data + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(Status::write_failed, path, n < 0 ? errno : ENOSPC);
    done += static_cast<std::uint64_t>(n);
  }
  return {};
}

// Removes the half-made file unless it got its name.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {}
  ~PartFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace

Result<void> make_store(const std::string& path, std::uint64_t bytes,
                        const MakeStoreOptions& options) {
  if (bytes == 0 || bytes % kPage != 0) {
    return fail(Status::usage, "store size", fmt::format("{} bytes are no whole pages", bytes),
                "give a multiple of 4 KiB");
  }
  if (::access(path.c_str(), F_OK) == 0) {
    return fail(Status::usage, path, "it exists already", "remove it or give another name");
  }
  PartFile part(fmt::format("{}.{}.part", path, ::getpid()));
  const Fd fd(::open(part.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return fail_errno(Status::write_failed, part.path(), errno);
  // A disk that is too small shows now, not after minutes; and extents come out long.
  if (in_memory(fd.get())) {
    return fail(Status::unsupported, path, "its file system is memory: no disk would be read",
                "name a folder on a disk (TMPDIR, or --store)");
  }
  struct statvfs disk {};
  if (::fstatvfs(fd.get(), &disk) == 0 && bytes / disk.f_frsize >= disk.f_bavail) {
    return fail(Status::write_failed, path,
                fmt::format("needs {}, the file system has {} free", format_bytes(bytes),
                            format_bytes(disk.f_bavail * disk.f_frsize)),
                "free space, choose another folder, or make a smaller store");
  }
  if (::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == ENOSPC) {
    return fail_errno(Status::write_failed, path, ENOSPC);
  }
  std::vector<std::uint64_t> block(1 << 19);  // 4 MiB
  for (std::uint64_t done = 0; done < bytes;) {
    if (options.stop != nullptr && options.stop->load()) {
      return fail(Status::write_failed, path, "interrupted", "start again");
    }
    fill(block, done / kWordBytes);
    const std::uint64_t n = std::min<std::uint64_t>(bytes - done, block.size() * kWordBytes);
    if (auto ok = write_all(fd.get(), path, block.data(), n); !ok) return ok;
    done += n;
    if (options.progress) options.progress(done, bytes);
  }
  if (::fsync(fd.get()) != 0) return fail_errno(Status::write_failed, path, errno);
  if (::rename(part.path().c_str(), path.c_str()) != 0) {
    return fail_errno(Status::write_failed, path, errno);
  }
  part.keep();
  return {};
}

bool in_memory(int fd) {
  constexpr long kTmpfs = 0x01021994;  // linux/magic.h
  constexpr long kRamfs = static_cast<long>(0x858458f6);
  struct statfs fs {};
  return ::fstatfs(fd, &fs) == 0 && (fs.f_type == kTmpfs || fs.f_type == kRamfs);
}

Result<bool> is_generated_store(int fd, std::uint64_t bytes, const std::string& path) {
  constexpr std::uint64_t kSamples = 64;
  if (bytes == 0 || bytes % kPage != 0) return false;
  const std::uint64_t pages = bytes / kPage;
  std::array<std::uint64_t, kPage / kWordBytes> page{};
  for (std::uint64_t s = 0; s < kSamples; ++s) {
    const std::uint64_t at = s * (pages - 1) / (kSamples - 1);
    const ssize_t n = ::pread(fd, page.data(), kPage, static_cast<off_t>(at * kPage));
    if (n < 0) return fail_errno(Status::unreadable, path, errno);
    if (n != static_cast<ssize_t>(kPage)) return false;
    for (std::uint64_t i = 0; i < page.size(); ++i) {
      if (page[i] != generated_word(at * page.size() + i)) return false;
    }
  }
  return true;
}

}  // namespace resid

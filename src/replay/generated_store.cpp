#include "replay/generated_store.hpp"

#include <fcntl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "base/units.hpp"
#include "synth/output_file.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

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
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(Status::write_failed, path, errno);
  if (in_memory(fd.get())) {
    return fail(Status::unsupported, path, "its file system is memory: no disk would be read",
                "name a folder on a disk (TMPDIR, or --store)");
  }
  auto file = OutputFile::create(path, bytes, false);
  if (!file) return tl::unexpected(file.error());
  while (file->written() < bytes) {
    if (options.stop != nullptr && options.stop->load()) {
      return fail(Status::write_failed, path, "interrupted", "start again");
    }
    std::uint64_t word = generated_word(file->written() / kWordBytes);
    auto room =
        file->room(std::min<std::uint64_t>(bytes - file->written(), OutputFile::kBufferBytes));
    if (!room) return tl::unexpected(room.error());
    for (std::size_t at = 0; at < room->size(); at += kWordBytes, word += kWordStep)
      std::memcpy(room->data() + at, &word, kWordBytes);
    if (options.progress) options.progress(file->written(), bytes);
  }
  return file->finish();
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

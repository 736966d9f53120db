#include "synth/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "base/units.hpp"

namespace resid {
namespace {

// Starting write-back early keeps the amount of dirty memory, and so the final sync, short.
constexpr std::uint64_t kWritebackStep = std::uint64_t{64} << 20;

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string fd_link(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

tl::unexpected<Failure> exists_already(const std::string& path) {
  return fail(Status::usage, path, "exists already", "choose another name, or add --force");
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, std::uint64_t bytes, bool replace) {
  OutputFile file;
  file.path_ = path;
  file.folder_ = folder_of(path);
  file.promised_ = bytes;
  file.replace_ = replace;
  if (path.empty() || path.back() == '/') {
    return fail(Status::usage, "output file", fmt::format("'{}' is no file name", path),
                "name the file to write");
  }
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) {
    if (!S_ISREG(st.st_mode)) {
      return fail(Status::not_a_file, path, "is a folder, device or socket",
                  "name the file to write");
    }
    if (!replace) return exists_already(path);
  }
  if (auto opened = file.open_target(); !opened) return tl::unexpected(opened.error());
  if (auto reserved = file.reserve(); !reserved) return tl::unexpected(reserved.error());
  file.buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
  return file;
}

OutputFile::~OutputFile() {
  if (fd_ && !temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> OutputFile::open_target() {
  constexpr mode_t kMode = 0666;  // less the umask, as for any other file
  // The nameless file is given its name through /proc: without CAP_DAC_READ_SEARCH there is no
  // other way (open(2), O_TMPFILE).
  if (::access("/proc/self/fd", X_OK) == 0) {
    fd_.reset(::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  }
  if (fd_) return {};
  // A kernel or file system that does not know O_TMPFILE answers in several ways; a real reason
  // (permission, no such folder) comes back from the plain open too.
  const std::string name = fmt::format("{}/.{}.{}.part", folder_, base_of(path_), ::getpid());
  fd_.reset(::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode));
  if (!fd_) {
    const int error = errno;
    if (error == ENOENT && ::access(folder_.c_str(), F_OK) != 0) {
      return fail(Status::no_such_file, folder_, "no such folder", "make the folder first");
    }
    return fail_errno(Status::write_failed, path_, error);
  }
  temporary_ = name;
  return {};
}

Result<void> OutputFile::reserve() {
  struct statvfs fs {};
  if (::fstatvfs(fd_.get(), &fs) == 0) {
    const std::uint64_t available = std::uint64_t{fs.f_bavail} * fs.f_frsize;
    if (available < promised_) {
      return fail(Status::write_failed, path_,
                  fmt::format("needs {}, the file system has {} free", format_bytes(promised_),
                              format_bytes(available)),
                  "free space, choose another folder, or make a smaller file");
    }
  }
  int rc = 0;
  do {
    rc = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(promised_));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    return fail_errno(Status::write_failed, fmt::format("{} ({})", path_, format_bytes(promised_)),
                      errno, "free space, choose another folder, or make a smaller file");
  }
  return {};
}

Result<std::span<std::byte>> OutputFile::room(std::size_t n) {
  assert(n <= kBufferBytes);
  if (used_ + n > kBufferBytes) {
    if (auto flushed = flush(); !flushed) return tl::unexpected(flushed.error());
  }
  std::span<std::byte> out(buffer_.get() + used_, n);
  used_ += n;
  return out;
}

Result<void> OutputFile::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::size_t n = data.size() < kBufferBytes ? data.size() : kBufferBytes;
    auto out = room(n);
    if (!out) return tl::unexpected(out.error());
    std::memcpy(out->data(), data.data(), n);
    data = data.subspan(n);
  }
  return {};
}

Result<void> OutputFile::flush() {
  std::size_t done = 0;
  while (done < used_) {
    const ssize_t n = ::write(fd_.get(), buffer_.get() + done, used_ - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(Status::write_failed, path_, errno);
    }
    done += static_cast<std::size_t>(n);
  }
  written_ += used_;
  used_ = 0;
  if (written_ - started_ >= kWritebackStep) {
    // Only a hint: the sync at the end is what counts.
    (void)::sync_file_range(fd_.get(), static_cast<off_t>(started_),
                            static_cast<off_t>(written_ - started_), SYNC_FILE_RANGE_WRITE);
    started_ = written_;
  }
  return {};
}

Result<void> OutputFile::finish() {
  if (auto flushed = flush(); !flushed) return flushed;
  if (written_ != promised_) {
    return fail(Status::internal, path_,
                fmt::format("{} bytes written, {} promised", written_, promised_));
  }
  // Without it a crash could leave the name on a file with holes.
  if (::fdatasync(fd_.get()) != 0) return fail_errno(Status::write_failed, path_, errno);
  if (auto published = publish(); !published) return published;
  fd_.reset();
  return {};
}

Result<void> OutputFile::publish() {
  if (temporary_.empty()) {
    const std::string link = fd_link(fd_.get());
    if (!replace_) {
      // linkat never replaces: whoever made the name since create() keeps it.
      if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        return {};
      }
      if (errno == EEXIST) return exists_already(path_);
      return fail_errno(Status::write_failed, path_, errno);
    }
    const std::string name = fmt::format("{}/.{}.{}.part", folder_, base_of(path_), ::getpid());
    if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return fail_errno(Status::write_failed, name, errno);
    }
    temporary_ = name;
  }
  // RENAME_NOREPLACE is not known to every file system; there the check of create() has to do.
  int rc = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(),
                       replace_ ? 0 : RENAME_NOREPLACE);
  if (rc != 0 && errno == EINVAL) rc = std::rename(temporary_.c_str(), path_.c_str());
  if (rc != 0) {
    if (errno == EEXIST) return exists_already(path_);
    return fail_errno(Status::write_failed, path_, errno);
  }
  temporary_.clear();
  return {};
}

}  // namespace resid

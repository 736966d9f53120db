#include "report/report_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

namespace resid {
namespace {

tl::unexpected<Failure> cannot_write(const std::string& path, int error) {
  return fail_errno(Status::write_failed, path, error);
}

}  // namespace

Result<ReportFile> ReportFile::prepare(const std::string& path) {
  ReportFile file;
  file.path_ = path;
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) return cannot_write(path, EISDIR);
    if (!S_ISREG(st.st_mode)) {
      file.fd_.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
      if (!file.fd_) return cannot_write(path, errno);
      return file;
    }
    // A rename would get round the permissions of the file itself.
    if (::access(path.c_str(), W_OK) != 0) return cannot_write(path, errno);
    // Rename over what a symbolic link means, not over the link.
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved) != nullptr) file.path_ = resolved;
  }
  std::string temporary = file.path_ + ".XXXXXX";
  file.fd_.reset(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.fd_) return cannot_write(path, errno);
  file.temporary_ = std::move(temporary);
  // mkostemp makes it private; a report is an ordinary file.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file.fd_.get(), 0666 & ~mask);
  return file;
}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)) {}

ReportFile::~ReportFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> ReportFile::commit(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_.get(), text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return cannot_write(path_, errno);
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (temporary_.empty()) return {};
  if (::fsync(fd_.get()) != 0) return cannot_write(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return cannot_write(path_, errno);
  temporary_.clear();
  return {};
}

}  // namespace resid

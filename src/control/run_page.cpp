#include "control/run_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/fd.hpp"
#include "base/sys.hpp"

namespace resid {
namespace {

constexpr const char* kStartAgain = "start the program with `residctl run`";

// A folder that only this user can have put there, as the XDG base directory specification demands
// of XDG_RUNTIME_DIR. A stale variable (su, sudo -E) names another user's.
bool usable_runtime_folder(const char* folder) {
  struct stat st {};
  return folder != nullptr && folder[0] == '/' && ::stat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
         st.st_uid == ::geteuid() && ::access(folder, W_OK | X_OK) == 0;
}

void* map_page(int fd) {
  return sys::mmap(nullptr, sizeof(RunPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

}  // namespace

void record_failure(RunPage& page, Status status, const char* line) {
  if (status == Status::ok) status = Status::internal;
  std::uint32_t none = 0;
  // Who wins this owns last_error alone; the page was zeroed, so it ends in a zero at every moment.
  if (!page.last_status.compare_exchange_strong(none, static_cast<std::uint32_t>(status),
                                                std::memory_order_acq_rel)) {
    return;
  }
  if (line == nullptr) return;
  const std::size_t n = std::min(std::strlen(line), sizeof(page.last_error) - 1);
  std::memcpy(page.last_error, line, n);
}

Result<RunPageFile> RunPageFile::create() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string path = usable_runtime_folder(runtime) ? runtime : "/tmp";
  path += "/residctl.XXXXXX";
  const Fd fd(::mkostemp(path.data(), O_CLOEXEC));  // mode 0600, O_EXCL
  if (!fd) return fail_errno(Status::write_failed, path, errno);
  RunPageFile file;
  file.path_ = path;
  file.owner_ = true;
  if (const int error = ::posix_fallocate(fd.get(), 0, sizeof(RunPage)); error != 0) {
    return fail_errno(Status::write_failed, path, error);
  }
  void* address = map_page(fd.get());
  if (address == MAP_FAILED) return fail_errno(Status::out_of_memory, path, errno);
  file.page_ = new (address) RunPage{};
  return file;
}

Result<RunPageFile> RunPageFile::open(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT) return fail_errno(Status::no_such_file, path, errno, kStartAgain);
    if (errno == ELOOP) {
      return fail(Status::usage, path, "is a symbolic link, not a run page", kStartAgain);
    }
    return fail_errno(Status::unreadable, path, errno, kStartAgain);
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::usage, path, "is not a regular file, so no run page", kStartAgain);
  }
  if (st.st_uid != ::geteuid()) {
    return fail(Status::usage, path, "belongs to user " + std::to_string(st.st_uid), kStartAgain);
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Status::usage, path, "can be written by other users", kStartAgain);
  }
  constexpr const char* kOtherBuild =
      "use the preload library that was installed with this residctl";
  if (static_cast<std::uint64_t>(st.st_size) != sizeof(RunPage)) {
    return fail(Status::usage, path,
                "has " + std::to_string(st.st_size) + " bytes; this build's run page has " +
                    std::to_string(sizeof(RunPage)),
                kOtherBuild);
  }
  void* address = map_page(fd.get());
  if (address == MAP_FAILED) return fail_errno(Status::out_of_memory, path, errno);
  RunPageFile file;
  file.path_ = path;
  file.page_ = static_cast<RunPage*>(address);
  if (file.page_->magic != kRunPageMagic) {
    return fail(Status::usage, path, "does not begin with a run page's magic", kStartAgain);
  }
  if (file.page_->page_bytes != sizeof(RunPage)) {
    return fail(Status::usage, path, "was made by another build of residctl", kOtherBuild);
  }
  return file;
}

RunPageFile::RunPageFile(RunPageFile&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      path_(std::move(other.path_)),
      owner_(std::exchange(other.owner_, false)) {}

RunPageFile& RunPageFile::operator=(RunPageFile&& other) noexcept {
  if (this != &other) {
    reset();
    page_ = std::exchange(other.page_, nullptr);
    path_ = std::move(other.path_);
    owner_ = std::exchange(other.owner_, false);
  }
  return *this;
}

RunPageFile::~RunPageFile() {
  reset();
}

void RunPageFile::reset() noexcept {
  if (page_ != nullptr) sys::munmap(page_, sizeof(RunPage));
  if (owner_) ::unlink(path_.c_str());
  page_ = nullptr;
  owner_ = false;
}

RunPage* RunPageFile::release() {
  owner_ = false;
  return std::exchange(page_, nullptr);
}

}  // namespace resid

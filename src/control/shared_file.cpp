#include "control/shared_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "base/sys.hpp"
#include "control/expert_area.hpp"
#include "control/run_page.hpp"
#include "control/trace_area.hpp"

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

// `residctl.<pid namespace>-<pid>.`: who made a file, for whoever finds it later.
std::string name_start() {
  struct stat ns {};
  (void)::stat("/proc/self/ns/pid", &ns);  // 0 without /proc, alike for all such
  return fmt::format("residctl.{}-", ns.st_ino);
}

// A residctl that was killed outright could not remove its files. Those of processes that are gone,
// in this namespace, go now; who still maps one keeps its memory.
void sweep(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return;
  const std::string start = name_start();
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(start)) continue;
    pid_t pid = 0;
    const char* digits = entry->d_name + start.size();
    const auto [end, error] = std::from_chars(digits, entry->d_name + name.size(), pid);
    if (error != std::errc{} || *end != '.' || pid <= 0) continue;
    if (::kill(pid, 0) == 0 || errno != ESRCH) continue;
    (void)::unlink((folder + "/" + entry->d_name).c_str());  // another user's stays
  }
  ::closedir(dir);
}

void* map_page(int fd, std::uint64_t bytes) {
  return sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

}  // namespace

template <class Page>
Result<SharedFile<Page>> SharedFile<Page>::create() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = usable_runtime_folder(runtime) ? runtime : "/tmp";
  sweep(folder);
  std::string path = fmt::format("{}/{}{}.XXXXXX", folder, name_start(), ::getpid());
  const Fd fd(::mkostemp(path.data(), O_CLOEXEC));  // mode 0600, O_EXCL
  if (!fd) return fail_errno(Status::write_failed, path, errno);
  return fill(fd.get(), std::move(path));
}

template <class Page>
Result<SharedFile<Page>> SharedFile<Page>::create_at(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(Status::write_failed, path, errno);
  return fill(fd.get(), path);
}

template <class Page>
Result<SharedFile<Page>> SharedFile<Page>::fill(int fd, std::string path) {
  SharedFile file;
  file.path_ = std::move(path);
  file.owner_ = true;
  if (const int error = ::posix_fallocate(fd, 0, sizeof(Page)); error != 0) {
    return fail_errno(Status::write_failed, file.path_, error);
  }
  void* address = map_page(fd, sizeof(Page));
  if (address == MAP_FAILED) return fail_errno(Status::out_of_memory, file.path_, errno);
  file.page_ = new (address) Page{};
  return file;
}

template <class Page>
Result<SharedFile<Page>> SharedFile<Page>::open(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT) return fail_errno(Status::no_such_file, path, errno, kStartAgain);
    if (errno == ELOOP) {
      return fail(Status::usage, path, fmt::format("is a symbolic link, not a {}", Page::kWhat),
                  kStartAgain);
    }
    return fail_errno(Status::unreadable, path, errno, kStartAgain);
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::usage, path, fmt::format("is not a regular file, so no {}", Page::kWhat),
                kStartAgain);
  }
  if (st.st_uid != ::geteuid()) {
    return fail(Status::usage, path, "belongs to user " + std::to_string(st.st_uid), kStartAgain);
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Status::usage, path, "can be written by other users", kStartAgain);
  }
  constexpr const char* kOtherBuild =
      "use the preload library that was installed with this residctl";
  if (static_cast<std::uint64_t>(st.st_size) != sizeof(Page)) {
    return fail(
        Status::usage, path,
        fmt::format("has {} bytes; this build's {} has {}", st.st_size, Page::kWhat, sizeof(Page)),
        kOtherBuild);
  }
  void* address = map_page(fd.get(), sizeof(Page));
  if (address == MAP_FAILED) return fail_errno(Status::out_of_memory, path, errno);
  SharedFile file;
  file.path_ = path;
  file.page_ = static_cast<Page*>(address);
  if (file.page_->magic != Page::kMagic) {
    return fail(Status::usage, path, fmt::format("does not begin with a {}'s magic", Page::kWhat),
                kStartAgain);
  }
  if (file.page_->page_bytes != sizeof(Page)) {
    return fail(Status::usage, path, "was made by another build of residctl", kOtherBuild);
  }
  return file;
}

template <class Page>
SharedFile<Page>::SharedFile(SharedFile&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      path_(std::move(other.path_)),
      owner_(std::exchange(other.owner_, false)) {}

template <class Page>
SharedFile<Page>& SharedFile<Page>::operator=(SharedFile&& other) noexcept {
  if (this != &other) {
    reset();
    page_ = std::exchange(other.page_, nullptr);
    path_ = std::move(other.path_);
    owner_ = std::exchange(other.owner_, false);
  }
  return *this;
}

template <class Page>
SharedFile<Page>::~SharedFile() {
  reset();
}

template <class Page>
void SharedFile<Page>::reset() noexcept {
  if (page_ != nullptr) sys::munmap(page_, sizeof(Page));
  if (owner_) ::unlink(path_.c_str());
  page_ = nullptr;
  owner_ = false;
}

template <class Page>
Page* SharedFile<Page>::release() {
  owner_ = false;
  return std::exchange(page_, nullptr);
}

template class SharedFile<RunPage>;
template class SharedFile<TraceArea>;
template class SharedFile<ExpertArea>;

}  // namespace resid

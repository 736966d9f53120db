#include "expert/usage_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <thread>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "synth/output_file.hpp"

namespace resid {
namespace {

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Held until the descriptor is closed.
Result<Fd> lock(const std::string& path, std::chrono::milliseconds patience) {
  const std::string name = path + ".lock";
  Fd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(Status::write_failed, name, errno);
  constexpr std::chrono::milliseconds kPause{10};
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno(Status::write_failed, name, errno);
    if (patience <= std::chrono::milliseconds::zero()) {
      return fail(Status::system, name, "another run holds the lock",
                  "what was counted is added the next time");
    }
    patience -= kPause;
    std::this_thread::sleep_for(kPause);
  }
  return fd;
}

// U-3. Never over what was set aside before.
Result<std::string> set_aside(const std::string& path) {
  constexpr int kMost = 99;
  for (int i = 1; i <= kMost; ++i) {
    const std::string name = i == 1 ? path + ".damaged" : fmt::format("{}.damaged-{}", path, i);
    int rc = ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    if (rc != 0 && errno == EINVAL) {  // a file system that does not know it
      rc = ::access(name.c_str(), F_OK) == 0 ? (errno = EEXIST, -1)
                                             : std::rename(path.c_str(), name.c_str());
    }
    if (rc == 0) return name;
    if (errno != EEXIST) return fail_errno(Status::write_failed, path, errno);
  }
  return fail(Status::write_failed, path, fmt::format("{} damaged ones lie beside it", kMost),
              "delete them");
}

// So that the new name outlives a power cut. Nothing hangs on the answer: what was counted is in
// the file already, and to say that it is not would have it added twice.
void sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) (void)::fsync(fd.get());
}

// What is there of this model; nothing where there is none, or nothing of use.
Result<std::optional<UsageHistory>> usable(const std::string& path, const UsageHistory& counted,
                                           UsageAdded& added) {
  auto before = read_usage(path);
  if (before && before->model == counted.model && before->same_shape(counted)) {
    return std::optional(std::move(*before));
  }
  Failure why = before
                    ? Failure{Status::malformed, path, "is the usage history of another model", {}}
                    : before.error();
  if (why.status == Status::no_such_file) return std::nullopt;
  if (why.status != Status::malformed && why.status != Status::unsupported) {
    return tl::unexpected(std::move(why));
  }
  auto name = set_aside(path);
  if (!name) return tl::unexpected(name.error());
  why.todo = fmt::format("it is now {}, and a new one is begun", *name);
  added.set_aside = std::move(why);
  return std::nullopt;
}

}  // namespace

Result<UsageAdded> add_usage(const std::string& path, const UsageHistory& counted,
                             std::chrono::milliseconds patience) {
  auto held = lock(path, patience);
  if (!held) return tl::unexpected(held.error());
  UsageAdded added;
  auto before = usable(path, counted, added);
  if (!before) return tl::unexpected(before.error());
  std::string text;
  if (*before) {
    (*before)->add(counted);
    text = encode(**before);
  } else {
    text = encode(counted);
  }
  auto file = OutputFile::create(path, text.size(), true);
  if (!file) return tl::unexpected(file.error());
  if (auto ok = file->append(std::as_bytes(std::span(text))); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = file->finish(); !ok) return tl::unexpected(ok.error());
  sync_folder(folder_of(path));
  return added;
}

Result<std::string> usage_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  // A relative one is to be ignored (XDG base directory specification).
  if (state != nullptr && state[0] == '/') return std::string(state) + "/residctl/experts/";
  struct stat st {};
  // A home that is not there is nobody's to make.
  if (home != nullptr && home[0] == '/' && ::stat(home, &st) == 0 && S_ISDIR(st.st_mode)) {
    return std::string(home) + "/.local/state/residctl/experts/";
  }
  return fail(Status::usage, "usage history", "neither XDG_STATE_HOME nor HOME names a folder",
              "set HOME, name a file with --history, or give --history off");
}

Result<void> make_usage_folder(const std::string& folder) {
  for (std::size_t at = folder.find('/', 1); at != std::string::npos;
       at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (::mkdir(part.c_str(), 0700) == 0 || errno == EEXIST) continue;
    // Above what is ours a folder may be there that we may not look into.
    const int error = errno;
    if (::access(part.c_str(), F_OK) != 0) return fail_errno(Status::write_failed, part, error);
  }
  return {};
}

}  // namespace resid

#pragma once
// Opening a file that somebody calls a trace.

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid {

struct TraceFile {
  Fd fd;
  std::uint64_t bytes = 0;
};

// no_such_file, unreadable, not_a_file.
inline Result<TraceFile> open_trace_file(const std::string& path) {
  TraceFile file;
  // Not to wait for the other end of a pipe.
  file.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd) {
    return fail_errno(errno == ENOENT ? Status::no_such_file : Status::unreadable, path, errno);
  }
  struct stat st {};
  if (::fstat(file.fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::not_a_file, path, "is a folder, device or pipe", "name a trace file");
  }
  file.bytes = static_cast<std::uint64_t>(st.st_size);
  return file;
}

}  // namespace resid

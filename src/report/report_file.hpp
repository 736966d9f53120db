#pragma once
// A report on disk that is either whole or not there.

#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid {

// Prepared before the work begins, so that a path that cannot be written is refused then and not
// after an hour. Destroying it without commit() leaves an existing file as it was.
class ReportFile {
 public:
  // A regular or new file is written beside itself and renamed into place; anything else that
  // exists (a pipe, /dev/null, /dev/fd/N) is written directly. write_failed when that cannot be.
  static Result<ReportFile> prepare(const std::string& path);
  ReportFile(ReportFile&&) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;
  ~ReportFile();

  Result<void> commit(std::string_view text);

 private:
  ReportFile() = default;
  std::string path_;       // after symbolic links
  std::string temporary_;  // empty: written directly, or committed
  Fd fd_;
};

}  // namespace resid

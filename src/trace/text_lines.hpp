#pragma once
// The lines of a text file, plain or compressed with xz; which of the two its first bytes say, not
// its name. A file that was cut off is told from a whole one: an xz stream has an end of its own,
// and the last line of a plain file must end as all others do: with a line feed, a carriage return
// before it or not (Python's csv module writes one).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace resid {

class TextLines {
 public:
  // no_such_file, not_a_file, unreadable, empty_file.
  static Result<TextLines> open(const std::string& path);
  TextLines(TextLines&&) noexcept;
  TextLines& operator=(TextLines&&) noexcept;
  ~TextLines();

  // Puts the next line without its end into `line`, valid until the next call; false at the
  // verified end. malformed, with line or offset: damaged, cut off, a line of more than 16 KiB.
  Result<bool> next(std::string_view& line);
  std::uint64_t number() const;  // of the line that next() gave last, from 1

  std::uint64_t bytes_read() const;  // of the file, for showing progress
  std::uint64_t file_bytes() const;

 private:
  struct Impl;
  explicit TextLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace resid

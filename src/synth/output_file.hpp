#pragma once
// A file written as one stream, which appears under its name only when it is whole.
//
// Where the file system can (O_TMPFILE, Linux 3.11), the file has no name until it is finished: the
// kernel removes it whatever ends us, a kill or a crash included. Elsewhere it has a hidden name
// beside the target and is removed by the destructor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid {

class OutputFile {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

  // Makes a file of exactly `bytes` bytes that will become `path`. Fails at once when `path` exists
  // and `replace` is false (Status::usage), is no regular file, or when the file system has no room
  // for it (Status::write_failed with both numbers). The blocks are reserved where the file system
  // can, so that no write fails later for want of space.
  static Result<OutputFile> create(const std::string& path, std::uint64_t bytes, bool replace);

  OutputFile(OutputFile&& other) noexcept = default;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();  // not finished: nothing is left behind

  // The next `n` bytes of the stream, to be filled before the next call. n <= kBufferBytes.
  Result<std::span<std::byte>> room(std::size_t n);
  Result<void> append(std::span<const std::byte> data);  // any length

  // Writes what is buffered, syncs the data and gives the file its name. The number of bytes must
  // be the one promised to create().
  Result<void> finish();

  std::uint64_t written() const { return written_ + used_; }

 private:
  OutputFile() = default;
  Result<void> open_target();
  Result<void> reserve();
  Result<void> flush();
  Result<void> publish();

  std::string path_;
  std::string folder_;
  std::string temporary_;  // empty: the file has no name
  Fd fd_;
  std::uint64_t promised_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t started_ = 0;  // bytes whose write-back has been started
  bool replace_ = false;
  std::size_t used_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace resid

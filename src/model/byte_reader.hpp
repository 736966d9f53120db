#pragma once
// A bounded, buffered, little-endian reader over pread(2).
//
// pread, not mmap: a file truncated while it is parsed must be an error and not SIGBUS, and the
// preload library interposes mmap. The descriptor's own file position belongs to the program.
//
// The first failure sticks: every later call returns false and leaves its output alone, so a parser
// may read a whole record and look once.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace resid {

// Text of a file made fit to print: control and non-ASCII bytes replaced, long text cut.
std::string printable(std::string_view text);

// The one shape of a parse failure: `offset N: field: reason`.
tl::unexpected<Failure> fail_at(Status status, const std::string& path, std::uint64_t offset,
                                std::string_view field, std::string_view reason);

class ByteReader {
 public:
  // Reads the first `limit` of the `file_bytes` bytes of `fd`. Neither `fd` nor `path` is owned.
  ByteReader(int fd, const std::string& path, std::uint64_t file_bytes, std::uint64_t limit);

  bool u8(std::uint8_t& out, std::string_view field) { return scalar(out, field); }
  bool u32(std::uint32_t& out, std::string_view field) { return scalar(out, field); }
  bool u64(std::uint64_t& out, std::string_view field) { return scalar(out, field); }
  // `bytes` raw bytes; `bytes` must have been checked against a limit of the caller's.
  bool text(std::string& out, std::uint64_t bytes, std::string_view field);
  bool skip(std::uint64_t bytes, std::string_view field);

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return end_ - position_; }
  // The remaining bytes as failures spell them: `17 bytes left in the file`.
  std::string left() const;

  // The record being read ("tensor", "blk.0.attn_q.weight"), named in failures before the field.
  // `name` must live until the next call.
  void subject(std::string_view kind, std::string_view name) {
    kind_ = kind;
    name_ = name;
  }
  // `field` of the current subject, as failures spell it.
  std::string spell(std::string_view field) const;

  // Records a failure of the field that begins at `offset`; the first one stays. Returns false.
  bool refuse(Status status, std::uint64_t offset, std::string_view field, std::string reason);
  bool ok() const { return !failure_; }
  tl::unexpected<Failure> failure() const { return tl::unexpected<Failure>(*failure_); }

 private:
  template <class T>
  bool scalar(T& out, std::string_view field) {
    std::array<unsigned char, sizeof(T)> raw;
    if (!take(raw.data(), raw.size(), field)) return false;
    std::uint64_t value = 0;
    for (std::size_t i = raw.size(); i-- > 0;)
      value = value << 8 | raw[i];
    out = static_cast<T>(value);
    return true;
  }
  bool enough(std::uint64_t bytes, std::string_view field);
  bool take(unsigned char* out, std::size_t bytes, std::string_view field);
  bool fill(std::string_view field);

  static constexpr std::size_t kBuffer = 64 * 1024;

  int fd_;
  const std::string& path_;
  std::uint64_t end_;
  bool limited_;                    // end_ is the limit, not the end of the file
  std::uint64_t position_ = 0;      // of the next byte handed out
  std::uint64_t buffer_start_ = 0;  // file position of buffer_[0]
  std::size_t buffered_ = 0;
  std::unique_ptr<unsigned char[]> buffer_;
  std::string_view kind_;
  std::string_view name_;
  std::optional<Failure> failure_;
};

}  // namespace resid

#include "model/byte_reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace resid {

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 96;
  std::string out;
  out.reserve(std::min(text.size(), kLongest) + 3);
  for (const char c : text.substr(0, kLongest))
    out += (c >= 0x20 && c < 0x7f) ? c : '?';
  if (text.size() > kLongest) out += "...";
  return out;
}

tl::unexpected<Failure> fail_at(Status status, const std::string& path, std::uint64_t offset,
                                std::string_view field, std::string_view reason) {
  return fail(status, path, fmt::format("offset {}: {}: {}", offset, field, reason));
}

ByteReader::ByteReader(int fd, const std::string& path, std::uint64_t file_bytes,
                       std::uint64_t limit)
    : fd_(fd),
      path_(path),
      end_(std::min(file_bytes, limit)),
      limited_(limit < file_bytes),
      buffer_(new unsigned char[kBuffer]) {}

std::string ByteReader::left() const {
  if (!limited_) return fmt::format("{} bytes left in the file", remaining());
  return fmt::format("{} bytes left of the {} that metadata may take", remaining(), end_);
}

bool ByteReader::enough(std::uint64_t bytes, std::string_view field) {
  if (failure_) return false;
  if (bytes <= remaining()) return true;
  return refuse(Status::malformed, position_, field,
                fmt::format("{} bytes long, with {}", bytes, left()));
}

std::string ByteReader::spell(std::string_view field) const {
  if (kind_.empty()) return std::string(field);
  return fmt::format("{} '{}' {}", kind_, printable(name_), field);
}

bool ByteReader::refuse(Status status, std::uint64_t offset, std::string_view field,
                        std::string reason) {
  if (!failure_) failure_ = fail_at(status, path_, offset, spell(field), reason).value();
  return false;
}

bool ByteReader::fill(std::string_view field) {
  const std::size_t want = static_cast<std::size_t>(std::min<std::uint64_t>(kBuffer, remaining()));
  std::size_t got = 0;
  while (got < want) {
    const ssize_t n =
        ::pread(fd_, buffer_.get() + got, want - got, static_cast<off_t>(position_ + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return refuse(Status::read_failed, position_ + got, field,
                    std::generic_category().message(errno));
    }
    if (n == 0) {
      return refuse(Status::read_failed, position_ + got, field,
                    "the file became shorter while it was read");
    }
    got += static_cast<std::size_t>(n);
  }
  buffer_start_ = position_;
  buffered_ = got;
  return true;
}

bool ByteReader::take(unsigned char* out, std::size_t bytes, std::string_view field) {
  if (!enough(bytes, field)) return false;
  while (bytes > 0) {
    if (position_ < buffer_start_ || position_ >= buffer_start_ + buffered_) {
      if (!fill(field)) return false;
    }
    const std::size_t at = static_cast<std::size_t>(position_ - buffer_start_);
    const std::size_t n = std::min(bytes, buffered_ - at);
    std::memcpy(out, buffer_.get() + at, n);
    out += n;
    bytes -= n;
    position_ += n;
  }
  return true;
}

bool ByteReader::text(std::string& out, std::uint64_t bytes, std::string_view field) {
  if (!enough(bytes, field)) return false;
  out.resize(static_cast<std::size_t>(bytes));
  return take(reinterpret_cast<unsigned char*>(out.data()), out.size(), field);
}

bool ByteReader::skip(std::uint64_t bytes, std::string_view field) {
  if (!enough(bytes, field)) return false;
  position_ += bytes;
  return true;
}

}  // namespace resid

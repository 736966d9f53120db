#include "host/kernel_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "base/fd.hpp"
#include "host/cgroup.hpp"

namespace resid::host {
namespace {

// No real file of this kind comes near it; it bounds what a hostile mount can make us hold.
constexpr std::size_t kMostBytes = 16U << 20;

bool blank(char c) {
  return c == ' ' || c == '\n' || c == '\t';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && blank(text.back()))
    text.remove_suffix(1);
  return text;
}

tl::unexpected<Failure> garbage(const std::string& path, std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return fail(Status::cgroup_unreadable, path, "'" + shown + "' is not a number");
}

template <class Parse>
Result<std::optional<std::uint64_t>> read_value(const std::string& path, Parse parse) {
  auto text = read_kernel_file(path, Status::cgroup_unreadable);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return std::optional<std::uint64_t>{};
  const std::optional<std::uint64_t> value = parse(**text);
  if (!value) return garbage(path, trim(**text));
  return value;
}

}  // namespace

Result<std::optional<std::string>> read_kernel_file(const std::string& path, Status status) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return std::optional<std::string>{};
    return fail_errno(status, path, errno);
  }
  std::string text;
  std::array<char, 8192> buffer{};
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(status, path, errno);
    }
    if (n == 0) return std::optional<std::string>(std::move(text));
    if (text.size() + static_cast<std::size_t>(n) > kMostBytes) {
      return fail(status, path, "longer than any file of its kind");
    }
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

int write_kernel_file(const std::string& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC));
  if (!fd) return errno;
  ssize_t n = 0;
  do {
    n = ::write(fd.get(), text.data(), text.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  return static_cast<std::size_t>(n) == text.size() ? 0 : EIO;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  text = trim(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_limit(std::string_view text) {
  if (trim(text) == "max") return kNoLimit;
  const std::optional<std::uint64_t> value = parse_number(text);
  // LONG_MAX less up to one page of 64 KiB is what "none" looks like; no machine comes near half.
  if (value && *value >= 1ULL << 62) return kNoLimit;
  return value;
}

Result<std::optional<std::uint64_t>> KeyedText::field(std::string_view key) const {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ' ') {
      continue;
    }
    const std::optional<std::uint64_t> value = parse_number(line.substr(key.size() + 1));
    if (!value) return garbage(path, line);
    return value;
  }
  return std::optional<std::uint64_t>{};
}

Result<std::optional<std::uint64_t>> read_number(const std::string& path) {
  return read_value(path, parse_number);
}

Result<std::optional<std::uint64_t>> read_limit(const std::string& path) {
  return read_value(path, parse_limit);
}

Result<KeyedText> read_keyed(const std::string& path) {
  auto text = read_kernel_file(path, Status::cgroup_unreadable);
  if (!text) return tl::unexpected(text.error());
  return KeyedText{path, text->value_or(std::string{})};
}

bool has_word(std::string_view text, std::string_view word, char separator) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = at;
    while (end < text.size() && text[end] != separator && !blank(text[end]))
      ++end;
    if (end > at && text.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace resid::host

#pragma once
// The kernel's small text files (proc, cgroup): read whole, parsed strictly.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace resid::host {

// The file's text; nullopt when there is none of that name. Any other error is a failure of
// `status` that names the file.
Result<std::optional<std::string>> read_kernel_file(const std::string& path, Status status);

// Writes `text` in one write(2), as cgroup files want it. Returns 0 or errno. Creates nothing.
int write_kernel_file(const std::string& path, std::string_view text);

// Decimal digits alone, but for blanks and newlines around them. nullopt for anything else,
// overflow included.
std::optional<std::uint64_t> parse_number(std::string_view text);

// A limit: "max", or a number so large that it means none (version 1 writes LONG_MAX rounded down
// to a page), is kNoLimit.
std::optional<std::uint64_t> parse_limit(std::string_view text);

// A flat keyed file: one `key value` a line.
struct KeyedText {
  std::string path;  // for messages
  std::string text;

  // nullopt when the key is missing; cgroup_unreadable when its value is no number.
  Result<std::optional<std::uint64_t>> field(std::string_view key) const;
};

// A number or limit that fills a file of its own; nullopt when there is no such file.
Result<std::optional<std::uint64_t>> read_number(const std::string& path);
Result<std::optional<std::uint64_t>> read_limit(const std::string& path);
// A flat keyed file; empty text when there is no such file.
Result<KeyedText> read_keyed(const std::string& path);

// True when `word` is one of the words of `text`, separated by blanks, newlines or `separator`.
bool has_word(std::string_view text, std::string_view word, char separator = ' ');

}  // namespace resid::host

#include "base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace resid {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

// Binary suffixes carry an `i`; bare ones are decimal, as disks are sold and as the design fixes.
constexpr std::array<Suffix, 20> kSuffixes{{
    {"", 1},
    {"B", 1},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"Ki", 1024.0},
    {"Mi", 1048576.0},
    {"Gi", 1073741824.0},
    {"Ti", 1099511627776.0},
    {"K", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"k", 1e3},
    {"kB", 1e3},
}};

tl::unexpected<Failure> bad_size(std::string_view what, std::string_view text,
                                 std::string_view why) {
  return fail(Status::usage, std::string(what), fmt::format("'{}' {}", text, why),
              "write a size as 512MiB, 4GiB, 6G or 50%");
}

}  // namespace

std::uint64_t Size::resolve(std::uint64_t model_bytes) const {
  if (kind == Kind::bytes) return bytes;
  return static_cast<std::uint64_t>(static_cast<long double>(model_bytes) * percent / 100.0L);
}

std::string Size::text() const {
  return kind == Kind::bytes ? format_bytes(bytes) : fmt::format("{:g}%", percent);
}

Result<Size> parse_size(std::string_view text, std::string_view what) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return bad_size(what, text, "is not a size");
  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (!std::isfinite(number) || number < 0) return bad_size(what, text, "is negative or no number");
  Size size;
  if (suffix == "%") {
    if (number > 1000) return bad_size(what, text, "is more than 1000 %");
    size.kind = Size::Kind::percent_of_model;
    size.percent = number;
    return size;
  }
  for (const Suffix& s : kSuffixes) {
    if (s.text != suffix) continue;
    const long double bytes = static_cast<long double>(number) * s.factor;
    if (bytes >= static_cast<long double>(std::numeric_limits<std::int64_t>::max())) {
      return bad_size(what, text, "is too large");
    }
    size.bytes = static_cast<std::uint64_t>(bytes);
    return size;
  }
  return bad_size(what, text, "has an unknown unit");
}

Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view what) {
  auto size = parse_size(text, what);
  if (!size) return tl::unexpected(size.error());
  if (size->kind != Size::Kind::bytes) return bad_size(what, text, "may not be a percentage");
  return size->bytes;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace resid

#pragma once
// Sizes as people write them, and page arithmetic.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace resid {

// The page size that userfaultfd, hole punching and our chunks work in. Every supported machine
// has 4 KiB pages; the region refuses to start elsewhere.
inline constexpr std::uint64_t kPage = 4096;
// What one entry of the second level of page tables maps; the size of a huge page on x86-64 and on
// arm64 with 4 KiB pages.
inline constexpr std::uint64_t kLargePage = 2 * 1024 * 1024;

constexpr std::uint64_t page_down(std::uint64_t n) {
  return n & ~(kPage - 1);
}
constexpr std::uint64_t page_up(std::uint64_t n) {
  return (n + kPage - 1) & ~(kPage - 1);
}
constexpr std::uint64_t large_page_up(std::uint64_t n) {
  return (n + kLargePage - 1) & ~(kLargePage - 1);
}

// A size that may be relative to the model: `50%`.
struct Size {
  enum class Kind : std::uint8_t { bytes, percent_of_model };
  Kind kind = Kind::bytes;
  double percent = 0;
  std::uint64_t bytes = 0;

  // The size in bytes, given the model's.
  std::uint64_t resolve(std::uint64_t model_bytes) const;
  std::string text() const;
};

// `512MiB`, `4GiB`, `6G` (decimal), `6GB`, `4096`, `50%`. Rejects overflow, negative numbers and
// trailing text. `what` names the setting in the failure.
Result<Size> parse_size(std::string_view text, std::string_view what);

// As parse_size, refusing percentages.
Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view what);

// `1.50 GiB`, for people.
std::string format_bytes(std::uint64_t bytes);

}  // namespace resid

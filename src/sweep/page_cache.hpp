#pragma once
// A model's files, all together, out of the page cache or in it.

#include <string>
#include <vector>

#include "base/status.hpp"
#include "storage/page_cache.hpp"

namespace resid::sweep {

Result<CachedBytes> cached(const std::vector<std::string>& files);

// A little may stay: a page that somebody reads just now.
inline constexpr std::uint64_t kCold = 4ULL << 20;

// Drops the files from the page cache. Status::system, naming the first file, when more than kCold
// bytes stay: somebody maps them.
Result<CachedBytes> make_cold(const std::vector<std::string>& files);

// Reads the files, so that they are in the page cache where it has room. Returns what is in it.
Result<CachedBytes> make_warm(const std::vector<std::string>& files);

}  // namespace resid::sweep

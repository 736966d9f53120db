#pragma once
// How much of a file the kernel's page cache holds, and emptying it: a measurement that claims to
// start cold must know that it does.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace resid {

// Who answered. cachestat(2), kernel 6.5, counts; mincore(2), older, looks at a mapping, and since
// kernel 5.2 tells the truth only to the file's owner or who may write it.
enum class CacheSource : std::uint8_t { cachestat, mincore };
std::string_view name(CacheSource source);

struct CachedBytes {
  std::uint64_t bytes = 0;  // whole pages
  CacheSource source = CacheSource::cachestat;
};

// Of the regular file behind `fd`, `file_bytes` long; `path` is for messages. cache_unknown where
// the kernel does not tell this user: a newer one answers either call only to the file's owner or
// who may write it.
Result<CachedBytes> cached_bytes(int fd, std::uint64_t file_bytes, const std::string& path);

// Writes back what is dirty, then drops the file's pages, again and again for up to a second: pages
// that another CPU has just read sit in its batches and leave later. Returns what is left; pages
// that some process maps stay for good.
Result<CachedBytes> drop_cached(int fd, std::uint64_t file_bytes, const std::string& path);

}  // namespace resid

#pragma once
// A store of known contents, made by a formula: whatever an arm reads can be checked against what
// it should be, without trusting the file.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"

namespace resid {

// The 8 bytes at word `i` of every generated store. No two words are alike and none is zero (the
// step is odd, so i -> (i + 1) * step is one to one modulo 2^64), so a page of another place, or a
// hole, is always noticed.
inline constexpr std::uint64_t kWordStep = 0x9e3779b97f4a7c15ULL;
constexpr std::uint64_t generated_word(std::uint64_t i) {
  return (i + 1) * kWordStep;
}

struct MakeStoreOptions {
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes
  const std::atomic<bool>* stop = nullptr;  // when set, the half-made file goes and it fails
};

// Writes `bytes` (whole pages) of generated words to `path`, synced; a file of this name is whole,
// and nothing is left of one that is not. usage: exists already, or no whole pages.
Result<void> make_store(const std::string& path, std::uint64_t bytes,
                        const MakeStoreOptions& options = {});

// True for a file or folder of a file system that lives in memory (tmpfs, ramfs): nothing is ever
// read from a disk there, and its page cache is the file.
bool in_memory(int fd);

// True when pages all over the file hold what make_store() writes; reads a few dozen of them.
Result<bool> is_generated_store(int fd, std::uint64_t bytes, const std::string& path);

}  // namespace resid

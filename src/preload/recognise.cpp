#include "preload/recognise.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include <fmt/format.h>

#include "base/fd.hpp"

namespace resid::preload {

std::string path_of(int fd) {
  std::array<char, PATH_MAX> text{};
  const ssize_t n =
      ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), text.data(), text.size());
  return n <= 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(n));
}

bool matches(const std::string& path, const char* glob) {
  if (*glob == '\0' || path.empty()) return false;
  const std::string last = path.substr(path.rfind('/') + 1);
  return ::fnmatch(glob, path.c_str(), 0) == 0 || ::fnmatch(glob, last.c_str(), 0) == 0;
}

bool recognised(int fd, const char* glob) {
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return false;
  return looks_like_model(fd) || (*glob != '\0' && matches(path_of(fd), glob));
}

Result<ModelFile> read_recognised(int fd, const std::string& path, std::uint64_t bytes) {
  if (looks_like_model(fd)) return read_model_file(fd, path);
  ModelFile raw;
  raw.path = path;
  raw.format = Format::raw;
  raw.bytes = bytes;
  return raw;
}

Result<ChunkPlan> plan_for(const ModelFile& file, std::uint64_t chunk_max) {
  if (chunk_max == 0) chunk_max = ChunkPlan::kDefaultChunkMax;
  return file.format == Format::raw ? ChunkPlan::uniform(file.bytes, chunk_max)
                                    : ChunkPlan::make(file, chunk_max);
}

bool names_file(const std::string& path, const StoreIdentity& identity) {
  struct stat st {};
  return !path.empty() && ::stat(path.c_str(), &st) == 0 && st.st_dev == identity.device &&
         st.st_ino == identity.inode;
}

WholeModel whole_model(const ModelFile& file, const ChunkPlan& plan, bool in_place,
                       std::uint64_t chunk_max) {
  WholeModel whole{file.bytes, plan.largest()};
  if (!in_place || file.split_count <= 1) return whole;
  const auto model = open_model(file.path);
  if (!model) return whole;
  whole = {};
  for (const ModelFile& part : model->files) {
    whole.bytes += part.bytes;
    if (const auto part_plan = plan_for(part, chunk_max)) {
      whole.largest_chunk = std::max<std::uint64_t>(whole.largest_chunk, part_plan->largest());
    }
  }
  return whole;
}

}  // namespace resid::preload

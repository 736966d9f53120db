#include "storage/reader.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "storage/reader_queue.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kDepthMost = 64;

}  // namespace

std::string_view name(ReadEngine engine) {
  switch (engine) {
    case ReadEngine::automatic:
      return "automatic";
    case ReadEngine::io_uring:
      return "io_uring";
    case ReadEngine::threads:
      return "threads";
  }
  return "automatic";
}

Result<std::unique_ptr<Reader>> Reader::create(const ReaderConfig& config, Done done,
                                               void* context) {
  if (config.depth == 0 || config.depth > kDepthMost) {
    return fail(Status::usage, "read depth",
                fmt::format("{} is not between 1 and {}", config.depth, kDepthMost),
                "give a number in this range");
  }
  if (config.piece_bytes == 0 || config.piece_bytes % kPage != 0) {
    return fail(Status::usage, "size of a read",
                fmt::format("{} is not a multiple of {}", config.piece_bytes, kPage),
                "give a multiple of the page size");
  }
  if (config.engine != ReadEngine::threads) {
    auto reader = make_uring_reader(config, done, context);
    if (reader || config.engine == ReadEngine::io_uring) return reader;
  }
  return make_thread_reader(config, done, context);
}

}  // namespace resid

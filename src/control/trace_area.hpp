#pragma once
// What a traced run shares besides its run page: the ring of events, and which files the chunk
// numbers in them belong to.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "control/shared_file.hpp"
#include "trace/ring.hpp"

namespace resid {

struct TraceArea {
  static constexpr const char* kWhat = "trace area";
  static constexpr std::uint64_t kMagic = 0x3130616572417254ULL;  // "TrArea01"
  static constexpr std::uint32_t kMostRegions = 64;               // as many as a pager takes

  // One file under control, in the order in which the pager numbers its chunks.
  struct Region {
    std::array<char, 4096> path{};
    std::uint64_t bytes = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t chunks = 0;
  };

  std::uint64_t magic = kMagic;
  std::uint32_t page_bytes = sizeof(TraceArea);
  std::uint32_t reserved = 0;
  std::atomic<std::uint32_t> region_count{0};  // raised when the entry below it is complete
  std::array<Region, kMostRegions> regions{};
  TraceRing ring;
};

static_assert(std::is_standard_layout_v<TraceArea> && std::is_trivially_destructible_v<TraceArea>);

using TraceAreaFile = SharedFile<TraceArea>;

// Where the area of a run lies, given its run page. Both ends derive it.
inline std::string trace_area_path(const std::string& run_page_path) {
  return run_page_path + ".trace";
}

}  // namespace resid

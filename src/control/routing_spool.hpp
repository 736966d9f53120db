#pragma once
// What a run that records routing passes through a file beside its run page: one record for each
// layer of each graph, appended by the program as it computes, read by `residctl run` at the end.
//
// A record is one write to a file opened O_APPEND, so those of several threads do not mix, and
// what a program that was killed has written is whole but for its last.

#include <cstdint>
#include <string>

namespace resid {

struct RoutingSpoolHead {
  static constexpr std::uint32_t kMagic = 0x31305352;  // "RS01"
  std::uint32_t magic = kMagic;
  std::int32_t layer = 0;
  std::uint32_t experts = 0;
  std::uint32_t used = 0;
  std::uint32_t tokens = 0;
  // Then tokens * used numbers of 32 bits, token by token, in falling order of weight.
};

// Where it lies, given the run page. Both ends derive it.
inline std::string routing_spool_path(const std::string& run_page_path) {
  return run_page_path + ".routing";
}

}  // namespace resid

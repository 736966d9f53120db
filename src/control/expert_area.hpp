#pragma once
// What a run shares of its experts, beside its run page: the board (pager/expert_board.hpp), and
// whose history of use the run adds to (expert/usage_history.hpp).
//
// `residctl run` makes it before the program starts; the preload library writes to it; whoever may
// open the run page may look at it at any time while the run lives.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "control/shared_file.hpp"
#include "pager/expert_board.hpp"

namespace resid {

struct ExpertArea {
  static constexpr const char* kWhat = "expert area";
  static constexpr std::uint64_t kMagic = 0x3130616572417845ULL;  // "ExArea01"

  std::uint64_t magic = kMagic;
  std::uint32_t page_bytes = sizeof(ExpertArea);
  std::uint32_t reserved = 0;
  // Where histories lie: a folder, with the slash, or a file. Empty: there is none. The parent's.
  std::array<char, 4096> history{};
  // The model under control, as UsageHistory::of() names it; 0 until one is mapped that has
  // experts. What describes it stands first.
  std::atomic<std::uint64_t> model{0};
  std::atomic<std::uint32_t> other_model{0};  // not 0: one more was mapped, so uses are of both
  std::uint32_t experts = 0;                  // of each layer
  std::array<std::uint8_t, ExpertBoard::kLayersMost> has_experts{};  // by layer, as in the model
  ExpertBoard board;
};

static_assert(std::is_standard_layout_v<ExpertArea> &&
              std::is_trivially_destructible_v<ExpertArea>);

using ExpertAreaFile = SharedFile<ExpertArea>;

// Where the area of a run lies, given its run page. Both ends derive it.
inline std::string expert_area_path(const std::string& run_page_path) {
  return run_page_path + ".experts";
}

}  // namespace resid

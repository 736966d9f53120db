#pragma once
// The arms: who owns the replacement decision beneath the same reads.
//
//   A  the kernel: mmap with one madvise
//   B  the kernel, told: A, and MADV_WILLNEED before and MADV_PAGEOUT after use, by the declared
//      order
//   C  the pager with lru          D  the pager with layer_order_declared
//   E  D with prefetch             OPT  no run: the offline optimum of the sequence

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "pager/pager.hpp"
#include "replay/driver.hpp"

namespace resid {

enum class ArmKind : std::uint8_t { a, b, c, d, e, opt };
std::string_view name(ArmKind arm);
Result<ArmKind> parse_arm(std::string_view text);
constexpr bool is_pager(ArmKind arm) {
  return arm == ArmKind::c || arm == ArmKind::d || arm == ArmKind::e;
}
constexpr bool is_kernel(ArmKind arm) {
  return arm == ArmKind::a || arm == ArmKind::b;
}

// The one advice of arm A (and what B starts from).
enum class Advice : std::uint8_t { normal, sequential, random, willneed };
std::string_view name(Advice advice);
Result<Advice> parse_advice(std::string_view text);

// Arms A and B. `ahead`: how many chunks B asks for before need. B accounts for what it asked for
// and pages out what the declared order names, so that `budget_bytes` of its chunks stay wanted;
// the limit itself is its control group's.
Result<std::unique_ptr<Arm>> make_kernel_arm(const Workload& workload, ArmKind kind, Advice advice,
                                             std::uint64_t budget_bytes, std::uint32_t ahead);

// Arms C, D and E. `config.signal_mode` and `faults_signal_access` are set here: the driver's
// consumption signal is the only one.
Result<std::unique_ptr<Arm>> make_pager_arm(const Workload& workload, PagerConfig config,
                                            PagerStats& stats, FailureHook hook, void* context);

}  // namespace resid

#pragma once
// Memory and swap facts, and the guarantee behind "resident means resident" (I-3).

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "host/cgroup.hpp"

namespace resid::host {

struct MemoryFacts {
  std::uint64_t total = 0;
  std::uint64_t available = 0;   // MemAvailable
  std::uint64_t swap_total = 0;  // 0: no swap on this machine
};
Result<MemoryFacts> memory_facts(const Roots& roots = {});

// Which of the routes of I-3 holds. `mlocked`: the pager locks what it makes resident.
enum class SwapGuarantee : std::uint8_t { none, no_swap, cgroup_v2, cgroup_v1, mlocked };
std::string_view name(SwapGuarantee guarantee);

// The first route that holds now, in the order: no swap on the machine, group forbids swap, enough
// RLIMIT_MEMLOCK for `budget` bytes (then the pager must lock). swap_unsafe when none does.
Result<SwapGuarantee> swap_guarantee(const MemoryFacts& memory, const MemoryCgroup& group,
                                     std::uint64_t budget);

// The default budget where --ram is not given: the smallest of MemAvailable and every group limit
// minus what is used and not reclaimable, minus the program's own need and a margin of
// max(128 MiB, need / 5). Never more than `model_bytes`.
struct BudgetAdvice {
  std::uint64_t bytes = 0;
  std::string reason;  // one sentence with the numbers
};
Result<BudgetAdvice> default_budget(const MemoryFacts& memory, const MemoryCgroup& group,
                                    std::uint64_t program_need, std::uint64_t model_bytes);

}  // namespace resid::host

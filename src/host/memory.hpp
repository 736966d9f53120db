#pragma once
// Memory and swap facts, and the guarantee behind "resident means resident" (I-3).

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "host/cgroup.hpp"

namespace resid::host {

// In bytes.
struct MemoryFacts {
  std::uint64_t total = 0;
  std::uint64_t available = 0;   // MemAvailable
  std::uint64_t swap_total = 0;  // 0: no swap on this machine
  std::uint64_t lock_limit = 0;  // what this process may mlock: RLIMIT_MEMLOCK, kNoLimit where the
                                 // kernel does not hold it to that (CAP_IPC_LOCK)
  bool noswap_mount = false;     // memory that is never swapped can be mounted (frames.hpp); looked
                                 // at only where there is swap
};

// From /proc/meminfo; the swap of the machine itself (sysinfo(2)) where a container's meminfo shows
// less; the lock limit of this process. Status::system when meminfo is unreadable or makes no
// sense.
Result<MemoryFacts> memory_facts(const Roots& roots = {});

// Which of the routes of I-3 holds. A version 1 control group is none: it cannot forbid swap (see
// SwapBarrier). `noswap_mount`: resident bytes live on a mount that is never swapped. `mlocked`:
// the pager locks what it makes resident, at its fetch.
enum class SwapGuarantee : std::uint8_t { none, no_swap, cgroup_v2, noswap_mount, mlocked };
std::string_view name(SwapGuarantee guarantee);

// The first route that holds now, in the order: no swap on the machine, the group forbids swap, a
// mount without swap, enough of a lock limit for `budget` bytes (then the pager must lock).
// swap_unsafe, saying why each fails, when none does. Swap that is turned on later breaks
// `no_swap`: the reconcile of I-7 sees it.
Result<SwapGuarantee> swap_guarantee(const MemoryFacts& memory, const MemoryCgroup& group,
                                     std::uint64_t budget);

// As above, for memory that is charged to `child`, where there is one, instead of `group`.
Result<SwapGuarantee> swap_guarantee(const MemoryFacts& memory, const MemoryCgroup& group,
                                     const ChildGroup* child, std::uint64_t budget);

// What is kept free beside the program's own need: max(128 MiB, need / 5).
std::uint64_t budget_margin(std::uint64_t program_need);

// The default budget where --ram is not given: the smaller of MemAvailable and what the control
// groups leave, minus the program's own need and the margin, whole pages, never more than
// `model_bytes`. budget_too_small, with the same numbers, when nothing is left.
struct BudgetAdvice {
  std::uint64_t bytes = 0;
  std::string reason;  // one sentence with the numbers
};
Result<BudgetAdvice> default_budget(const MemoryFacts& memory, const MemoryCgroup& group,
                                    std::uint64_t program_need, std::uint64_t model_bytes);

}  // namespace resid::host

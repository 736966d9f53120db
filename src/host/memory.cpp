#include "host/memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <optional>

#include "base/sys.hpp"
#include "base/units.hpp"
#include "host/frames.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20;

// One line of meminfo: `Name:      123 kB`.
Result<std::uint64_t> meminfo_bytes(std::string_view text, std::string_view key,
                                    const std::string& file) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ':') {
      continue;
    }
    line.remove_prefix(key.size() + 1);
    constexpr std::string_view kUnit = " kB";
    std::optional<std::uint64_t> value;
    if (line.size() > kUnit.size() && line.substr(line.size() - kUnit.size()) == kUnit) {
      value = parse_number(line.substr(0, line.size() - kUnit.size()));
    }
    if (!value || *value > ~0ULL / 1024) {
      return fail(Status::system, file, "the line " + std::string(key) + " makes no sense");
    }
    return *value * 1024;
  }
  return fail(Status::system, file, "has no line " + std::string(key));
}

// The kernel is asked, not the capability set: CAP_IPC_LOCK of a user namespace lifts nothing
// (mm/mlock.c asks for it in the initial one). mlock2 with MLOCK_ONFAULT on a reservation without
// access (Linux 4.4) brings no page in; one page above the limit tells whether it is upheld.
std::uint64_t lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  if (limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  if (limit.rlim_cur > 1ULL << 46) return limit.rlim_cur;  // more than can be mapped
  const std::uint64_t bytes = page_up(limit.rlim_cur) + kPage;
  void* probe =
      sys::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) return limit.rlim_cur;
  const bool unlimited = sys::mlock2(probe, bytes, MLOCK_ONFAULT) == 0;
  sys::munmap(probe, bytes);
  return unlimited ? kNoLimit : limit.rlim_cur;
}

std::string why_group_does_not_forbid(const MemoryCgroup& group) {
  switch (group.version) {
    case CgroupVersion::none:
      return "no control group forbids it";
    case CgroupVersion::v1:
      return "a version 1 control group cannot forbid it";
    case CgroupVersion::v2:
      return "memory.swap.max of " + group.charged + " and above is not 0";
  }
  return {};
}

}  // namespace

Result<MemoryFacts> memory_facts(const Roots& roots) {
  const std::string file = roots.proc + "/meminfo";
  auto text = read_kernel_file(file, Status::system);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return fail(Status::system, file, "there is no such file");
  MemoryFacts out;
  for (const auto& [key, into] :
       {std::pair{"MemTotal", &out.total}, std::pair{"MemAvailable", &out.available},
        std::pair{"SwapTotal", &out.swap_total}}) {
    auto value = meminfo_bytes(**text, key, file);
    if (!value) return tl::unexpected(value.error());
    *into = *value;
  }
  // lxcfs and its kin lay a container's own meminfo over the kernel's. Its pages still go to the
  // machine's swap.
  struct sysinfo machine {};
  if (roots.proc == Roots{}.proc && ::sysinfo(&machine) == 0) {
    out.swap_total =
        std::max(out.swap_total, static_cast<std::uint64_t>(machine.totalswap) * machine.mem_unit);
  }
  out.lock_limit = lock_limit();
  if (out.swap_total != 0) out.noswap_mount = FrameSource::open(false, true).has_value();
  return out;
}

std::string_view name(SwapGuarantee guarantee) {
  switch (guarantee) {
    case SwapGuarantee::none:
      return "none";
    case SwapGuarantee::no_swap:
      return "no_swap";
    case SwapGuarantee::cgroup_v2:
      return "cgroup_v2";
    case SwapGuarantee::noswap_mount:
      return "noswap_mount";
    case SwapGuarantee::mlocked:
      return "mlocked";
  }
  return "none";
}

Result<SwapGuarantee> swap_guarantee(const MemoryFacts& memory, const MemoryCgroup& group,
                                     std::uint64_t budget) {
  if (memory.swap_total == 0) return SwapGuarantee::no_swap;
  if (group.version == CgroupVersion::v2 && group.swap_limit == 0) return SwapGuarantee::cgroup_v2;
  if (memory.noswap_mount) return SwapGuarantee::noswap_mount;
  if (memory.lock_limit >= budget) return SwapGuarantee::mlocked;
  return fail(
      Status::swap_unsafe, "swap",
      "the machine has " + format_bytes(memory.swap_total) + " of swap, " +
          why_group_does_not_forbid(group) +
          ", memory without swap cannot be mounted (tmpfs noswap), and RLIMIT_MEMLOCK allows " +
          format_bytes(memory.lock_limit) + " to be locked, less than the budget of " +
          format_bytes(budget));
}

Result<SwapGuarantee> swap_guarantee(const MemoryFacts& memory, const MemoryCgroup& group,
                                     const ChildGroup* child, std::uint64_t budget) {
  if (child == nullptr || !child->swap_forbidden()) return swap_guarantee(memory, group, budget);
  MemoryCgroup inside = group;
  inside.version = CgroupVersion::v2;
  inside.swap_limit = 0;
  return swap_guarantee(memory, inside, budget);
}

std::uint64_t budget_margin(std::uint64_t program_need) {
  return std::max(128 * kMib, program_need / 5);
}

Result<BudgetAdvice> default_budget(const MemoryFacts& memory, const MemoryCgroup& group,
                                    std::uint64_t program_need, std::uint64_t model_bytes) {
  const bool by_group = group.available < memory.available;
  const std::uint64_t available = by_group ? group.available : memory.available;
  const std::uint64_t margin = budget_margin(program_need);
  const std::string numbers =
      format_bytes(available) +
      (by_group ? " left by " + group.available_by : std::string(" of memory available")) +
      ", less " + format_bytes(program_need) + " for the program and " + format_bytes(margin) +
      " of margin";
  const std::uint64_t reserve = program_need > ~0ULL - margin ? ~0ULL : program_need + margin;
  const std::uint64_t left = page_down(available - std::min(available, reserve));
  if (left == 0) {
    return fail(Status::budget_too_small, "budget", "nothing is left of " + numbers,
                "free memory, raise the limit, or give --ram");
  }
  if (left >= model_bytes) {
    return BudgetAdvice{model_bytes,
                        "the whole model, " + format_bytes(model_bytes) + ", fits into " + numbers};
  }
  return BudgetAdvice{left, format_bytes(left) + ": " + numbers};
}

}  // namespace resid::host

#include "host/cgroup.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/units.hpp"
#include "host/group_files.hpp"
#include "host/hierarchy.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

// Version 2: memory is charged to the nearest group, from the process's own upwards, that the
// memory controller is enabled for. Empty when there is none: the controller is not in this
// hierarchy, or not enabled anywhere above us that we can see.
Result<std::string> charged_v2(const GroupFolder& group) {
  for (const std::string& folder : lineage(group.path, group.mount)) {
    auto controllers = read_kernel_file(folder + "/cgroup.controllers", Status::cgroup_unreadable);
    if (!controllers) return tl::unexpected(controllers.error());
    if (*controllers && has_word(**controllers, "memory")) return folder;
  }
  return std::string{};
}

// The limit, available and swap figures of one group into the minima so far.
Result<void> take_into_account(const std::string& folder, MemoryCgroup& out) {
  auto limit = own_limit(folder, out.version);
  if (!limit) return tl::unexpected(limit.error());
  auto charge = read_charge(folder, out.version);
  if (!charge) return tl::unexpected(charge.error());
  if (folder == out.charged) {
    out.usage = charge->usage;
    out.reclaimable = charge->reclaimable;
  }
  if (limit->bytes < out.limit) {
    out.limit = limit->bytes;
    out.limited_by = limit->file;
  }
  if (limit->bytes != kNoLimit) {
    const std::uint64_t held = charge->usage - std::min(charge->usage, charge->reclaimable);
    const std::uint64_t available = limit->bytes - std::min(limit->bytes, held);
    if (available < out.available) {
      out.available = available;
      out.available_by = limit->file;
    }
  }
  if (out.version == CgroupVersion::v2) {
    auto swap = read_limit(folder + "/memory.swap.max");
    if (!swap) return tl::unexpected(swap.error());
    out.swap_limit = std::min(out.swap_limit, swap->value_or(kNoLimit));
  }
  return {};
}

// Version 1 tells the minimum over all ancestors, those above a container's view included. The
// usage of what is above cannot be seen: that of our own group is the least it can be.
Result<void> take_hidden_ancestors(MemoryCgroup& out) {
  auto stat = read_keyed(out.charged + "/memory.stat");
  if (!stat) return tl::unexpected(stat.error());
  auto value = stat->field("hierarchical_memory_limit");
  if (!value) return tl::unexpected(value.error());
  if (!*value || **value >= out.limit || **value >= 1ULL << 62) return {};
  out.limit = **value;
  out.limited_by = stat->path + " (hierarchical_memory_limit)";
  const std::uint64_t held = out.usage - std::min(out.usage, out.reclaimable);
  const std::uint64_t available = out.limit - std::min(out.limit, held);
  if (available < out.available) {
    out.available = available;
    out.available_by = out.limited_by;
  }
  return {};
}

}  // namespace

Result<MemoryCgroup> memory_cgroup(const Roots& roots) {
  auto group = find_group(roots);
  if (!group) return tl::unexpected(group.error());
  MemoryCgroup out;
  if (group->version == CgroupVersion::none) return out;
  out.charged = group->path;
  if (group->version == CgroupVersion::v2) {
    auto charged = charged_v2(*group);
    if (!charged) return tl::unexpected(charged.error());
    if (charged->empty()) return out;
    out.charged = *charged;
  }
  out.version = group->version;
  out.mount = group->mount;
  out.path = group->path;
  for (const std::string& folder : lineage(out.charged, out.mount)) {
    if (auto taken = take_into_account(folder, out); !taken) return tl::unexpected(taken.error());
  }
  if (out.version == CgroupVersion::v1) {
    if (auto taken = take_hidden_ancestors(out); !taken) return tl::unexpected(taken.error());
  }
  return out;
}

std::uint64_t figures_lag() {
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  return 64 * kPage * static_cast<std::uint64_t>(std::max(cpus, 1L));
}

}  // namespace resid::host

#include "host/group_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/units.hpp"
#include "host/hierarchy.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

constexpr std::string_view kNamePrefix = "residctl.";

std::string join(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

// Fails at once when a limit file cannot be written for a reason other than its absence.
Result<bool> write_optional(const std::string& path, std::string_view text) {
  const int error = write_kernel_file(path, text);
  if (error == 0) return true;
  if (error == ENOENT) return false;
  return fail_errno(Status::cgroup_denied, path, error);
}

// Of an optional field, absence is 0.
Result<void> add_field(const KeyedText& text, std::string_view key, std::uint64_t& into) {
  auto value = text.field(key);
  if (!value) return tl::unexpected(value.error());
  into += value->value_or(0);
  return {};
}

Result<void> write_limit_v1(const std::string& folder, std::uint64_t bytes) {
  const std::string limit_file = join(folder, "memory.limit_in_bytes");
  const std::string memsw_file = join(folder, "memory.memsw.limit_in_bytes");
  auto now = read_limit(limit_file);
  if (!now) return tl::unexpected(now.error());
  if (!*now) return fail(Status::cgroup_unreadable, limit_file, "there is no such file");
  const std::string text = bytes == kNoLimit ? "-1" : std::to_string(bytes);
  // The kernel keeps limit <= memsw limit at every moment, so the one that is in the way goes
  // first. memsw = limit leaves the group no room for swap when it is the group's own limit that
  // forces reclaim (try_charge meets memsw first and reclaims without swapping).
  const bool raise = bytes > **now;
  const std::array<std::string, 2> order =
      raise ? std::array{memsw_file, limit_file} : std::array{limit_file, memsw_file};
  for (const std::string& file : order) {
    auto written = write_optional(file, text);
    if (!written) {
      // EBUSY: reclaim could not bring the usage below the new limit. Nobody is killed for it.
      return tl::unexpected(written.error());
    }
    if (!*written && file == limit_file) {
      return fail(Status::cgroup_denied, file, "there is no such file");
    }
  }
  return {};
}

Result<void> write_limit_v2(const std::string& folder, std::uint64_t bytes) {
  const std::string file = join(folder, "memory.max");
  if (bytes != kNoLimit) {
    // Writing less than what is charged and not reclaimable invokes the OOM killer (memory.max in
    // cgroup-v2.rst). What is charged after this check is the writer's own risk.
    auto charge = read_charge(folder, CgroupVersion::v2);
    if (!charge) return tl::unexpected(charge.error());
    const std::uint64_t held = charge->usage - std::min(charge->usage, charge->reclaimable);
    if (held > bytes) {
      return fail(Status::cgroup_denied, file,
                  format_bytes(held) + " is charged and not reclaimable, more than the limit of " +
                      format_bytes(bytes));
    }
  }
  const int error = write_kernel_file(file, bytes == kNoLimit ? "max" : std::to_string(bytes));
  if (error != 0) return fail_errno(Status::cgroup_denied, file, error);
  return {};
}

std::string limit_file(CgroupVersion version) {
  return version == CgroupVersion::v1 ? "memory.limit_in_bytes" : "memory.max";
}

}  // namespace

Result<OwnLimit> own_limit(const std::string& folder, CgroupVersion version) {
  OwnLimit out;
  const auto consider = [&](const std::string& file, std::uint64_t bytes) {
    if (bytes < out.bytes) out = {bytes, file};
  };
  const std::string hard_file = join(folder, limit_file(version));
  auto hard = read_limit(hard_file);
  if (!hard) return tl::unexpected(hard.error());
  consider(hard_file, hard->value_or(kNoLimit));
  if (version == CgroupVersion::v2) {
    const std::string high_file = join(folder, "memory.high");
    auto high = read_limit(high_file);
    if (!high) return tl::unexpected(high.error());
    // Above memory.high every allocation reclaims, and from about 1 % above it on the allocator is
    // put to sleep (Linux 5.4, commit 0e4b01df). A sleeping fetch worker is a sleeping program, so
    // we stay 1/64 below: that covers the per-CPU charge stocks, which count as usage.
    if (*high && **high != kNoLimit) consider(high_file, **high - **high / 64);
  }
  return out;
}

Result<Charge> read_charge(const std::string& folder, CgroupVersion version) {
  const bool v1 = version == CgroupVersion::v1;
  Charge out;
  auto usage = read_number(join(folder, v1 ? "memory.usage_in_bytes" : "memory.current"));
  if (!usage) return tl::unexpected(usage.error());
  out.usage = usage->value_or(0);
  auto stat = read_keyed(join(folder, "memory.stat"));
  if (!stat) return tl::unexpected(stat.error());
  // The file LRUs, as MemAvailable of /proc/meminfo counts them; shmem is on the anon LRUs. Version
  // 1 has sums over the subtree under names of their own.
  for (const std::string_view key :
       {v1 ? "total_inactive_file" : "inactive_file", v1 ? "total_active_file" : "active_file"}) {
    if (auto added = add_field(*stat, key, out.reclaimable); !added) {
      return tl::unexpected(added.error());
    }
  }
  return out;
}

Result<CgroupFigures> read_figures(const std::string& folder, CgroupVersion version) {
  const bool v1 = version == CgroupVersion::v1;
  CgroupFigures out;
  const std::string stat_file = join(folder, "memory.stat");
  auto text = read_kernel_file(stat_file, Status::cgroup_unreadable);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return fail(Status::cgroup_unreadable, stat_file, "there is no such file");
  const KeyedText stat{stat_file, std::move(**text)};
  const std::array<std::pair<std::string_view, std::uint64_t*>, 3> fields{{
      {v1 ? "total_shmem" : "shmem", &out.shmem},
      {v1 ? "total_rss" : "anon", &out.anon},
      {v1 ? "total_cache" : "file", &out.file},
  }};
  for (const auto& [key, into] : fields) {
    auto value = stat.field(key);
    if (!value) return tl::unexpected(value.error());
    if (!*value) {
      return fail(Status::cgroup_unreadable, stat_file, "has no line " + std::string(key));
    }
    *into = **value;
  }
  auto usage = read_number(join(folder, v1 ? "memory.usage_in_bytes" : "memory.current"));
  if (!usage) return tl::unexpected(usage.error());
  out.usage = usage->value_or(0);
  auto peak = read_number(join(folder, v1 ? "memory.max_usage_in_bytes" : "memory.peak"));
  if (!peak) return tl::unexpected(peak.error());
  out.peak = peak->value_or(0);
  auto events = read_keyed(join(folder, v1 ? "memory.oom_control" : "memory.events"));
  if (!events) return tl::unexpected(events.error());
  if (auto added = add_field(*events, "oom_kill", out.oom_kills); !added) {
    return tl::unexpected(added.error());
  }
  return out;
}

Result<SwapBarrier> raise_swap_barrier(const std::string& folder, CgroupVersion version) {
  const bool v1 = version == CgroupVersion::v1;
  const std::string file = join(folder, v1 ? "memory.swappiness" : "memory.swap.max");
  auto written = write_optional(file, "0");
  if (!written) return tl::unexpected(written.error());
  if (!*written) return SwapBarrier::none;  // no swap support, or (v2) accounting of it turned off
  auto value = read_limit(file);
  if (!value) return tl::unexpected(value.error());
  if (!*value || **value != 0) return SwapBarrier::none;
  return v1 ? SwapBarrier::limit_reclaim : SwapBarrier::complete;
}

Result<void> write_limit(const std::string& folder, CgroupVersion version, std::uint64_t bytes) {
  // The kernel rounds down to a page; a round number is what can be read back and compared.
  if (bytes != kNoLimit) bytes = page_up(std::min(bytes, std::uint64_t{1} << 61));
  auto written =
      version == CgroupVersion::v1 ? write_limit_v1(folder, bytes) : write_limit_v2(folder, bytes);
  if (!written) return written;
  const std::string file = join(folder, limit_file(version));
  auto now = read_limit(file);
  if (!now) return tl::unexpected(now.error());
  if (!*now || **now != bytes) {
    return fail(Status::cgroup_denied, file, "the kernel did not take the limit");
  }
  return {};
}

int delegate_memory(const std::string& folder) {
  const std::string file = join(folder, "cgroup.subtree_control");
  auto text = read_kernel_file(file, Status::cgroup_unreadable);
  if (text && *text && has_word(**text, "memory")) return 0;
  return write_kernel_file(file, "+memory");
}

Result<std::vector<Place>> places_for_child(const MemoryCgroup& self) {
  if (self.version == CgroupVersion::none) return std::vector<Place>{};
  if (self.version == CgroupVersion::v1) return std::vector<Place>{{self.path, kNoLimit}};
  // The root of the whole hierarchy alone has no cgroup.type (cgroup-v2.rst), and it alone may hold
  // processes and controlled children. The top folder of a container's view is no such root.
  auto type = read_kernel_file(join(self.path, "cgroup.type"), Status::cgroup_unreadable);
  if (!type) return tl::unexpected(type.error());
  if (!*type) return std::vector<Place>{{self.path, kNoLimit}};
  std::vector<Place> out;
  std::uint64_t ceiling = kNoLimit;
  const std::vector<std::string> groups = lineage(self.path, self.mount);
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    auto limit = own_limit(groups[i], self.version);
    if (!limit) return tl::unexpected(limit.error());
    ceiling = std::min(ceiling, limit->bytes);
    out.push_back({groups[i + 1], ceiling});
  }
  return out;
}

std::string group_name(const Creator& creator, unsigned serial) {
  std::string name(kNamePrefix);
  name += std::to_string(creator.pid) + "." + std::to_string(creator.start_time);
  if (serial != 0) name += "." + std::to_string(serial);
  return name;
}

std::optional<Creator> parse_group_name(std::string_view name) {
  if (name.substr(0, kNamePrefix.size()) != kNamePrefix) return std::nullopt;
  name.remove_prefix(kNamePrefix.size());
  std::array<std::string_view, 3> parts;
  std::size_t count = 0;
  for (bool more = true; more;) {
    if (count == parts.size()) return std::nullopt;
    const std::size_t dot = name.find('.');
    parts[count++] = name.substr(0, dot);
    more = dot != std::string_view::npos;
    if (more) name.remove_prefix(dot + 1);
  }
  if (count < 2) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    // Digits alone: parse_number would let blanks pass.
    if (parts[i].empty() || parts[i].find_first_not_of("0123456789") != std::string_view::npos ||
        !parse_number(parts[i])) {
      return std::nullopt;
    }
  }
  const std::uint64_t pid = *parse_number(parts[0]);
  if (pid == 0 || pid > 0x7fffffffU) return std::nullopt;
  return Creator{static_cast<pid_t>(pid), *parse_number(parts[1])};
}

std::optional<std::uint64_t> parse_start_time(std::string_view stat) {
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_end + 1);
  // Field 3 (state) is the first after the name.
  constexpr int kFirst = 3;
  constexpr int kStartTime = 22;
  for (int field = kFirst;; ++field) {
    const std::size_t begin = stat.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(begin);
    const std::size_t end = stat.find(' ');
    if (field == kStartTime) return parse_number(stat.substr(0, end));
    if (end == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(end);
  }
}

bool may_be_alive(const Creator& creator, const Roots& roots) {
  auto stat =
      read_kernel_file(roots.proc + "/" + std::to_string(creator.pid) + "/stat", Status::system);
  if (!stat) return true;
  if (!*stat) {
    // proc mounted with hidepid= does not show other users' processes.
    return ::kill(creator.pid, 0) == 0 || errno != ESRCH;
  }
  const std::optional<std::uint64_t> start = parse_start_time(**stat);
  return !start || *start == creator.start_time;
}

}  // namespace resid::host

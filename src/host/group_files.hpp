#pragma once
// The files of one memory control group, by version: what is read from them and how they are
// written. Everything here works on a folder, real or made by a test.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/cgroup.hpp"

namespace resid::host {

// The limit that one group itself sets, ancestors aside.
struct OwnLimit {
  std::uint64_t bytes = kNoLimit;
  std::string file;  // that sets it; empty when there is none
};
Result<OwnLimit> own_limit(const std::string& folder, CgroupVersion version);

// What a group holds now.
struct Charge {
  std::uint64_t usage = 0;
  std::uint64_t reclaimable = 0;  // page cache, active or not; never shmem
};
Result<Charge> read_charge(const std::string& folder, CgroupVersion version);

Result<CgroupFigures> read_figures(const std::string& folder, CgroupVersion version);

// Raises the highest barrier the group's files allow and reads it back. Fails only when a file that
// exists cannot be written.
Result<SwapBarrier> raise_swap_barrier(const std::string& folder, CgroupVersion version);

// As ChildGroup::set_limit, without a ceiling.
Result<void> write_limit(const std::string& folder, CgroupVersion version, std::uint64_t bytes);

// Version 2: makes the memory controller available to the children of `folder`, where it is not
// yet. Returns 0 or errno.
int delegate_memory(const std::string& folder);

// Where a child group may be made, nearest first.
struct Place {
  std::string folder;
  std::uint64_t ceiling = kNoLimit;  // the smallest limit of the groups a child made here escapes
};
Result<std::vector<Place>> places_for_child(const MemoryCgroup& self);

// The name of a child group and the process that made it.
struct Creator {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // field 22 of /proc/PID/stat: clock ticks since boot
};
// `serial` tells several groups of one process apart; 0 is not written.
std::string group_name(const Creator& creator, unsigned serial);
std::optional<Creator> parse_group_name(std::string_view name);
// The start time from the text of /proc/PID/stat. The command name in it may hold anything.
std::optional<std::uint64_t> parse_start_time(std::string_view stat);
// False only when it is certain that the process is gone.
bool may_be_alive(const Creator& creator, const Roots& roots);

}  // namespace resid::host

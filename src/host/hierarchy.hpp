#pragma once
// Where control group hierarchies are mounted and which group of them a process is in: the texts of
// /proc/PID/mountinfo (proc(5)) and /proc/PID/cgroup (cgroups(7)), parsed strictly.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "host/cgroup.hpp"

namespace resid::host {

// One line of mountinfo; octal escapes are resolved.
struct Mount {
  std::string root;  // the folder of the file system that is seen at `point`; for control groups
                     // relative to the reader's cgroup namespace, so it may begin with `/..`
  std::string point;
  std::string type;           // "cgroup", "cgroup2", ...
  std::string super_options;  // separated by commas; version 1 lists its controllers here
};

// Failures are cgroup_unreadable, naming `file` and the line.
Result<std::vector<Mount>> parse_mountinfo(std::string_view text, const std::string& file);

// One line of /proc/PID/cgroup.
struct Membership {
  std::string controllers;  // separated by commas; empty for version 2
  std::string path;         // relative to the reader's cgroup namespace
};
Result<std::vector<Membership>> parse_memberships(std::string_view text, const std::string& file);

// The part of `group` below `root`, "" or beginning with a slash, both as the kernel shows them in
// one cgroup namespace. False where the group is outside, or where the way to it leads through a
// parent whose name the namespace hides (`/..`).
bool below(std::string_view root, std::string_view group, std::string& rest);

// The folder of a process's group in one hierarchy, as far as it can be seen.
struct GroupFolder {
  CgroupVersion version = CgroupVersion::none;
  std::string mount;
  std::string path;
};

// Finds the hierarchy that has, or (version 2) may have, the memory controller. Version `none` when
// this kernel has none or it is not mounted; cgroup_unreadable when it is mounted but the group's
// folder cannot be told.
Result<GroupFolder> find_group(const Roots& roots);

// The folder and all its parents up to `mount`, in that order.
std::vector<std::string> lineage(const std::string& path, const std::string& mount);

}  // namespace resid::host

#pragma once
// Memory control groups, version 1 and 2: what limits this process, and a child group with a limit
// and no swap for the program that `run` starts.
//
// Facts relied on: a page is charged to the group of the task that instantiates it and stays there
// (Documentation/admin-guide/cgroup-v2.rst); every ancestor's limit applies; memory.current counts
// reclaimable page cache.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid::host {

// Where the kernel's files are looked for. Tests point it at a folder of their own.
struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

enum class CgroupVersion : std::uint8_t { none, v1, v2 };

inline constexpr std::uint64_t kNoLimit = ~0ULL;

// The memory controller's view of one process.
struct MemoryCgroup {
  CgroupVersion version = CgroupVersion::none;
  std::string mount;        // where the memory hierarchy is mounted
  std::string path;         // absolute folder of the process's group
  std::uint64_t limit = kNoLimit;       // min over the group and all its ancestors
  std::string limited_by;               // the folder that sets that minimum
  std::uint64_t swap_limit = kNoLimit;  // swap the group may use: min over ancestors; 0 = forbidden
  std::uint64_t usage = 0;              // charged now, page cache included
  std::uint64_t reclaimable = 0;        // of which inactive file pages
};

// The group of this process. A group file that exists but cannot be read or parsed is a failure
// (cgroup_unreadable), never "no limit".
Result<MemoryCgroup> memory_cgroup(const Roots& roots = {});

// Figures of one group, from its memory.stat (and usage files).
struct CgroupFigures {
  std::uint64_t shmem = 0;
  std::uint64_t anon = 0;    // v1: rss
  std::uint64_t file = 0;    // page cache, shmem included as the kernel does
  std::uint64_t usage = 0;
  std::uint64_t peak = 0;    // v1 max_usage_in_bytes, v2 memory.peak (kernel 5.19), else 0
  std::uint64_t oom_kills = 0;
};

// A child group made for one run. Removed by its destructor, or by sweep() of a later run when the
// creator was killed: its name carries the creator's pid and start time.
class ChildGroup {
 public:
  // Makes a group under the one this process is in (v1), or beside it under the nearest ancestor
  // that allows it (v2: the no-internal-process rule forbids children with controllers below a
  // group that holds processes, except the root). Forbids swap in it at once. cgroup_denied when
  // this user may not.
  static Result<ChildGroup> create(const MemoryCgroup& self);

  ChildGroup(ChildGroup&&) noexcept;
  ChildGroup& operator=(ChildGroup&&) noexcept;
  ChildGroup(const ChildGroup&) = delete;
  ChildGroup& operator=(const ChildGroup&) = delete;
  ~ChildGroup();

  // Moves a process into the group. For use in a child between fork and exec: opens nothing,
  // allocates nothing; returns 0 or errno.
  int enter_self() const;

  Result<void> set_limit(std::uint64_t bytes);  // kNoLimit lifts it
  Result<CgroupFigures> figures() const;
  // True when the kernel refuses all swap for this group (I-3).
  bool swap_forbidden() const { return swap_forbidden_; }
  CgroupVersion version() const { return version_; }
  const std::string& path() const { return path_; }

 private:
  ChildGroup() = default;
  std::string path_;
  CgroupVersion version_ = CgroupVersion::none;
  bool swap_forbidden_ = false;
  Fd procs_;
};

// Removes child groups left behind by runs whose process is gone. Returns how many.
int sweep_stale_groups(const MemoryCgroup& self);

}  // namespace resid::host

#pragma once
// Memory control groups, version 1 and 2: what limits this process, and a child group with a limit
// and no swap for the program that `run` starts.
//
// Facts relied on: a page is charged to the group of the task that instantiates it and stays there
// (Documentation/admin-guide/cgroup-v2.rst); the limits of all ancestors apply (version 1 too:
// use_hierarchy cannot be turned off since Linux 5.11, older than the userfaultfd feature we need);
// the usage figure counts reclaimable page cache.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid::host {

// Where the kernel's files are looked for. Tests point it at a folder of their own; mount points
// below /sys in mountinfo are looked for below `sys`.
struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

enum class CgroupVersion : std::uint8_t { none, v1, v2 };

inline constexpr std::uint64_t kNoLimit = ~0ULL;

// The memory controller's view of one process. Sizes in bytes.
struct MemoryCgroup {
  CgroupVersion version = CgroupVersion::none;
  std::string mount;    // folder where the hierarchy with the memory controller is mounted
  std::string path;     // folder of the process's group
  std::string charged;  // folder of the group its memory is charged to: `path`, or in version 2 the
                        // nearest ancestor whose children are not under memory control
  std::uint64_t limit = kNoLimit;  // min over the group and all its ancestors; memory.high counts,
                                   // less 1/64, because allocators above it are put to sleep
  std::string limited_by;          // the file that sets that minimum; empty when there is none
  std::uint64_t available = kNoLimit;  // min over the limited groups of limit - usage + reclaimable
  std::string available_by;            // the file whose limit sets that minimum
  std::uint64_t swap_limit = kNoLimit;  // version 2: swap the group may use, 0 = forbidden.
                                        // Version 1 cannot forbid swap (see SwapBarrier): kNoLimit
  std::uint64_t usage = 0;              // of `charged`, now, page cache included
  std::uint64_t reclaimable = 0;  // of which file pages that the kernel can drop, active or not
};

// The group of this process; version `none` where the kernel has no memory controller or no
// hierarchy with it is mounted. A group file that exists but cannot be read or parsed is a failure
// (cgroup_unreadable, naming the file), never "no limit".
Result<MemoryCgroup> memory_cgroup(const Roots& roots = {});

// Figures of one group and all below it, in bytes.
struct CgroupFigures {
  std::uint64_t shmem = 0;
  std::uint64_t anon = 0;   // v1: rss
  std::uint64_t file = 0;   // page cache, shmem included as the kernel does
  std::uint64_t usage = 0;  // exact but for the per-CPU charge stocks, unlike the three above
  std::uint64_t peak = 0;   // of usage: v1 max_usage_in_bytes, v2 memory.peak (Linux 5.19), else 0
  std::uint64_t oom_kills = 0;
};

// How far shmem, anon and file of CgroupFigures may be from the truth: the kernel sums its per-CPU
// counters on a read only when more than 64 pages a CPU have changed, else every 2 seconds
// (mm/memcontrol.c, MEMCG_CHARGE_BATCH). A comparison with them (I-7) must allow this much.
std::uint64_t figures_lag();

// What keeps a group's pages out of swap (I-3).
enum class SwapBarrier : std::uint8_t {
  none,
  // Version 1: reclaim because a group hits a limit, its own or an ancestor's, never swaps
  // (memory.swappiness = 0; memory.memsw limit = memory limit once a limit is set). Reclaim because
  // the whole machine is short of memory still may: the kernel's cgroup-v1/memory.rst, 2.4.2, says
  // that a group cannot forbid it, and mm/vmscan.c get_scan_count() scans anonymous and shmem pages
  // whatever the swappiness once little page cache is left. So this is no guarantee. (Seen on
  // Linux 6.1: of 96 MiB of shmem in such a group 55 MiB went to swap when the rest of the machine
  // filled its memory; with version 2's barrier, none.)
  limit_reclaim,
  // Version 2: memory.swap.max = 0. No swap slot is ever given to a page of the group, whoever
  // reclaims.
  complete,
};

// A child group made for one run. Removed by its destructor, or by sweep_stale_groups() of a later
// run when the creator was killed: its name carries the creator's pid and start time.
class ChildGroup {
 public:
  // Makes a group under the one this process is in (version 1, and version 2 when that is the
  // root), else (version 2) beside it or beside the nearest ancestor that allows it: the
  // no-internal-process rule forbids children with controllers below a group that holds processes.
  // A group made beside ours escapes the limits of the groups between; set_limit() upholds them.
  // Raises the highest swap barrier there is before any process can enter, with or without a limit.
  // cgroup_denied, with the reason for every place tried, when this user may not.
  static Result<ChildGroup> create(const MemoryCgroup& self, const Roots& roots = {});

  ChildGroup(ChildGroup&&) noexcept;
  ChildGroup& operator=(ChildGroup&&) noexcept;
  ChildGroup(const ChildGroup&) = delete;
  ChildGroup& operator=(const ChildGroup&) = delete;
  // A forked child that does not exec must leave by _exit(2): the group is its parent's to remove.
  // Waits up to 2 seconds for exiting processes to leave. Ends none: a group that still holds some
  // stays, for sweep_stale_groups().
  ~ChildGroup();

  // Moves the calling process into the group. For use in a child between fork and exec: opens
  // nothing, allocates nothing; returns 0 or errno.
  int enter_self() const;

  // Limits the group to `bytes`, rounded up to a page, but never above ceiling(); kNoLimit lifts it
  // (to the ceiling). Refuses (cgroup_denied) to go below what is charged and cannot be reclaimed:
  // version 2 would kill a process to get there.
  Result<void> set_limit(std::uint64_t bytes);
  Result<CgroupFigures> figures() const;

  SwapBarrier swap_barrier() const { return swap_barrier_; }
  // True when the kernel refuses all swap for this group (I-3); never on version 1.
  bool swap_forbidden() const { return swap_barrier_ == SwapBarrier::complete; }
  // The smallest limit of the groups around this process that do not contain the new group.
  std::uint64_t ceiling() const { return ceiling_; }
  CgroupVersion version() const { return version_; }
  const std::string& path() const { return path_; }

 private:
  ChildGroup() = default;
  std::string path_;  // empty: moved from
  CgroupVersion version_ = CgroupVersion::none;
  SwapBarrier swap_barrier_ = SwapBarrier::none;
  std::uint64_t ceiling_ = kNoLimit;
  Fd procs_;
};

// Removes child groups left behind by runs whose process is gone; those that still hold processes
// stay. Returns how many were removed.
int sweep_stale_groups(const MemoryCgroup& self, const Roots& roots = {});

}  // namespace resid::host

#pragma once
// One replay: a workload consumed under one arm, in a process and control group of its own, from a
// cold cache, with everything that is needed to judge it.
//
//   P-1  Every arm runs in a child process, in a control group whose limit is the budget plus what
//        the process itself holds once it is ready to start, plus a small slack: equal memory.
//   P-2  The store is not in the page cache when the child starts; that is verified.
//   P-3  What the child learns lies in shared memory: a child that is killed leaves what it had.
//   P-4  OPT is computed from the reference records of this very run, for the room that the arm
//   had:
//        the budget, or for the kernel's arms all that their group lets the page cache have.
//   P-5  An arm that seems to have read less than OPT has been measured wrongly: that is a failure.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "pager/pager.hpp"
#include "replay/arms.hpp"
#include "replay/driver.hpp"
#include "storage/bandwidth.hpp"
#include "storage/page_cache.hpp"

namespace resid {

struct TracePaths {
  std::string reference, fault, fetch, victim;  // empty: not written
};

struct ReplayConfig {
  ArmKind arm = ArmKind::d;
  std::optional<Advice> advice;  // arms A, B; nothing: the faster of normal and sequential
  PagerConfig pager;             // budget, policy, prefetch, ...; of arm B, budget and depth
  DriveConfig drive;
  bool probe = true;       // measure bandwidth and compute time first
  bool use_cgroup = true;  // off: the pager alone keeps the budget; A and B cannot run then
  // What the arm's page tables, stacks and bookkeeping may take beside the budget; the same for all
  // arms. Nothing: 2 MiB and a 128th of the store.
  std::optional<std::int64_t> slack_bytes;
  TracePaths traces;
  std::string config_hash;                                                // written into traces
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes consumed
  const std::atomic<bool>* stop = nullptr;
};

// The offline optimum of the run's own reference records, in bytes.
struct ReplayOptimum {
  std::uint64_t bytes = 0;  // at least this much must be read; exactly, when `exact`
  std::uint64_t feasible_bytes = 0;
  bool exact = false;
};

struct ReplayResult {
  // False: this budget could not be run; `censored_reason` says why, what follows holds up to
  // there.
  bool censored = false;
  std::string censored_reason;

  std::uint64_t bytes_read = 0;  // from the store: by the pager's count, or by the kernel's
  std::optional<std::uint64_t> kernel_read_bytes;  // of the process, whatever the arm
  std::vector<std::uint64_t> bytes_by_pass;
  std::uint64_t consumed_bytes = 0;
  double wall_s = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch = 0;  // the access, counted from 0
  std::optional<ReplayOptimum> optimum;
  std::optional<std::uint64_t> floor_bytes;  // cyclic scans only
  std::optional<Bandwidth> bandwidth;
  std::optional<double> compute_s_per_pass;  // with everything resident
  std::optional<double> roofline_bytes_per_s;
  std::optional<CachedBytes> cold;  // what was cached when the child started
  std::optional<Advice> advice;
  std::vector<std::pair<Advice, double>> advice_tried;  // with seconds
  std::uint64_t group_limit = 0;                        // 0: none
  std::uint64_t group_need = 0;                         // P-1: the process itself, and the slack
  std::uint64_t granted_bytes = 0;                      // P-4: the limit less the process itself
  std::string swap_guarantee;
  std::uint64_t trace_dropped = 0;
  // Of arms C, D, E.
  bool paged = false;
  std::string uffd_route;
  bool budget_kept = false;
  std::uint64_t resident_peak_bytes = 0;
  std::uint64_t kernel_peak_bytes = 0;
  std::uint64_t faults_missing = 0, faults_minor = 0, evictions = 0, infeasible = 0;
  std::uint64_t dedup_fetching = 0, dedup_resident = 0, queue_high_water = 0;
  std::uint64_t reconcile_checks = 0, reconcile_max_divergence = 0;
  struct {
    std::uint64_t issued = 0, useful = 0, late = 0, wasted = 0, declined = 0, pin_broken = 0;
  } prefetch;
  std::uint64_t fault_p50_ns = 0, fault_p99_ns = 0, read_p50_ns = 0;
};

// Statuses: cgroup_denied (A, B without a group), system (the store stays warm, the child died),
// write_failed (a trace), interrupted runs as Status::system; whatever the pager fails with.
Result<ReplayResult> replay(const Workload& workload, const ReplayConfig& config);

}  // namespace resid

#include "replay/replay.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "host/cgroup.hpp"
#include "host/memory.hpp"
#include "replay/calibrate.hpp"
#include "replay/disk_reads.hpp"
#include "replay/optimum.hpp"
#include "replay/shared_area.hpp"
#include "replay/trace_files.hpp"
#include "storage/store.hpp"
#include "trace/optimum.hpp"

namespace resid {
namespace {

constexpr timespec kTick{0, 2'000'000};
constexpr std::uint64_t kMostAccesses = 1ULL << 26;  // 1 GiB of records

// ---- In the child

[[noreturn]] void run_arm(const Workload& workload, const ReplayConfig& config,
                          std::optional<Advice> advice, const host::ChildGroup* group, pid_t parent,
                          ReplayPage& page) {
  const auto give_up = [&page](const Failure& failure) {
    end_on_failure(&page, failure.status, failure.line().c_str());
  };
  try {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before it could be waited for
    if (group != nullptr) {
      if (const int error = group->enter_self(); error != 0) {
        give_up(fail_errno(Status::cgroup_denied, group->path(), error).value());
      }
    }
    const DiskReads reads;
    auto arm = is_kernel(config.arm)
                   ? make_kernel_arm(workload, config.arm, advice.value_or(Advice::normal),
                                     config.pager.budget_bytes, config.pager.prefetch_depth)
                   : make_pager_arm(workload, config.pager, page.stats, &end_on_failure, &page);
    if (!arm) give_up(arm.error());
    auto driver = Driver::make(workload, config.drive, **arm, page.drive);
    if (!driver) give_up(driver.error());
    const std::string_view route = (*arm)->uffd_route();
    route.copy(page.uffd_route, sizeof page.uffd_route - 1);
    page.phase.store(ReplayPhase::ready);
    while (page.phase.load() != ReplayPhase::go)
      ::nanosleep(&kTick, nullptr);
    page.ring.start_ns.store(now_ns());
    (*driver)->run();
    page.bytes_read.store((*arm)->bytes_read());
    const auto read = reads.bytes();
    page.kernel_counts.store(read.has_value());
    page.kernel_read_bytes.store(read.value_or(0));
    page.phase.store(ReplayPhase::done);
  } catch (const std::exception& e) {
    give_up({Status::internal, "replay", e.what(), {}});
  }
  // Not through the pager's destructor: the group is the parent's to remove.
  ::_exit(0);
}

// ---- In the parent

struct Surroundings {
  std::optional<host::ChildGroup> group;
  host::SwapGuarantee guarantee = host::SwapGuarantee::none;
};

Result<Surroundings> prepare_group(const ReplayConfig& config) {
  Surroundings out;
  auto memory = host::memory_facts();
  if (!memory) return tl::unexpected(memory.error());
  host::MemoryCgroup self;
  auto found = host::memory_cgroup();
  if (found) self = std::move(*found);
  if (config.use_cgroup) {
    if (!found) return tl::unexpected(found.error());
    host::sweep_stale_groups(self);
    auto group = host::ChildGroup::create(self);
    if (group) {
      out.group.emplace(std::move(*group));
    } else if (is_kernel(config.arm)) {
      return tl::unexpected(group.error());
    }
  } else if (is_kernel(config.arm)) {
    return fail(Status::cgroup_denied, fmt::format("arm {}", name(config.arm)),
                "only a control group can hold the kernel to a budget",
                "run as root, without --no-cgroup");
  }
  if (is_kernel(config.arm)) return out;
  auto guarantee = host::swap_guarantee(*memory, self, out.group ? &*out.group : nullptr,
                                        config.pager.budget_bytes);  // I-3
  if (!guarantee) return tl::unexpected(guarantee.error());
  out.guarantee = *guarantee;
  return out;
}

// A started child; killed if it is still there at the end.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // True once it has ended; then `status` is as of waitpid(2).
  bool ended(int& status) {
    if (pid_ <= 0) return true;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = -1;
    return true;
  }

 private:
  pid_t pid_;
};

std::int64_t slack(const ReplayConfig& config, std::uint64_t store_bytes) {
  return config.slack_bytes.value_or(static_cast<std::int64_t>(store_bytes / 128) +
                                     2 * 1024 * 1024);
}

struct Attempt {
  const Workload& workload;
  const ReplayConfig& config;
  std::optional<Advice> advice;
  ReplayResult result;
  StoreIdentity identity{};

  Result<void> cool();
  Result<void> limit_group(host::ChildGroup& group);
  Result<void> run();
  Result<void> judge(const ReplayPage& page, int status, const host::ChildGroup* group);
  Result<void> compare(std::span<const TraceRecord> references);
  void collect(const ReplayPage& page);
};

Result<void> Attempt::cool() {  // P-2
  auto left = drop_cached(workload.fd.get(), workload.file.bytes, workload.path);
  if (!left) return tl::unexpected(left.error());
  if (left->bytes != 0) {
    return fail(Status::system, workload.path,
                fmt::format("{} of it stay in the page cache ({})", format_bytes(left->bytes),
                            name(left->source)),
                "end the programs that map it, then start again");
  }
  result.cold = *left;
  return {};
}

Result<void> Attempt::limit_group(host::ChildGroup& group) {  // P-1
  auto figures = group.figures();
  if (!figures) return tl::unexpected(figures.error());
  auto beside = static_cast<std::int64_t>(figures->usage) + slack(config, workload.file.bytes);
  // The memory that the pager reads into is page cache to the kernel's arms.
  if (!is_pager(config.arm)) {
    beside += static_cast<std::int64_t>(
        Pager::overhead_bytes_for(workload.plan.largest(), config.pager.budget_bytes));
  }
  result.group_need = static_cast<std::uint64_t>(std::max<std::int64_t>(beside, 0));
  // A slack below zero takes from the budget: how a test makes the kernel end an arm.
  result.group_limit =
      static_cast<std::uint64_t>(static_cast<std::int64_t>(config.pager.budget_bytes) + beside);
  // What the slack does not cover is page cache to the kernel's arms, and they are judged by it.
  result.granted_bytes = result.group_limit - std::min(result.group_limit, figures->usage);
  return group.set_limit(result.group_limit);
}

void Attempt::collect(const ReplayPage& page) {
  const PagerStats& s = page.stats;
  ReplayResult& r = result;
  const std::uint64_t n = workload.sequence.size();
  const std::uint64_t passes_done = page.drive.consumed / n;
  r.bytes_by_pass.assign(page.drive.read_by_pass, page.drive.read_by_pass + passes_done);
  r.consumed_bytes = 0;
  for (std::uint64_t i = 0; i < page.drive.consumed; ++i)
    r.consumed_bytes += workload.plan[workload.sequence[i % n]].bytes;
  r.wall_s = static_cast<double>(page.drive.wall_ns) / 1e9;
  r.bytes_read = page.bytes_read;
  if (page.kernel_counts) r.kernel_read_bytes = page.kernel_read_bytes;
  r.uffd_route = page.uffd_route;
  r.mismatches = page.drive.mismatches;
  r.first_mismatch = page.drive.first_mismatch;
  r.trace_dropped = page.ring.dropped;
  r.paged = is_pager(config.arm);
  if (!r.paged) return;
  if (page.phase != ReplayPhase::done) r.bytes_read = s.bytes_fetched;
  r.resident_peak_bytes = s.resident_peak_bytes;
  r.kernel_peak_bytes = s.kernel_peak_bytes;
  const std::uint64_t allowed = config.pager.budget_bytes + workload.plan.largest();
  r.budget_kept = s.resident_peak_bytes <= config.pager.budget_bytes &&
                  s.kernel_peak_bytes <= allowed && s.kernel_peak_bytes != 0;
  r.faults_missing = s.faults_missing;
  r.faults_minor = s.faults_minor;
  r.evictions = s.evictions;
  r.infeasible = s.infeasible;
  r.dedup_fetching = s.dedup_fetching;
  r.dedup_resident = s.dedup_resident;
  r.queue_high_water = s.queue_high_water;
  r.reconcile_checks = s.reconcile_checks;
  r.reconcile_max_divergence = s.reconcile_max_divergence_bytes;
  r.prefetch = {s.prefetch_issued, s.prefetch_useful,   s.prefetch_late,
                s.prefetch_wasted, s.prefetch_declined, s.prefetch_pin_broken};
  r.fault_p50_ns = s.fault_ns.quantile(0.5);
  r.fault_p99_ns = s.fault_ns.quantile(0.99);
  r.read_p50_ns = s.read_ns.quantile(0.5);
}

Result<void> Attempt::judge(const ReplayPage& page, int status, const host::ChildGroup* group) {
  StoreIdentity now;
  int error = 0;
  if (!store_identity(workload.fd.get(), now, error) || !(now == identity)) {  // I-16
    return fail(Status::store_changed, workload.path, "it was changed while it was read");
  }
  const auto failed = static_cast<Status>(page.status.load());
  if (failed == Status::infeasible || failed == Status::budget_too_small) {
    result.censored = true;
    result.censored_reason = page.error;
    return {};
  }
  if (failed != Status::ok) {
    // Its line is whole already: `residctl: what : why : what to do`.
    std::string line = page.error;
    constexpr std::string_view kStart = "residctl: ";
    if (line.starts_with(kStart)) line.erase(0, kStart.size());
    const std::size_t a = line.find(" : ");
    const std::size_t b = a == std::string::npos ? a : line.rfind(" : ");
    if (b == std::string::npos || b == a) return fail(failed, "replay", line);
    return fail(failed, line.substr(0, a), line.substr(a + 3, b - a - 3), line.substr(b + 3));
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGKILL && group != nullptr) {
      const auto figures = group->figures();
      if (figures && figures->oom_kills != 0) {
        result.censored = true;
        result.censored_reason = fmt::format("killed by the kernel at its group's limit of {}",
                                             format_bytes(result.group_limit));
        return {};
      }
    }
    return fail(Status::system, fmt::format("arm {}", name(config.arm)),
                fmt::format("its process died of signal {} ({})", signal, ::strsignal(signal)),
                signal == SIGKILL ? "see dmesg: the machine may be out of memory"
                                  : "please report this bug");
  }
  if (page.phase != ReplayPhase::done) {
    return fail(Status::internal, fmt::format("arm {}", name(config.arm)),
                "its process ended early");
  }
  if (!config.traces.victim.empty() || !config.traces.fetch.empty() ||
      !config.traces.fault.empty()) {
    if (result.trace_dropped != 0) {
      return fail(
          Status::system, "trace",
          fmt::format("{} events came faster than they could be written", result.trace_dropped),
          "write the traces to a faster disk");
    }
  }
  return {};
}

Result<void> Attempt::run() {
  auto surroundings = prepare_group(config);
  if (!surroundings) return tl::unexpected(surroundings.error());
  result.swap_guarantee = host::name(surroundings->guarantee);
  host::ChildGroup* group = surroundings->group ? &*surroundings->group : nullptr;
  auto area = SharedArea::make(workload.sequence.size() * config.drive.passes, config.drive.passes);
  if (!area) return tl::unexpected(area.error());
  ReplayPage& page = area->page();
  ReplayConfig mine = config;
  mine.pager.noswap = surroundings->guarantee == host::SwapGuarantee::noswap_mount;
  mine.pager.lock_pages = surroundings->guarantee == host::SwapGuarantee::mlocked;
  mine.pager.trace = &page.ring;
  auto traces = TraceFiles::create(workload, config, page.ring);
  if (!traces) return tl::unexpected(traces.error());
  if (auto ok = cool(); !ok) return ok;

  int error = 0;
  if (!store_identity(workload.fd.get(), identity, error)) {
    return fail_errno(Status::unreadable, workload.path, error);
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(Status::system, "fork", errno);
  if (pid == 0) run_arm(workload, mine, advice, group, parent, page);
  Child child(pid);
  int status = 0;
  const std::uint64_t total = workload.sequence_bytes() * config.drive.passes;
  for (bool ended = false; !ended;) {
    ended = child.ended(status);
    if (page.phase == ReplayPhase::ready) {
      if (group != nullptr) {
        if (auto ok = limit_group(*group); !ok) return ok;
      }
      page.phase.store(ReplayPhase::go);
    }
    if (auto ok = traces->drain(); !ok) return ok;
    if (config.stop != nullptr && config.stop->load()) {
      return fail(Status::system, "replay", "interrupted", "start it again");
    }
    if (config.progress) {
      const std::uint64_t accesses = workload.sequence.size() * config.drive.passes;
      const auto share = static_cast<double>(page.drive.consumed) / static_cast<double>(accesses);
      config.progress(static_cast<std::uint64_t>(share * static_cast<double>(total)), total);
    }
    if (!ended) ::nanosleep(&kTick, nullptr);
  }
  result.advice =
      is_kernel(config.arm) ? std::optional(advice.value_or(Advice::normal)) : std::nullopt;
  collect(page);
  if (auto ok = judge(page, status, group); !ok) return ok;
  if (result.censored) return {};  // half a trace is none: its files go
  const std::span<const TraceRecord> references(page.drive.references, page.drive.started);
  if (auto ok = traces->finish(references); !ok) return ok;
  return compare(references);
}

// P-4, P-5.
Result<void> Attempt::compare(std::span<const TraceRecord> references) {
  const std::uint64_t room =
      is_kernel(config.arm) ? result.granted_bytes : config.pager.budget_bytes;
  auto optimum = optimum_of(workload, references, config, room);
  if (!optimum) return tl::unexpected(optimum.error());
  result.optimum = *optimum;
  if (result.mismatches == 0 && result.bytes_read < optimum->bytes) {
    return fail(Status::internal, fmt::format("arm {}", name(config.arm)),
                fmt::format("it seems to have read {} bytes where {} cannot be avoided",
                            result.bytes_read, optimum->bytes));
  }
  return {};
}

Result<ReplayResult> run_once(const Workload& workload, const ReplayConfig& config,
                              std::optional<Advice> advice) {
  Attempt attempt{workload, config, advice, {}};
  if (auto ok = attempt.run(); !ok) return tl::unexpected(ok.error());
  return std::move(attempt.result);
}

Result<ReplayResult> run_kernel_arm(const Workload& workload, const ReplayConfig& config) {
  if (config.advice || config.arm == ArmKind::b) {
    return run_once(workload, config, config.advice.value_or(Advice::normal));
  }
  // Two passes of each decide which is the best here and now; then comes one whole run of it, as
  // every other arm has one.
  ReplayConfig trial = config;
  trial.drive.passes = std::min(config.drive.passes, 2U);
  trial.traces = {};
  std::vector<std::pair<Advice, double>> tried;
  Advice best = Advice::normal;
  double least = std::numeric_limits<double>::infinity();
  for (const Advice advice : {Advice::normal, Advice::sequential}) {
    auto result = run_once(workload, trial, advice);
    if (!result) return result;
    tried.emplace_back(advice, result->wall_s);
    if (result->censored || result->wall_s >= least) continue;
    best = advice;
    least = result->wall_s;
  }
  auto result = run_once(workload, config, best);
  if (result) result->advice_tried = std::move(tried);
  return result;
}

// No run: what the optimum of the workload's own sequence would read.
Result<ReplayResult> run_optimum(const Workload& workload, const ReplayConfig& config) {
  std::vector<TraceRecord> references;
  references.reserve(workload.sequence.size() * config.drive.passes);
  for (std::uint32_t pass = 0; pass < config.drive.passes; ++pass) {
    for (const std::uint32_t chunk : workload.sequence)
      references.push_back({references.size(), chunk, 0});
  }
  ReplayResult result;
  auto optimum = optimum_of(workload, references, config, config.pager.budget_bytes);
  if (!optimum) {
    if (optimum.error().status != Status::infeasible) return tl::unexpected(optimum.error());
    result.censored = true;
    result.censored_reason = optimum.error().line();
    return result;
  }
  result.optimum = *optimum;
  result.bytes_read = optimum->bytes;
  return result;
}

}  // namespace

Result<ReplayResult> replay(const Workload& workload, const ReplayConfig& config) {
  // One record each, in memory until the end.
  const std::uint64_t accesses = workload.sequence.size() * std::uint64_t{config.drive.passes};
  if (accesses > kMostAccesses) {
    return fail(Status::usage, "replay",
                fmt::format("{} passes over {} chunks are {} accesses; at most {} can be recorded",
                            config.drive.passes, workload.sequence.size(), accesses, kMostAccesses),
                "give fewer --passes or a larger --chunk");
  }
  std::optional<Calibration> calibration;
  if (config.probe) {
    auto measured = calibrate(workload, config.drive);
    if (!measured) return tl::unexpected(measured.error());
    calibration = *measured;
  }
  auto result = Result<ReplayResult>{};
  if (config.arm == ArmKind::opt) {
    result = run_optimum(workload, config);
  } else if (is_kernel(config.arm)) {
    result = run_kernel_arm(workload, config);
  } else {
    result = run_once(workload, config, std::nullopt);
  }
  if (!result) return result;
  const std::uint64_t room = is_kernel(config.arm) && result->granted_bytes != 0
                                 ? result->granted_bytes
                                 : config.pager.budget_bytes;
  result->floor_bytes =
      cyclic_floor_bytes(trace_header(workload, config, TraceKind::reference), room);
  if (calibration) {
    result->bandwidth = calibration->bandwidth;
    result->compute_s_per_pass = calibration->compute_s_per_pass;
    const auto referenced = static_cast<double>(workload.referenced_bytes());
    const auto budget = static_cast<double>(config.pager.budget_bytes);
    const double disk_s = std::max(0.0, referenced - budget) / calibration->bandwidth.bytes_per_s;
    // Where reads are not direct the cache has answered, and there is no roofline to speak of.
    if (calibration->bandwidth.direct) {
      result->roofline_bytes_per_s = static_cast<double>(workload.sequence_bytes()) /
                                     std::max(calibration->compute_s_per_pass, disk_s);
    }
  }
  return result;
}

}  // namespace resid

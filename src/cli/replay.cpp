// residctl replay: one workload under one arm, measured and judged.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/progress.hpp"
#include "replay/replay.hpp"

namespace resid::cli {
namespace {

struct Options {
  std::optional<std::string> size, model, store, make_store;
  std::string chunk = "2MiB";
  std::optional<double> ratio;
  std::string arm = "D";
  std::string advice = "best";
  std::uint32_t passes = 5;
  std::uint32_t threads = 1;
  std::uint64_t compute_ns_per_mib = 0;
  std::uint32_t lookahead_window = 0;
  std::string consumption_signal = "all-threads";
  bool no_probe = false;
  bool no_cgroup = false;
  TracePaths traces;
};

struct Settings {
  const Setting& ram;
  const Setting& policy;
  const Setting& prefetch_depth;
  const Setting& prefetch_admission;
  const Setting& prefetch_retention;
  const Setting& fetch_workers;
  const Setting& sync_handler;
  const Setting& eager_reconcile;
  const Setting& fetching_timeout_ms;
  const Setting& protect_current;
};

// The file of a synthetic store: the user's, or one of our own that goes at the end.
class StoreFile {
 public:
  ~StoreFile() { forget(); }
  // The name goes as soon as the file is open: however this process ends, nothing stays.
  void forget() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
  }
  Result<std::string> prepare(const Options& o, const std::atomic<bool>& stop) {
    if (o.store && !o.size) return *o.store;
    if (!o.size) {
      return fail(Status::usage, "replay", "nothing to read was named",
                  "give --size, --store or --model");
    }
    auto bytes = parse_bytes(*o.size, "--size");
    if (!bytes) return tl::unexpected(bytes.error());
    const std::uint64_t whole = page_up(*bytes);
    std::string path;
    if (o.store) {
      path = *o.store;
    } else {
      const char* folder = std::getenv("TMPDIR");
      path =
          fmt::format("{}/residctl-store.{}", folder != nullptr ? folder : "/var/tmp", ::getpid());
      temporary_ = path;
    }
    Progress progress("writing " + path);
    MakeStoreOptions options;
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
    options.stop = &stop;
    if (auto ok = make_store(path, whole, options); !ok) {
      temporary_.clear();
      return tl::unexpected(ok.error());
    }
    return path;
  }

 private:
  std::string temporary_;
};

// What can be known to be wrong before there is a store.
Result<void> check_budget(const Options& o, const Setting& ram) {
  if (o.ratio && ram.is_set() && ram.source == Source::command_line) {
    return fail(Status::usage, "--ratio", "--ram says how much memory already", "give one of them");
  }
  if (o.ratio && (!(*o.ratio > 0) || *o.ratio > 16)) {
    return fail(Status::usage, "--ratio", fmt::format("{} is no ratio", *o.ratio),
                "give a number above 0, as 0.5 for half of the model");
  }
  if (!o.ratio && !ram.is_set()) {
    return fail(Status::usage, "replay", "no budget was given", "give --ratio or --ram");
  }
  return {};
}

Result<std::uint64_t> budget_of(const Options& o, const Setting& ram, const Workload& w) {
  const std::uint64_t model = w.referenced_bytes();
  if (o.ratio) return page_down(static_cast<std::uint64_t>(static_cast<double>(model) * *o.ratio));
  auto size = parse_size(ram.value, ram.origin);
  if (!size) return tl::unexpected(size.error());
  return page_down(size->resolve(model));
}

std::string policy_of(ArmKind arm, const Setting& policy) {
  if (policy.source == Source::command_line) return policy.value;
  return arm == ArmKind::c ? "lru" : "layer_order_declared";
}

// Everything that decides what a replay does, in a fixed order and spelling.
std::string config_text(const Workload& w, const ReplayConfig& c, const Options& o) {
  return fmt::format(
      "store={:016x};bytes={};chunk={};arm={};advice={};budget={};passes={};threads={};compute={};"
      "lookahead={};signal={};policy={};depth={};guarded={};pinned={};workers={};sync={};eager={};"
      "timeout={};protect={};cgroup={}",
      w.fingerprint, w.file.bytes, w.plan.largest(), name(c.arm), o.advice, c.pager.budget_bytes,
      c.drive.passes, c.drive.threads, c.drive.compute_ns_per_mib, c.drive.lookahead,
      o.consumption_signal, c.pager.policy, c.pager.prefetch_depth, c.pager.prefetch_guarded,
      c.pager.prefetch_pinned, c.pager.fetch_workers, c.pager.sync_handler, c.pager.eager_reconcile,
      c.pager.fetching_timeout_ms, c.pager.protect_current, c.use_cgroup);
}

// All but the budget, which hangs on the workload.
Result<ReplayConfig> config_of(const Options& o, const Settings& s) {
  ReplayConfig c;
  auto arm = parse_arm(o.arm);
  if (!arm) return tl::unexpected(arm.error());
  c.arm = *arm;
  if (o.advice != "best") {
    auto advice = parse_advice(o.advice);
    if (!advice) return tl::unexpected(advice.error());
    c.advice = *advice;
  }
  c.pager.policy = policy_of(c.arm, s.policy);
  const auto depth = static_cast<std::uint32_t>(s.prefetch_depth.count());
  // Only E prefetches; B asks the kernel as far ahead as E would.
  c.pager.prefetch_depth = c.arm == ArmKind::e || c.arm == ArmKind::b ? depth : 0;
  c.pager.prefetch_guarded = s.prefetch_admission.value == "guarded";
  c.pager.prefetch_pinned = s.prefetch_retention.value == "pinned";
  c.pager.fetch_workers = static_cast<std::uint32_t>(s.fetch_workers.count());
  c.pager.sync_handler = s.sync_handler.is_on();
  c.pager.eager_reconcile = s.eager_reconcile.is_on();
  c.pager.fetching_timeout_ms = static_cast<std::uint32_t>(s.fetching_timeout_ms.count());
  c.pager.protect_current = s.protect_current.is_on();
  c.drive.passes = o.passes;
  c.drive.threads = o.threads;
  c.drive.compute_ns_per_mib = o.compute_ns_per_mib;
  c.drive.lookahead = o.lookahead_window;
  if (o.consumption_signal == "tid0") {
    c.drive.signal = ConsumptionSignal::thread0;
  } else if (o.consumption_signal != "all-threads") {
    return fail(Status::usage, "--consumption-signal",
                fmt::format("unknown signal '{}'", o.consumption_signal),
                "give tid0 or all-threads");
  }
  c.probe = !o.no_probe;
  c.use_cgroup = !o.no_cgroup;
  c.traces = o.traces;
  const TracePaths& t = o.traces;
  const bool events = !t.fault.empty() || !t.fetch.empty() || !t.victim.empty();
  if (events && !is_pager(c.arm)) {
    return fail(Status::usage, fmt::format("arm {}", name(c.arm)),
                "only the pager's arms have faults, fetches and victims to trace",
                "trace arm C, D or E");
  }
  if (!t.reference.empty() && c.arm == ArmKind::opt) {
    return fail(Status::usage, "arm OPT", "nothing runs, so there are no references to trace",
                "trace another arm");
  }
  return c;
}

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Figures that an arm has no way to know are null, never 0.
Json to_json(const Workload& w, const ReplayConfig& c, const ReplayResult& r) {
  const bool ran = c.arm != ArmKind::opt;
  const bool whole = ran && !r.censored;
  const auto budget = static_cast<double>(c.pager.budget_bytes);
  Json j{{"schema", 1},
         {"arm", name(c.arm)},
         {"ratio", budget / static_cast<double>(w.referenced_bytes())},
         {"store", w.path},
         {"store_bytes", w.file.bytes},
         {"referenced_bytes", w.referenced_bytes()},
         {"chunks", w.plan.size()},
         {"chunk_bytes", w.plan.largest()},
         {"passes", c.drive.passes},
         {"threads", c.drive.threads},
         {"compute_ns_per_mib", c.drive.compute_ns_per_mib},
         {"budget_bytes", c.pager.budget_bytes},
         {"bytes_read", r.censored ? Json(nullptr) : Json(r.bytes_read)},
         {"kernel_read_bytes", whole ? or_null(r.kernel_read_bytes) : Json(nullptr)},
         {"bytes_by_pass", r.bytes_by_pass},
         {"opt_bytes", r.optimum ? Json(r.optimum->bytes) : Json(nullptr)},
         {"opt_feasible_bytes", r.optimum ? Json(r.optimum->feasible_bytes) : Json(nullptr)},
         {"opt_exact", r.optimum ? Json(r.optimum->exact) : Json(nullptr)},
         {"bytes_over_opt", r.optimum && !r.censored ? Json(static_cast<double>(r.bytes_read) /
                                                            static_cast<double>(r.optimum->bytes))
                                                     : Json(nullptr)},
         {"floor_bytes", or_null(r.floor_bytes)},
         {"wall_s", whole ? Json(r.wall_s) : Json(nullptr)},
         {"consumed_bytes", ran ? Json(r.consumed_bytes) : Json(nullptr)},
         {"achieved_bytes_per_s",
          whole ? Json(static_cast<double>(r.consumed_bytes) / r.wall_s) : Json(nullptr)},
         {"probe_bytes_per_s", r.bandwidth ? Json(r.bandwidth->bytes_per_s) : Json(nullptr)},
         {"probe_depth", r.bandwidth ? Json(r.bandwidth->depth) : Json(nullptr)},
         {"probe_direct", r.bandwidth ? Json(r.bandwidth->direct) : Json(nullptr)},
         {"compute_s_per_pass", or_null(r.compute_s_per_pass)},
         {"roofline_bytes_per_s", or_null(r.roofline_bytes_per_s)},
         {"mismatches", ran ? Json(r.mismatches) : Json(nullptr)},
         {"budget_kept", r.paged ? Json(r.budget_kept) : Json(nullptr)},
         {"resident_peak_bytes", r.paged ? Json(r.resident_peak_bytes) : Json(nullptr)},
         {"kernel_peak_bytes", r.paged ? Json(r.kernel_peak_bytes) : Json(nullptr)},
         {"group_limit_bytes", r.group_limit != 0 ? Json(r.group_limit) : Json(nullptr)},
         {"group_need_bytes", r.group_limit != 0 ? Json(r.group_need) : Json(nullptr)},
         {"granted_bytes", r.group_limit != 0 ? Json(r.granted_bytes) : Json(nullptr)}};
  if (r.paged) {
    j["faults"] = {{"missing", r.faults_missing}, {"minor", r.faults_minor}};
    j["dedup"] = {{"fetching", r.dedup_fetching}, {"resident", r.dedup_resident}};
    j["evictions"] = r.evictions;
    j["infeasible"] = r.infeasible;
    j["queue_high_water"] = r.queue_high_water;
    const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000; };
    j["latency_us"] = {{"fault_p50", us(r.fault_p50_ns)},
                       {"fault_p99", us(r.fault_p99_ns)},
                       {"read_p50", us(r.read_p50_ns)}};
    j["prefetch"] = {{"issued", r.prefetch.issued},     {"useful", r.prefetch.useful},
                     {"late", r.prefetch.late},         {"wasted", r.prefetch.wasted},
                     {"declined", r.prefetch.declined}, {"pin_broken", r.prefetch.pin_broken}};
    j["reconcile"] = {{"checks", r.reconcile_checks},
                      {"max_divergence_bytes", r.reconcile_max_divergence}};
    j["uffd_route"] = r.uffd_route;
    j["swap_guarantee"] = r.swap_guarantee;
  } else {
    for (const char* key : {"faults", "dedup", "evictions", "infeasible", "queue_high_water",
                            "latency_us", "prefetch", "reconcile", "uffd_route", "swap_guarantee"})
      j[key] = nullptr;
  }
  j["cold"] = r.cold ? Json{{"checked_by", name(r.cold->source)}, {"cached_bytes", r.cold->bytes}}
                     : Json(nullptr);
  j["policy"] = r.paged ? Json(c.pager.policy) : Json(nullptr);
  j["advice"] = r.advice ? Json(name(*r.advice)) : Json(nullptr);
  for (const auto& [advice, seconds] : r.advice_tried)
    j["advice_tried"][std::string(name(advice))] = seconds;
  j["censored"] = r.censored;
  j["censored_reason"] = r.censored ? Json(r.censored_reason) : Json(nullptr);
  j["config_hash"] = c.config_hash;
  return j;
}

void print_text(const Workload& w, const ReplayConfig& c, const ReplayResult& r) {
  fmt::print(
      "arm {}: {} in {} chunks, {} passes, budget {} ({:.1f} %)\n", name(c.arm),
      format_bytes(w.referenced_bytes()), w.plan.size(), c.drive.passes,
      format_bytes(c.pager.budget_bytes),
      100 * static_cast<double>(c.pager.budget_bytes) / static_cast<double>(w.referenced_bytes()));
  if (r.censored) {
    fmt::print("  censored: {}\n", r.censored_reason);
    return;
  }
  const auto bytes = static_cast<double>(r.bytes_read);
  fmt::print("  read        {}", format_bytes(r.bytes_read));
  if (r.optimum) {
    fmt::print(", {:.4f} of the optimum {}{}", bytes / static_cast<double>(r.optimum->bytes),
               format_bytes(r.optimum->bytes), r.optimum->exact ? "" : " (a lower bound)");
  }
  if (r.floor_bytes) fmt::print(", floor {}", format_bytes(*r.floor_bytes));
  fmt::print("\n");
  if (c.arm == ArmKind::opt) return;
  fmt::print(
      "  consumed    {} in {:.2f} s, {}/s", format_bytes(r.consumed_bytes), r.wall_s,
      format_bytes(static_cast<std::uint64_t>(static_cast<double>(r.consumed_bytes) / r.wall_s)));
  if (r.roofline_bytes_per_s) {
    fmt::print(" (roofline {}/s)",
               format_bytes(static_cast<std::uint64_t>(*r.roofline_bytes_per_s)));
  }
  fmt::print("\n  mismatches  {}\n", r.mismatches);
  if (r.paged) {
    fmt::print("  faults      {} missing, {} minor; p50 {:.0f} us, p99 {:.0f} us\n",
               r.faults_missing, r.faults_minor, static_cast<double>(r.fault_p50_ns) / 1000,
               static_cast<double>(r.fault_p99_ns) / 1000);
    fmt::print("  budget      {}: at most {} by our count, {} by the kernel's\n",
               r.budget_kept ? "kept" : "NOT KEPT", format_bytes(r.resident_peak_bytes),
               format_bytes(r.kernel_peak_bytes));
  }
  if (r.advice) fmt::print("  advice      {}\n", name(*r.advice));
}

Result<int> judge(const ReplayConfig& c, const ReplayResult& r) {
  if (r.mismatches != 0) {
    return fail(Status::internal, fmt::format("arm {}", name(c.arm)),
                fmt::format("{} reads gave wrong bytes, the first at access {}", r.mismatches,
                            r.first_mismatch),
                "this is a bug, please report it");
  }
  if (r.censored) return exit_code(Status::infeasible);
  if (r.paged && !r.budget_kept) {
    return fail(Status::accounting_diverged, fmt::format("arm {}", name(c.arm)),
                fmt::format("{} of memory were held, by the kernel's count {}, with a budget of {}",
                            format_bytes(r.resident_peak_bytes), format_bytes(r.kernel_peak_bytes),
                            format_bytes(c.pager.budget_bytes)));
  }
  return 0;
}

Result<int> make_only(const Options& o, const Context& context) {
  if (!o.size) {
    return fail(Status::usage, "--make-store", "its size is missing", "give --size too");
  }
  StopSignals signals;
  StoreFile store;
  Options make = o;
  make.store = o.make_store;
  auto made = store.prepare(make, signals.flag());
  if (!made) {
    signals.resume_default();
    return tl::unexpected(made.error());
  }
  if (context.json) fmt::print("{}\n", Json{{"schema", 1}, {"store", *made}}.dump(2));
  return 0;
}

// The workload, and the store file only as long as it has a name.
Result<Workload> workload_of(const Options& o, const std::atomic<bool>& stop) {
  auto chunk = parse_chunk(o.chunk, "--chunk");
  if (!chunk) return tl::unexpected(chunk.error());
  if (o.model) return Workload::model(*o.model, *chunk, &stop);
  if (!o.size && !o.store) {
    return fail(Status::usage, "replay", "nothing to read was named",
                "give --size, --store or --model");
  }
  StoreFile store;
  auto path = store.prepare(o, stop);
  if (!path) return tl::unexpected(path.error());
  auto workload = Workload::scan(*path, *chunk);
  store.forget();
  return workload;
}

Result<int> act(const Options& o, const Settings& s, const Context& context) {
  if (o.make_store) return make_only(o, context);
  if (o.model && (o.size || o.store)) {
    return fail(Status::usage, "--model", "a synthetic store was named as well",
                "give either --model, or --size and --store");
  }
  auto config = config_of(o, s);
  if (!config) return tl::unexpected(config.error());
  if (auto ok = check_budget(o, s.ram); !ok) return tl::unexpected(ok.error());

  StopSignals signals;
  const auto stopped = [&](Failure failure) {
    signals.resume_default();
    return tl::unexpected(std::move(failure));
  };
  auto workload = workload_of(o, signals.flag());
  if (!workload) return stopped(workload.error());
  auto budget = budget_of(o, s.ram, *workload);
  if (!budget) return tl::unexpected(budget.error());
  config->pager.budget_bytes = *budget;
  config->config_hash = fmt::format("{:016x}", fnv1a(config_text(*workload, *config, o)));
  config->stop = &signals.flag();
  config->drive.stop = config->stop;
  auto progress = std::make_unique<Progress>(fmt::format("arm {}", name(config->arm)));
  config->progress = [&](std::uint64_t done, std::uint64_t total) { progress->show(done, total); };
  auto result = replay(*workload, *config);
  progress.reset();
  if (!result) return stopped(result.error());
  signals.resume_default();  // asked to stop at the very end: dies of it here
  if (context.json) {
    fmt::print("{}\n", to_json(*workload, *config, *result).dump(2));
  } else {
    print_text(*workload, *config, *result);
  }
  return judge(*config, *result);
}

Settings add_settings(Verb& verb) {
  return {
      .ram = verb.setting("ram", size_value(), "", "The budget; or --ratio"),
      .policy = verb.setting("policy", policy_value(), "auto",
                             "Which chunk is given up first; auto: what the arm stands for"),
      .prefetch_depth = verb.setting("prefetch-depth", count_value(1, 4096), "4",
                                     "How many chunks ahead (arms B and E)"),
      .prefetch_admission = verb.setting("prefetch-admission", choice_value({"guarded", "always"}),
                                         "guarded", "May a prefetch evict what is needed sooner"),
      .prefetch_retention = verb.setting("prefetch-retention", choice_value({"pinned", "none"}),
                                         "pinned", "Keep a prefetched chunk until it is used"),
      .fetch_workers = verb.setting("fetch-workers", count_value(1, 256), "4",
                                    "Threads that fill in what was read"),
      .sync_handler = verb.setting("sync-handler", switch_value(), "",
                                   "Fetch on the fault thread, for comparison"),
      .eager_reconcile = verb.setting("eager-reconcile", switch_value(), "",
                                      "Check the accounting after every fetch"),
      .fetching_timeout_ms = verb.setting("fetching-timeout-ms", count_value(1, 3'600'000), "30000",
                                          "When a fetch that nobody carries is given up"),
      .protect_current = verb.setting("protect-current", switch_value(), "",
                                      "Never give up the chunk at the position or before it"),
  };
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("--size", o.size, "Scan a synthetic store of this size")->type_name("SIZE");
  app.add_option("--store", o.store, "Its file: made if --size is given too, else read and kept");
  app.add_option("--make-store", o.make_store, "Only write such a file of --size");
  app.add_option("--model", o.model, "Read a model in the order of a forward pass instead");
  app.add_option("--chunk", o.chunk, "Size of a chunk (at most, with --model)")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--ratio", o.ratio, "The budget as a part of what is read: 0.5 is half")
      ->type_name("R");
  app.add_option("--arm", o.arm, "Who decides what stays: see below")
      ->type_name("{A,B,C,D,E,OPT}")
      ->capture_default_str();
  app.add_option("--advice", o.advice, "Arms A and B: the one madvise; best: the faster of two")
      ->type_name("{best,normal,sequential,random,willneed}")
      ->capture_default_str();
  app.add_option("--passes", o.passes, "How often the sequence is read")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Threads that share every chunk")
      ->type_name("N")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--compute-ns-per-mib", o.compute_ns_per_mib, "Time to compute on each MiB")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--lookahead-window", o.lookahead_window,
                 "Chunks that a thread may be ahead of the slowest")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--consumption-signal", o.consumption_signal, "When a chunk counts as consumed")
      ->type_name("{all-threads,tid0}")
      ->capture_default_str();
  app.add_flag("--no-probe", o.no_probe, "Do not measure the disk and the compute time first");
  app.add_flag("--no-cgroup", o.no_cgroup, "Make no control group (arms C to E only)");
  app.add_option("--reference-trace", o.traces.reference, "Write every access, in order");
  app.add_option("--fault-trace", o.traces.fault, "Write every demand fault (arms C to E)");
  app.add_option("--fetch-trace", o.traces.fetch, "Write every read from the store (C to E)");
  app.add_option("--victim-trace", o.traces.victim, "Write every eviction (arms C to E)");
}

}  // namespace

void add_replay(Frame& frame) {
  auto o = std::make_shared<Options>();
  Verb& verb = frame.add("replay", "Read a store over and over under one policy, and judge it");
  add_options(verb.app(), *o);
  const Settings settings = add_settings(verb);
  verb.example("residctl replay --size 1GiB --ratio 0.5 --arm D",
               "a cyclic scan of 1 GiB with half of it in memory, by the declared order");
  verb.example("residctl replay --model big.gguf --ratio 0.5 --arm A",
               "the same bytes that a forward pass reads, by the kernel's mmap at equal memory");
  verb.example(
      "residctl replay --size 1GiB --ratio 0.5 --arm C --reference-trace r.trace && "
      "residctl opt r.trace --ram 50%",
      "the accesses of a run, and what the optimum and the policies would read for them");
  verb.action([o, settings](const Context& context) { return act(*o, settings, context); });
}

}  // namespace resid::cli

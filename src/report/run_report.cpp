#include "report/run_report.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/units.hpp"
#include "policy/policy.hpp"
#include "report/expert_report.hpp"

namespace resid {
namespace {

std::uint64_t load(const Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

std::string size_text(const RunConfig& c) {
  return c.ram_is_percent != 0 ? fmt::format("{:g}%", c.ram_percent)
                               : fmt::format("{}", c.ram_bytes);
}

double microseconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

// Two failures would be told apart only by the child's text.
nlohmann::json failure_json(const std::optional<Failure>& failure) {
  if (!failure) return nullptr;
  return {{"status", name(failure->status)},
          {"what", failure->what},
          {"why", failure->why},
          {"todo", failure->todo.empty() ? std::string(remedy(failure->status)) : failure->todo}};
}

nlohmann::ordered_json lookahead_json(const PagerStats& s) {
  const auto asked = static_cast<double>(load(s.lookahead_asked));
  const auto calls = static_cast<double>(load(s.lookahead_calls));
  nlohmann::ordered_json out;
  // Of what the routers chose, the share that was among as many likeliest experts.
  out["recall"] =
      asked == 0 ? nlohmann::ordered_json(nullptr)
                 : nlohmann::ordered_json(static_cast<double>(load(s.lookahead_right)) / asked);
  out["layers"] = load(s.lookahead_calls);
  out["layers_rested"] = load(s.lookahead_rested);
  out["us_per_layer"] = calls == 0 ? 0 : microseconds(load(s.lookahead_ns)) / calls;
  out["issued_bytes"] = load(s.lookahead_issued_bytes);
  out["dropped_bytes"] = load(s.lookahead_dropped_bytes);
  return out;
}

}  // namespace

std::string config_text(const RunConfig& c) {
  return fmt::format(
      "ram={} policy={} chunk_max={} fetch_workers={} fetching_timeout_ms={} prefetch_depth={} "
      "prefetch_admission={} prefetch_retention={} sync_handler={} eager_reconcile={} "
      "protect_current={} match={} read_engine={} read_depth={} read_bytes={} small_frames={} "
      "no_tripwires={} never_stand_aside={} experts_sensor={} lookahead={} cap={} cap_raise={} "
      "history={}",
      size_text(c), c.policy, c.chunk_max, c.fetch_workers, c.fetching_timeout_ms, c.prefetch_depth,
      c.prefetch_admission_always != 0 ? "always" : "guarded",
      c.prefetch_retention_none != 0 ? "none" : "pinned", c.sync_handler, c.eager_reconcile,
      c.protect_current, c.match, c.read_engine, c.read_depth, c.read_bytes, c.small_frames,
      c.no_tripwires, c.never_stand_aside, name(c.expert_sensor), c.lookahead, c.expert_cap,
      c.expert_cap_raise, c.history);
}

std::string config_hash(const RunConfig& config) {
  return fmt::format("{:016x}", fnv1a(config_text(config)));
}

std::uint64_t peak_resident(const RunPage& page, const RunFacts& facts) {
  return std::max({load(page.stats.resident_peak_bytes), load(page.stats.kernel_peak_bytes),
                   facts.kernel_shmem_peak.value_or(0)});
}

bool budget_kept(const RunPage& page, const RunFacts& facts) {
  const std::uint64_t allowed = page.budget_bytes.load() + page.config.chunk_max;
  return load(page.stats.resident_peak_bytes) <= allowed &&
         load(page.stats.kernel_peak_bytes) <= allowed &&
         facts.kernel_shmem_peak.value_or(0) <= allowed + facts.kernel_shmem_lag;
}

nlohmann::json run_report(const RunPage& page, const RunFacts& facts) {
  const PagerStats& s = page.stats;
  const RunConfig& c = page.config;
  nlohmann::json out;
  out["schema"] = 1;
  out["command"] = nlohmann::json::array();
  for (const std::string& word : facts.command)
    out["command"].push_back(word);
  out["model"] = {{"path", page.model_path},
                  {"architecture", page.model_architecture},
                  {"bytes", page.model_bytes.load()},
                  {"files_mapped", page.regions.load()}};
  out["budget_bytes"] = page.budget_bytes.load();
  out["budget_kept"] = budget_kept(page, facts);
  out["resident_peak_bytes"] = load(s.resident_peak_bytes);
  out["kernel_peak_bytes"] = load(s.kernel_peak_bytes);
  out["kernel_shmem_peak_bytes"] =
      facts.kernel_shmem_peak ? nlohmann::json(*facts.kernel_shmem_peak) : nlohmann::json(nullptr);
  out["bytes_fetched"] = load(s.bytes_fetched);
  out["bytes_punched"] = load(s.bytes_punched);
  out["fetches"] = load(s.fetches);
  out["evictions"] = load(s.evictions);
  out["faults"] = {{"missing", load(s.faults_missing)},
                   {"minor", load(s.faults_minor)},
                   {"stray", load(s.stray_faults)}};
  out["dedup"] = {{"resident", load(s.dedup_resident)}, {"fetching", load(s.dedup_fetching)}};
  out["stood_aside"] = page.stood_aside.load() != 0;
  out["tripwires"] = load(s.tripwires);
  out["tripwires_armed"] = load(s.armed);
  out["punched_ahead"] = load(s.punched_ahead);
  out["order"] = {{"mode", name(static_cast<OrderReport::Mode>(load(s.order_mode)))},
                  {"streams", load(s.order_streams)},
                  {"cycles", load(s.order_cycles)},
                  {"signals", load(s.order_signals)},
                  {"surprises", load(s.order_surprises)},
                  {"replans", load(s.order_replans)},
                  {"fallbacks", load(s.order_fallbacks)},
                  {"fixed_bytes", load(s.plan_fixed_bytes)},
                  {"streamed_bytes", load(s.plan_streamed_bytes)}};
  out["prefetch"] = {
      {"issued", load(s.prefetch_issued)},     {"useful", load(s.prefetch_useful)},
      {"late", load(s.prefetch_late)},         {"wasted", load(s.prefetch_wasted)},
      {"declined", load(s.prefetch_declined)}, {"pin_broken", load(s.prefetch_pin_broken)}};
  // Of the slices that routing asked for, by bytes: where they were.
  const ExpertSensor sensor =
      load(s.expert_layers) != 0 ? page.expert_sensor.load() : ExpertSensor::faults;
  out["experts"] = {{"sensor", name(sensor)},
                    {"layers_routed", load(s.expert_layers)},
                    {"asked", load(s.expert_asked)},
                    {"asked_bytes", load(s.expert_asked_bytes)},
                    {"missing_bytes", load(s.expert_missing_bytes)},
                    {"on_the_way_bytes", load(s.expert_on_way_bytes)},
                    {"ahead_bytes", load(s.expert_ahead_bytes)},
                    {"fetched_bytes", load(s.expert_fetched_bytes)},
                    {"warm_start",
                     {{"slices", load(s.warm_slices)},
                      {"bytes", load(s.warm_bytes)},
                      {"used_bytes", load(s.warm_used_bytes)}}},
                    {"lookahead", lookahead_json(s)}};
  if (facts.board != nullptr) out["experts"].update(expert_report(*facts.board));
  out["wanted_back"] = load(s.wanted_back);
  out["plan_broken"] = load(s.plan_broken);
  out["infeasible"] = load(s.infeasible);
  out["fetching_timeouts"] = load(s.fetching_timeouts);
  out["reads"] = {{"retries", load(s.read_retries)}, {"failures", load(s.read_failures)}};
  out["reconcile"] = {{"checks", load(s.reconcile_checks)},
                      {"max_divergence_bytes", load(s.reconcile_max_divergence_bytes)}};
  out["latency_us"] = {{"fault_p50", microseconds(s.fault_ns.quantile(0.50))},
                       {"fault_p99", microseconds(s.fault_ns.quantile(0.99))},
                       {"fault_max", microseconds(load(s.fault_ns.max_ns))},
                       {"read_p50", microseconds(s.read_ns.quantile(0.50))},
                       {"read_p99", microseconds(s.read_ns.quantile(0.99))},
                       {"overhead_p50", microseconds(s.overhead_ns.quantile(0.50))},
                       {"overhead_p99", microseconds(s.overhead_ns.quantile(0.99))},
                       {"trip_p50", microseconds(s.trip_ns.quantile(0.50))},
                       {"trip_p99", microseconds(s.trip_ns.quantile(0.99))},
                       {"punch_p50", microseconds(s.punch_ns.quantile(0.50))},
                       {"punch_p99", microseconds(s.punch_ns.quantile(0.99))}};
  out["policy"] = c.policy;
  out["prefetch_depth"] = c.prefetch_depth;
  out["fetch_workers"] = c.fetch_workers;
  out["chunk_max"] = c.chunk_max;
  out["read_engine"] = page.read_engine;
  out["read_depth"] = c.read_depth;
  out["large_frames"] = page.large_frames != 0;
  out["overhead_bytes"] = page.overhead_bytes.load();
  out["swap_guarantee"] = facts.swap_guarantee;
  out["uffd_route"] = page.uffd_route;
  out["control_group"] = {
      {"path",
       facts.control_group.empty() ? nlohmann::json(nullptr) : nlohmann::json(facts.control_group)},
      {"limit_bytes",
       facts.group_limit == 0 ? nlohmann::json(nullptr) : nlohmann::json(facts.group_limit)},
      {"oom_kills", facts.oom_kills}};
  out["bypassed_reads_mib"] = page.bypassed_reads_mib.load();
  out["processes"] = page.processes.load();
  out["config_hash"] = config_hash(c);
  out["wall_s"] = facts.wall_s;
  out["exit_code"] = facts.exit_code;
  out["failure"] = failure_json(facts.failure);
  return out;
}

std::string report_text(const nlohmann::json& report) {
  // Paths and arguments are bytes; JSON is UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string run_summary(const RunPage& page, const RunFacts& facts) {
  const PagerStats& s = page.stats;
  std::string out;
  if (page.stood_aside.load() != 0 && page.regions.load() == 0) {
    out +=
        fmt::format("residctl: budget {} holds the model of {}: it was mapped plainly\n",
                    format_bytes(page.budget_bytes.load()), format_bytes(page.model_bytes.load()));
  } else if (page.budget_bytes.load() != 0) {
    const std::uint64_t peak = peak_resident(page, facts);
    out +=
        fmt::format("residctl: {} of {} resident at most, budget {} ({})\n", format_bytes(peak),
                    format_bytes(page.model_bytes.load()), format_bytes(page.budget_bytes.load()),
                    budget_kept(page, facts) ? "kept" : "EXCEEDED");
    out += fmt::format(
        "residctl: {} read in {} fetches, {} evictions, fault p50 {:.0f} us p99 {:.0f} us\n",
        format_bytes(load(s.bytes_fetched)), load(s.fetches), load(s.evictions),
        microseconds(s.fault_ns.quantile(0.50)), microseconds(s.fault_ns.quantile(0.99)));
    if (facts.board != nullptr && load(s.expert_layers) != 0) {
      out += expert_summary(*facts.board, facts.wall_s);
    }
    if (load(s.order_fallbacks) != 0) {
      out += fmt::format(
          "residctl: the program did not keep to one order of reading ({} of {} signals were not "
          "foreseen): victims by age, {} times\n",
          load(s.order_surprises), load(s.order_signals), load(s.order_fallbacks));
    }
  }
  if (facts.failure) {
    out += fmt::format("residctl: the run failed ({}), exit code {}\n", name(facts.failure->status),
                       facts.exit_code);
  }
  return out;
}

}  // namespace resid

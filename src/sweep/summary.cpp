#include "sweep/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "report/csv.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<Column, 43> kColumns{{
    {"store_bytes", "/store_bytes", true},
    {"chunks", "/chunks", true},
    {"chunk_bytes", "/chunk_bytes", true},
    {"passes", "/passes", true},
    {"threads", "/threads", true},
    {"budget_bytes", "/budget_bytes", true},
    {"bytes_read", "/bytes_read", true},
    {"kernel_read_bytes", "/kernel_read_bytes", true},
    {"opt_bytes", "/opt_bytes", true},
    {"opt_exact", "/opt_exact", false},
    {"bytes_over_opt", "/bytes_over_opt", true},
    {"floor_bytes", "/floor_bytes", true},
    {"wall_s", "/wall_s", true},
    {"consumed_bytes", "/consumed_bytes", true},
    {"achieved_bytes_per_s", "/achieved_bytes_per_s", true},
    {"probe_bytes_per_s", "/probe_bytes_per_s", true},
    {"compute_s_per_pass", "/compute_s_per_pass", true},
    {"roofline_bytes_per_s", "/roofline_bytes_per_s", true},
    {"mismatches", "/mismatches", true},
    {"budget_kept", "/budget_kept", false},
    {"kernel_peak_bytes", "/kernel_peak_bytes", true},
    {"resident_peak_bytes", "/resident_peak_bytes", true},
    {"faults_missing", "/faults/missing", true},
    {"faults_minor", "/faults/minor", true},
    {"fault_p50_us", "/latency_us/fault_p50", true},
    {"fault_p99_us", "/latency_us/fault_p99", true},
    {"read_p50_us", "/latency_us/read_p50", true},
    {"prefetch_issued", "/prefetch/issued", true},
    {"prefetch_useful", "/prefetch/useful", true},
    {"prefetch_late", "/prefetch/late", true},
    {"prefetch_wasted", "/prefetch/wasted", true},
    {"prefetch_declined", "/prefetch/declined", true},
    {"prefetch_pin_broken", "/prefetch/pin_broken", true},
    {"cold_checked_by", "/cold/checked_by", false},
    {"cold_cached_bytes", "/cold/cached_bytes", true},
    {"warm_before_bytes", "/warm/before_bytes", true},
    {"warm_after_bytes", "/warm/after_bytes", true},
    {"group_limit_bytes", "/group_limit_bytes", true},
    {"group_peak_bytes", "/group_peak_bytes", true},
    {"output_equal", "/output_equal", false},
    {"policy", "/policy", false},
    {"advice", "/advice", false},
    {"run_config_hash", "/config_hash", false},
}};

std::string field(const Record& record, const char* pointer) {
  const Json& figures = record.outcome.figures;
  if (!figures.is_object()) return {};
  const Json::json_pointer where(pointer);
  if (!figures.contains(where)) return {};
  const Json& value = figures.at(where);
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.low}, {"max", s.high}};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {0, kNone, kNone, kNone};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const double median =
      n % 2 == 1 ? values[n / 2] : values[n / 2 - 1] + (values[n / 2] - values[n / 2 - 1]) / 2;
  return {n, median, values.front(), values.back()};
}

std::span<const Column> columns() {
  return kColumns;
}

Spread Group::spread(const char* pointer) const {
  return spread_by([pointer](const Record& r) { return figure_of(r, pointer); });
}

std::vector<Group> group_records(const std::vector<Record>& records, Mode mode) {
  std::vector<Group> groups;
  for (const Record& r : records) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.arm == r.cell.arm && g.ratio == r.cell.ratio;
    });
    if (group == groups.end()) {
      groups.push_back({r.cell.arm, r.cell.ratio, 0, 0, 0, {}});
      group = std::prev(groups.end());
    }
    switch (r.outcome.state) {
      case State::done:
        ++group->done;
        group->results.push_back(&r);
        break;
      case State::censored:
        ++group->censored;
        break;
      case State::failed:
      case State::stopped:
        ++group->failed;
        break;
    }
  }
  const auto rank = [mode](const std::string& arm) {
    const auto& arms = arms_of(mode);
    const auto at =
        std::find_if(arms.begin(), arms.end(), [&](const Arm& a) { return a.name == arm; });
    return at - arms.begin();
  };
  std::sort(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
    return std::pair(rank(a.arm), a.ratio) < std::pair(rank(b.arm), b.ratio);
  });
  return groups;
}

std::string cells_csv(const std::vector<Record>& records) {
  std::vector<std::string> head{"arm",    "ratio",       "repeat",    "state",
                                "reason", "config_hash", "elapsed_s", "load"};
  for (const Column& column : kColumns)
    head.emplace_back(column.name);
  std::string out = csv_line(head);
  for (const Record& r : records) {
    std::vector<std::string> row{r.cell.arm,
                                 ratio_text(r.cell.ratio),
                                 fmt::format("{}", r.cell.repeat),
                                 std::string(name(r.outcome.state)),
                                 r.outcome.reason,
                                 r.config_hash,
                                 fmt::format("{}", r.elapsed_s),
                                 fmt::format("{}", r.load)};
    for (const Column& column : kColumns)
      row.push_back(field(r, column.pointer));
    out += csv_line(row);
  }
  return out;
}

Json sweep_json(const Json& manifest, const std::vector<Record>& records, Mode mode) {
  Json cells = Json::array();
  for (const Record& r : records)
    cells.push_back(Json::parse(record_line(r), nullptr, false));
  Json summary = Json::array();
  for (const Group& group : group_records(records, mode)) {
    Json metrics = Json::object();
    for (const Column& column : kColumns) {
      if (!column.number) continue;
      const Spread s = group.spread(column.pointer);
      if (s.n > 0) metrics[column.name] = spread_json(s);
    }
    summary.push_back({{"arm", group.arm},
                       {"ratio", group.ratio},
                       {"done", group.done},
                       {"censored", group.censored},
                       {"failed", group.failed},
                       {"metrics", std::move(metrics)}});
  }
  return {{"schema", 1},
          {"manifest", manifest},
          {"cells", std::move(cells)},
          {"summary", std::move(summary)}};
}

}  // namespace resid::sweep

#include "cli/opt_experts.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/progress.hpp"
#include "expert/routing_hits.hpp"
#include "policy/expert_ranking.hpp"

namespace resid::cli {
namespace {

using Json = nlohmann::ordered_json;

ExpertHold hold_of(const std::string& name) {
  if (name == "token") return ExpertHold::token;
  return name == "pending" ? ExpertHold::pending : ExpertHold::none;
}

// lru first, then the others in the order of their list.
Result<std::vector<std::string>> rankings(const std::vector<std::string>& wanted) {
  const auto known = expert_ranking_names();
  std::vector<std::string> out;
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return fail(Status::usage, "--policy", fmt::format("'{}' ranks no experts", name),
                fmt::format("choose among {}", fmt::join(known, ", ")));
  }
  for (const std::string_view name : known) {
    const bool asked = wanted.empty() || name == "lru" ||
                       std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (asked) out.emplace_back(name);
  }
  return out;
}

// Hit rates at one cap, over all layers or in one of them.
struct Rates {
  std::vector<double> rankings;  // lru first
  double optimum = 0;

  // How much of what lru leaves to be won a ranking wins; nothing where there is nothing to win.
  std::optional<double> gap_closed(std::size_t i) const {
    const double gap = optimum - rankings.front();
    if (gap <= 0) return std::nullopt;
    return (rankings[i] - rankings.front()) / gap;
  }
};

struct AtCap {
  std::uint32_t cap = 0;
  Rates all;
  std::vector<Rates> layers;
};

Result<AtCap> at_cap(const RoutingTrace& trace, const std::vector<std::string>& names,
                     const ExpertOptions& o, std::uint32_t cap) {
  ExpertRoom room = ExpertRoom::of(trace, cap);
  room.pool = o.pool;
  room.hold = hold_of(o.hold);
  AtCap out;
  out.cap = cap;
  out.layers.resize(trace.layers.size());
  for (const std::string& name : names) {
    const auto hits = routing_hits(trace, name, room);
    if (!hits) return tl::unexpected(hits.error());
    out.all.rankings.push_back(hits->rate());
    for (std::size_t layer = 0; layer < out.layers.size(); ++layer)
      out.layers[layer].rankings.push_back(hits->rate(layer));
  }
  const auto best = routing_optimum(trace, room);
  if (!best) return tl::unexpected(best.error());
  out.all.optimum = best->rate();
  for (std::size_t layer = 0; layer < out.layers.size(); ++layer)
    out.layers[layer].optimum = best->rate(layer);
  return out;
}

// ---- For scripts

void add_rates(Json& to, const std::vector<std::string>& names, const Rates& rates) {
  Json hit_rate = Json::object();
  Json closed = Json::object();
  for (std::size_t i = 0; i < names.size(); ++i) {
    hit_rate[names[i]] = rates.rankings[i];
    const auto share = rates.gap_closed(i);
    if (i > 0) closed[names[i]] = share ? Json(*share) : Json(nullptr);
  }
  hit_rate["opt"] = rates.optimum;
  to["hit_rate"] = hit_rate;
  to["gap_closed"] = closed;
}

Json json_of(const std::string& path, const RoutingTrace& trace,
             const std::vector<std::string>& names, const ExpertOptions& o, const AtCap& at) {
  Json out{{"schema", 1},
           {"trace", path},
           {"tokens", trace.tokens.size()},
           {"experts", trace.experts},
           {"experts_used", trace.used},
           {"cap", at.cap},
           {"pool", o.pool},
           {"hold", o.hold}};
  add_rates(out, names, at.all);
  out["layers"] = Json::array();
  for (std::size_t layer = 0; layer < at.layers.size(); ++layer) {
    Json row{{"layer", trace.layers[layer]}};
    add_rates(row, names, at.layers[layer]);
    out["layers"].push_back(row);
  }
  return out;
}

// ---- For people

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : std::string("-");
}

constexpr std::string_view kClosedBy = "   gap closed by";

void print_head(const char* first, const std::vector<std::string>& names) {
  fmt::print("  {:<6}", first);
  for (const std::string& name : names)
    fmt::print("{:>11}", name);
  fmt::print("{:>11}", "optimum");
  if (names.size() > 1) fmt::print("{}", kClosedBy);
  for (std::size_t i = 1; i < names.size(); ++i)
    fmt::print("{:>11}", names[i]);
  fmt::print("\n");
}

void print_row(const std::string& first, const Rates& rates) {
  fmt::print("  {:<6}", first);
  for (const double rate : rates.rankings)
    fmt::print("{:>11}", percent(rate));
  fmt::print("{:>11}", percent(rates.optimum));
  if (rates.rankings.size() > 1) fmt::print("{:{}}", "", kClosedBy.size());
  for (std::size_t i = 1; i < rates.rankings.size(); ++i)
    fmt::print("{:>11}", percent(rates.gap_closed(i)));
  fmt::print("\n");
}

void print_text(const std::string& path, const RoutingTrace& trace,
                const std::vector<std::string>& names, const ExpertOptions& o,
                const std::vector<AtCap>& all) {
  fmt::print("{}: {} tokens, {} layers of {} experts, {} used by a token\n", path,
             trace.tokens.size(), trace.layers.size(), trace.experts, trace.used);
  const std::string room = all.size() == 1 ? std::to_string(all.front().cap) : std::string("cap");
  fmt::print("  hit rates with room for {} experts {}; held meanwhile: {}\n\n", room,
             o.pool ? "a layer in a pool of all layers" : "in each layer",
             o.hold == "none"      ? "nothing"
             : o.hold == "pending" ? "what a token still needs"
                                   : "all that a token uses");
  if (all.size() > 1) {
    print_head("cap", names);
    for (const AtCap& at : all)
      print_row(std::to_string(at.cap), at.all);
    return;
  }
  print_head("layer", names);
  for (std::size_t layer = 0; layer < trace.layers.size(); ++layer)
    print_row(std::to_string(trace.layers[layer]), all.front().layers[layer]);
  print_row("all", all.front().all);
}

}  // namespace

void add_expert_options(CLI::App& app, ExpertOptions& options) {
  app.add_option("--cap", options.caps,
                 "Judge a routing trace: room for so many experts of each layer; several with "
                 "commas between")
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1U, kExpertsMost).description(""));
  app.add_option("--experts", options.experts,
                 "How many experts a layer has (with --cap; else what the trace names)")
      ->type_name("N")
      ->check(CLI::Range(1U, kExpertsMost).description(""));
  app.add_option("--hold", options.hold,
                 "What may not go while a token uses a layer (with --cap): nothing, what it still "
                 "needs, all that it uses")
      ->type_name("{none,pending,token}")
      ->check(CLI::IsMember({"none", "pending", "token"}).description(""))
      ->capture_default_str();
  app.add_flag("--pool", options.pool, "One pool for all layers, of cap x layers (with --cap)");
}

Result<int> judge_experts(const std::string& path, const std::vector<std::string>& policies,
                          const ExpertOptions& options, const Context& context) {
  const auto names = rankings(policies);
  if (!names) return tl::unexpected(names.error());
  Result<RoutingTrace> trace;
  {
    Progress progress(path);
    trace = read_routing(path, options.experts, [&](std::uint64_t done, std::uint64_t total) {
      progress.show(done, total);
    });
  }
  if (!trace) return tl::unexpected(trace.error());
  std::vector<AtCap> all;
  for (const std::uint32_t cap : options.caps) {
    auto at = at_cap(*trace, *names, options, cap);
    if (!at) return tl::unexpected(at.error());
    all.push_back(std::move(*at));
  }
  if (!context.json) {
    print_text(path, *trace, *names, options, all);
    return 0;
  }
  Json out = Json::array();
  for (const AtCap& at : all)
    out.push_back(json_of(path, *trace, *names, options, at));
  if (all.size() == 1) out = Json(out.front());
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  return 0;
}

}  // namespace resid::cli

// residctl opt: what a reference trace would have cost at best, and under every policy; with --cap,
// the hit rates of expert caches on a routing trace (opt_experts.cpp). With --dump, any trace as
// text.

#include <array>
#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/opt_experts.hpp"
#include "cli/progress.hpp"
#include "policy/policy.hpp"
#include "replay/simulate.hpp"
#include "trace/optimum.hpp"
#include "trace/routing.hpp"
#include "trace/trace.hpp"

namespace resid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> traces;
  std::vector<std::string> policies;
  std::uint32_t keep_current = SimulateOptions{}.keep_current;
  std::string signal = "uses";
  bool dump = false;
  ExpertOptions experts;
};

// ---- Names and figures

// A name out of a file, on a terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::uint64_t all_bytes(const TraceHeader& header) {
  std::uint64_t sum = 0;
  for (const std::uint32_t bytes : header.chunk_bytes)
    sum += bytes;
  return sum;
}

std::string cycle_text(const TraceHeader& h) {
  return h.cycle_chunks == 0 ? std::string("not known to be cyclic")
                             : fmt::format("{} passes over {} chunks", h.passes, h.cycle_chunks);
}

std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// ---- --dump

std::string detail_text(TraceKind kind, std::uint32_t detail) {
  switch (kind) {
    case TraceKind::reference:
      return fmt::format("thread {}", detail);
    case TraceKind::fault:
      return detail == 0 ? "missing" : "minor";
    case TraceKind::fetch:
      return fmt::format("{} us{}", detail & ~kPrefetchFetch,
                         (detail & kPrefetchFetch) != 0 ? ", prefetch" : "");
    case TraceKind::victim:
      return detail == 0 ? "chosen" : "by force";
  }
  return {};
}

std::string detail_json(TraceKind kind, std::uint32_t detail) {
  switch (kind) {
    case TraceKind::reference:
      return fmt::format("\"thread\":{}", detail);
    case TraceKind::fault:
      return fmt::format("\"minor\":{}", detail != 0);
    case TraceKind::fetch:
      return fmt::format("\"us\":{},\"prefetch\":{}", detail & ~kPrefetchFetch,
                         (detail & kPrefetchFetch) != 0);
    case TraceKind::victim:
      return fmt::format("\"by_force\":{}", detail != 0);
  }
  return {};
}

std::string header_text(const std::string& path, const TraceHeader& h) {
  return fmt::format(
      "{}: {} trace\n"
      "  model     {} ({} bytes, fingerprint {:016x})\n"
      "  settings  {}\n"
      "  chunks    {}, {} in all\n"
      "  order     {}\n\n"
      "{:>16} {:>10}  detail\n",
      path, name(h.kind), printable(h.model), h.model_bytes, h.model_fingerprint,
      printable(h.config_hash), h.chunk_bytes.size(), format_bytes(all_bytes(h)), cycle_text(h),
      "time_ns", "chunk");
}

std::string header_json(const std::string& path, const TraceHeader& h) {
  const Json json{{"path", path},
                  {"kind", name(h.kind)},
                  {"model", h.model},
                  {"model_bytes", h.model_bytes},
                  {"model_fingerprint", fmt::format("{:016x}", h.model_fingerprint)},
                  {"config_hash", h.config_hash},
                  {"cycle_chunks", h.cycle_chunks},
                  {"passes", h.passes},
                  {"chunk_bytes", h.chunk_bytes}};
  return dumped(json, -1) + "\n";
}

Result<void> print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return {};
  return fail_errno(Status::write_failed, "standard output", errno);
}

Result<void> dump(const std::string& path, bool json) {
  auto reader = TraceReader::open(path);
  if (!reader) return tl::unexpected(reader.error());
  const TraceHeader& header = reader->header();
  auto ok = print(json ? header_json(path, header) : header_text(path, header));
  std::array<TraceRecord, 1024> records;
  std::uint64_t count = 0;
  while (ok) {
    const auto n = reader->next(records);
    if (!n) return tl::unexpected(n.error());
    if (*n == 0) break;
    count += *n;
    std::string lines;
    auto out = std::back_inserter(lines);
    for (const TraceRecord& r : std::span(records).first(*n)) {
      if (json) {
        fmt::format_to(out, "{{\"time_ns\":{},\"chunk\":{},{}}}\n", r.time_ns, r.chunk,
                       detail_json(header.kind, r.detail));
      } else {
        fmt::format_to(out, "{:>16} {:>10}  {}\n", r.time_ns, r.chunk,
                       detail_text(header.kind, r.detail));
      }
    }
    ok = print(lines);
  }
  if (!ok) return ok;
  // Who sees this line has seen the whole trace.
  return print(json ? fmt::format("{{\"records\":{}}}\n", count)
                    : fmt::format("{} records\n", count));
}

// ---- The optimum, and the policies

struct PolicyResult {
  std::string name;
  Simulated result;
};

struct Judged {
  ReferenceString references;
  std::uint64_t ram = 0;
  OptimumBytes optimum;
  Simulated lru;
  std::vector<PolicyResult> policies;
};

// Progress is shown in bytes; of references, those of their records.
TraceProgress in_records(Progress& progress) {
  return [&progress](std::uint64_t done, std::uint64_t total) {
    progress.show(done * sizeof(TraceRecord), total * sizeof(TraceRecord));
  };
}

Result<Simulated> run_policy(const Judged& judged, const Options& o, const std::string& policy) {
  Progress progress("policy " + policy);
  SimulateOptions options;
  options.policy = policy;
  options.budget_bytes = judged.ram;
  options.keep_current = o.keep_current;
  options.signal_every_use = o.signal == "uses";
  options.progress = in_records(progress);
  return simulate(judged.references, options);
}

Result<Judged> judge(const Options& o, const Setting& ram) {
  std::vector<std::string> policies = o.policies;
  if (policies.empty()) policies.assign(policy_names().begin(), policy_names().end());
  for (const std::string& policy : policies) {  // before the long work
    if (auto known = make_policy(policy); !known) return tl::unexpected(known.error());
  }
  const auto size = parse_size(ram.value, ram.origin);
  if (!size) return tl::unexpected(size.error());

  Judged judged;
  {
    Progress progress(o.traces.front());
    auto read = read_references(
        o.traces, [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); });
    if (!read) return tl::unexpected(read.error());
    judged.references = std::move(*read);
  }
  const TraceHeader& header = judged.references.header;
  judged.ram = size->resolve(all_bytes(header));
  {
    Progress progress("optimum");
    const auto optimum =
        optimum_bytes(header, judged.references.chunks, judged.ram, in_records(progress));
    if (!optimum) return tl::unexpected(optimum.error());
    judged.optimum = *optimum;
  }
  const auto lru = run_policy(judged, o, "lru");
  if (!lru) return tl::unexpected(lru.error());
  judged.lru = *lru;
  for (const std::string& policy : policies) {
    const auto result = policy == "lru" ? lru : run_policy(judged, o, policy);
    if (!result) return tl::unexpected(result.error());
    judged.policies.push_back({policy, *result});
  }
  return judged;
}

// How many times what cannot be avoided; against the lower bound, so that it is never flattering.
std::optional<double> over_optimum(std::uint64_t bytes, const OptimumBytes& optimum) {
  if (optimum.lower_bytes == 0) return std::nullopt;
  return static_cast<double>(bytes) / static_cast<double>(optimum.lower_bytes);
}

Json json_of(const Simulated& s, const OptimumBytes& optimum) {
  const auto over = over_optimum(s.bytes, optimum);
  return {{"misses", s.misses},
          {"bytes", s.bytes},
          {"bytes_over_opt", over ? Json(*over) : Json(nullptr)}};
}

void print_json(const Options& o, const Judged& j) {
  const TraceHeader& h = j.references.header;
  const OptimumBytes& best = j.optimum;
  Json out{{"schema", 1},
           {"traces", o.traces},
           {"model", h.model},
           {"model_bytes", h.model_bytes},
           {"chunks", h.chunk_bytes.size()},
           {"chunk_bytes", all_bytes(h)},
           {"ram_bytes", j.ram},
           {"accesses", best.accesses},
           {"cycle_chunks", h.cycle_chunks},
           {"passes", h.passes},
           {"keep_current", o.keep_current},
           {"signal", o.signal},
           {"floor_bytes", best.floor_bytes ? Json(*best.floor_bytes) : Json(nullptr)},
           {"opt",
            {{"exact", best.exact},
             {"lower_bytes", best.lower_bytes},
             {"upper_bytes", best.upper_bytes},
             {"misses", best.misses}}},
           {"lru", json_of(j.lru, best)},
           {"policies", Json::object()}};
  for (const PolicyResult& p : j.policies)
    out["policies"][p.name] = json_of(p.result, best);
  fmt::print("{}\n", dumped(out, 2));
}

void print_row(std::string_view label, std::optional<std::uint64_t> misses, std::uint64_t bytes,
               const OptimumBytes& optimum) {
  const auto over = over_optimum(bytes, optimum);
  fmt::print("  {:<24}{:>12}{:>16}{:>12}{:>12}\n", label,
             misses ? std::to_string(*misses) : std::string("-"), bytes, format_bytes(bytes),
             over ? fmt::format("{:.4f}", *over) : std::string("-"));
}

void print_text(const Judged& j) {
  const TraceHeader& h = j.references.header;
  const OptimumBytes& best = j.optimum;
  fmt::print("{}: {} accesses, {}\n", h.model.empty() ? "(no name)" : printable(h.model),
             best.accesses, cycle_text(h));
  fmt::print("  {} chunks of {} in all, room for {}\n\n", h.chunk_bytes.size(),
             format_bytes(all_bytes(h)), format_bytes(j.ram));
  fmt::print("  {:<24}{:>12}{:>16}{:>12}{:>12}\n", "", "misses", "bytes", "", "over OPT");
  if (best.floor_bytes) print_row("floor of a cyclic scan", {}, *best.floor_bytes, best);
  if (best.exact) {
    print_row("OPT", best.misses, best.upper_bytes, best);
  } else {
    print_row("OPT, at least", {}, best.lower_bytes, best);
    print_row("OPT, at most", best.misses, best.upper_bytes, best);
  }
  bool lru_is_listed = false;
  for (const PolicyResult& p : j.policies)
    lru_is_listed |= p.name == "lru";
  if (!lru_is_listed) print_row("lru", j.lru.misses, j.lru.bytes, best);
  for (const PolicyResult& p : j.policies)
    print_row(p.name, p.result.misses, p.result.bytes, best);
}

// ---- Which kind of trace goes with which options

// The first of the options that was given on the command line.
std::optional<std::string> given(const CLI::App& app, std::initializer_list<const char*> options) {
  for (const char* option : options) {
    if (app.count(option) > 0) return option;
  }
  return std::nullopt;
}

Result<void> check_routing(const Options& o, const CLI::App& app) {
  if (const auto other = given(app, {"--ram", "--keep-current", "--signal", "--dump"})) {
    return fail(Status::usage, *other, "does not go with --cap, which judges experts, not chunks",
                "leave one of the two out");
  }
  if (o.traces.size() > 1) {
    return fail(Status::usage, o.traces[1], "--cap judges one routing trace at a time",
                "name one trace");
  }
  const auto kind = trace_file_kind(o.traces.front());
  if (!kind) return tl::unexpected(kind.error());
  if (*kind != TraceFileKind::chunks) return {};
  return fail(Status::usage, o.traces.front(),
              "is a trace of chunks, while --cap judges a routing trace",
              "give --ram instead of --cap, or name a routing trace (seq,pos,token_id,layer,...)");
}

Result<void> check_chunks(const Options& o, const CLI::App& app) {
  for (const std::string& path : o.traces) {
    const auto kind = trace_file_kind(path);
    if (!kind) return tl::unexpected(kind.error());
    if (*kind != TraceFileKind::routing) continue;
    return fail(Status::usage, path, "is a routing trace, which knows of experts, not of chunks",
                o.dump ? "it is text as it stands: use xzcat or cat" : "judge it with --cap N");
  }
  if (const auto other = given(app, {"--experts", "--hold", "--pool"})) {
    return fail(Status::usage, *other, "is about experts, and goes only with --cap",
                "give --cap N and a routing trace");
  }
  return {};
}

Result<int> act(const Options& o, const Setting& ram, const CLI::App& app, const Context& context) {
  if (!o.experts.caps.empty()) {
    if (auto ok = check_routing(o, app); !ok) return tl::unexpected(ok.error());
    return judge_experts(o.traces.front(), o.policies, o.experts, context);
  }
  if (auto ok = check_chunks(o, app); !ok) return tl::unexpected(ok.error());
  if (o.dump) {
    for (const std::string& path : o.traces) {
      if (auto ok = dump(path, context.json); !ok) return tl::unexpected(ok.error());
    }
    return 0;
  }
  if (!ram.is_set()) {
    return fail(Status::usage, "--ram", "is needed to judge a trace",
                "give a budget (--ram 50%), or --dump to see the trace");
  }
  const auto judged = judge(o, ram);
  if (!judged) return tl::unexpected(judged.error());
  context.json ? print_json(o, *judged) : print_text(*judged);
  return 0;
}

}  // namespace

void add_opt(Frame& frame) {
  auto o = std::make_shared<Options>();
  Verb& verb = frame.add("opt", "Hold policies against the optimum on a recorded trace");
  CLI::App& app = verb.app();
  app.add_option("TRACE", o->traces,
                 "Reference traces of one model, in the order they were made; or one routing trace")
      ->required();
  const Setting& ram = verb.setting("ram", size_value(), "",
                                    "Most bytes of the model in memory; 50% is of all chunks");
  app.add_option("--policy", o->policies, "Only these policies (and lru), with commas between")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--keep-current", o->keep_current,
                 "How many of the newest demand fetches a policy may not give up")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--signal", o->signal, "What tells a policy where the program is")
      ->type_name("{uses,faults}")
      ->check(CLI::IsMember({"uses", "faults"}).description(""))
      ->capture_default_str();
  add_expert_options(app, o->experts);
  app.add_flag("--dump", o->dump, "Print header and records of any trace (JSON lines with --json)");
  verb.example("residctl opt run.trace --ram 50%",
               "misses and bytes of the optimum, lru and every policy");
  verb.example("residctl opt a.trace b.trace --ram 6GiB --policy layer_order_declared --json",
               "two traces as one long run, for scripts");
  verb.example("residctl opt routing-trace.csv.xz --cap 8",
               "hit rates of a cache of 8 experts in each layer, by layer");
  verb.example("residctl opt routing-trace.csv.xz --cap 4,8,16,24 --hold token --json",
               "several caps, where all of a token's experts are needed at once");
  verb.example("residctl opt faults.trace --dump | less", "what is in a trace");
  verb.action([o, &ram, &app](const Context& context) { return act(*o, ram, app, context); });
}

}  // namespace resid::cli

// residctl run: starts an unmodified program under the pager.

#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/expert_usage.hpp"
#include "model/chunk_plan.hpp"
#include "run/launcher.hpp"
#include "sense/lookahead_switch.hpp"
#include "storage/reader.hpp"

namespace resid::cli {
namespace {

struct Options {
  std::string report;
  run::RunTracePaths traces;
  std::string routing;
  bool quiet = false;
  bool explain = false;
  bool no_cgroup = false;
};

struct Settings {
  const Setting& ram;
  const Setting& policy;
  const Setting& prefetch;
  const Setting& prefetch_depth;
  const Setting& prefetch_admission;
  const Setting& prefetch_retention;
  const Setting& lookahead;
  const Setting& cap;
  const Setting& cap_raise;
  const Setting& fetch_workers;
  const Setting& read_engine;
  const Setting& read_depth;
  const Setting& read_size;
  const Setting& large_frames;
  const Setting& tripwires;
  const Setting& stand_aside;
  const Setting& experts_sensor;
  const Setting& sync_handler;
  const Setting& eager_reconcile;
  const Setting& fetching_timeout_ms;
  const Setting& protect_current;
  const Setting& chunk_max;
  const Setting& match;
  const Setting& program_need;
  const Setting& history;
};

template <std::size_t N>
Result<void> copy_text(char (&into)[N], const Setting& setting) {
  if (setting.value.size() >= N) {
    return fail(Status::usage, setting.origin, fmt::format("is longer than {} characters", N - 1));
  }
  std::memcpy(into, setting.value.c_str(), setting.value.size() + 1);
  return {};
}

ReadEngine read_engine(std::string_view name) {
  if (name == "io_uring") return ReadEngine::io_uring;
  return name == "threads" ? ReadEngine::threads : ReadEngine::automatic;
}

LookaheadSwitch::Mode lookahead_mode(std::string_view name) {
  if (name == "off") return LookaheadSwitch::Mode::off;
  return name == "on" ? LookaheadSwitch::Mode::on : LookaheadSwitch::Mode::automatic;
}

ExpertSensor expert_sensor(std::string_view text) {
  for (const auto sensor :
       {ExpertSensor::ggml_backend, ExpertSensor::eval_callback, ExpertSensor::faults}) {
    if (text == name(sensor)) return sensor;
  }
  return ExpertSensor::automatic;
}

ValueKind need_value() {
  return {"SIZE|auto",
          [](const std::string& value, const std::string& origin) -> Result<void> {
            if (value == "auto") return {};
            if (auto bytes = parse_bytes(value, origin); !bytes) {
              return tl::unexpected(bytes.error());
            }
            return {};
          },
          false};
}

Result<RunConfig> to_config(const Settings& s) {
  RunConfig config;
  if (s.cap.is_set()) config.expert_cap = static_cast<std::uint32_t>(s.cap.count());
  config.expert_cap_raise = s.cap_raise.is_on() ? 1 : 0;
  const std::string& policy = s.policy.value;
  if (config.expert_cap != 0 && policy != "auto" && !policy.starts_with("expert_")) {
    return fail(Status::usage, s.cap.origin, fmt::format("policy {} knows no experts", policy),
                "choose --policy auto, expert_lru, expert_lfru or expert_foresight");
  }
  if (s.ram.is_set()) {
    auto size = parse_size(s.ram.value, s.ram.origin);
    if (!size) return tl::unexpected(size.error());
    config.ram_is_percent = size->kind == Size::Kind::percent_of_model ? 1 : 0;
    config.ram_percent = size->percent;
    config.ram_bytes = size->bytes;
    if (config.ram_is_percent == 0 && size->bytes == 0) {
      return fail(Status::budget_too_small, s.ram.origin, "the budget is zero");
    }
  }
  auto chunk = parse_chunk(s.chunk_max.value, s.chunk_max.origin);
  if (!chunk) return tl::unexpected(chunk.error());
  config.chunk_max = *chunk;
  config.fetch_workers = static_cast<std::uint32_t>(s.fetch_workers.count());
  config.read_engine = static_cast<std::uint8_t>(read_engine(s.read_engine.value));
  config.read_depth = static_cast<std::uint32_t>(s.read_depth.count());
  auto read_size = parse_chunk(s.read_size.value, s.read_size.origin);
  if (!read_size) return tl::unexpected(read_size.error());
  config.read_bytes = static_cast<std::uint32_t>(*read_size);
  config.small_frames = s.large_frames.value == "off" ? 1 : 0;
  config.no_tripwires = s.tripwires.value == "off" ? 1 : 0;
  config.never_stand_aside = s.stand_aside.value == "off" ? 1 : 0;
  config.expert_sensor = expert_sensor(s.experts_sensor.value);
  config.fetching_timeout_ms = static_cast<std::uint32_t>(s.fetching_timeout_ms.count());
  // auto: decided by the model, once it is mapped.
  if (s.prefetch.value != "off") {
    const bool depth_auto = s.prefetch_depth.value == "auto";
    config.prefetch_depth = depth_auto ? 1 : static_cast<std::uint32_t>(s.prefetch_depth.count());
    config.prefetch_depth_auto = depth_auto ? 1 : 0;
    config.prefetch_auto = s.prefetch.value == "auto" && s.prefetch_depth.value == "auto" ? 1 : 0;
  }
  config.prefetch_admission_always = s.prefetch_admission.value == "always" ? 1 : 0;
  config.prefetch_retention_none = s.prefetch_retention.value == "none" ? 1 : 0;
  config.lookahead = static_cast<std::uint8_t>(lookahead_mode(s.lookahead.value));
  config.history = s.history.value == "off" ? 0 : 1;
  config.sync_handler = s.sync_handler.is_on() ? 1 : 0;
  config.eager_reconcile = s.eager_reconcile.is_on() ? 1 : 0;
  config.protect_current = s.protect_current.is_on() ? 1 : 0;
  if (auto ok = copy_text(config.policy, s.policy); !ok) return tl::unexpected(ok.error());
  if (auto ok = copy_text(config.match, s.match); !ok) return tl::unexpected(ok.error());
  return config;
}

Settings add_settings(Verb& verb) {
  return {
      .ram = verb.setting("ram", size_value(), "",
                          "Most bytes of the model in memory; default: what the machine can spare"),
      .policy = verb.setting("policy", policy_value(), "auto",
                             "Which chunk is given up first; auto: by the order of reading"),
      .prefetch = verb.setting(
          "prefetch", choice_value({"on", "off", "auto"}), "auto",
          "Fetch ahead of the program; auto: in dense models, where the order is known"),
      .prefetch_depth = verb.setting("prefetch-depth", count_or_value(1, 4096, {"auto"}), "auto",
                                     "How many chunks ahead"),
      .prefetch_admission = verb.setting("prefetch-admission", choice_value({"guarded", "always"}),
                                         "guarded", "May a prefetch evict what is needed sooner"),
      .prefetch_retention = verb.setting("prefetch-retention", choice_value({"pinned", "none"}),
                                         "pinned", "Keep a prefetched chunk until it is used"),
      .lookahead = verb.setting("lookahead", choice_value({"on", "off", "auto"}), "auto",
                                "Fetch the experts that the next layer will likely choose; auto: "
                                "while that makes tokens faster"),
      .cap = verb.setting("cap", count_value(0, 65535), "0",
                          "Experts a layer that stay in memory; 0: as many as the budget holds"),
      .cap_raise = verb.setting("cap-raise", switch_value(), "",
                                "Keep more experts than --cap while there is room"),
      .fetch_workers = verb.setting("fetch-workers", count_value(1, 256), "2",
                                    "Threads that fill in what was read"),
      .read_engine = verb.setting("read-engine", choice_value({"auto", "io_uring", "threads"}),
                                  "auto", "How the model is read"),
      .read_depth =
          verb.setting("read-depth", count_value(1, 64), "4", "Requests at the disk at once"),
      .read_size =
          verb.setting("read-size", bytes_value(), "512KiB", "Largest request to the disk"),
      .large_frames = verb.setting("large-frames", choice_value({"on", "off"}), "on",
                                   "Keep chunks in large pages where the kernel has them"),
      .tripwires = verb.setting("tripwires", choice_value({"on", "off"}), "on",
                                "Learn the position from resident chunks too"),
      .stand_aside = verb.setting("stand-aside", choice_value({"auto", "off"}), "auto",
                                  "Map plainly when the budget holds the whole model"),
      .experts_sensor = verb.setting(
          "experts-sensor", choice_value({"auto", "ggml_backend", "eval_callback", "faults"}),
          "auto", "What tells which experts come next; auto: the first that the program allows"),
      .sync_handler = verb.setting("sync-handler", switch_value(), "",
                                   "Fetch on the fault thread, for comparison"),
      .eager_reconcile = verb.setting("eager-reconcile", switch_value(), "",
                                      "Check the accounting after every fetch"),
      .fetching_timeout_ms = verb.setting("fetching-timeout-ms", count_value(1, 3'600'000), "30000",
                                          "When a fetch that nobody carries is given up"),
      .protect_current = verb.setting("protect-current", switch_value(), "",
                                      "Never give up the chunk at the position or before it"),
      .chunk_max = verb.setting("chunk-max", bytes_value(), "2MiB", "Largest unit of residency"),
      .match = verb.setting("match", text_value("GLOB"), "",
                            "Files to control besides GGUF and safetensors"),
      .program_need =
          verb.setting("program-need", need_value(), "auto",
                       "What the program may use beside the budget; auto: at least 1 GiB, else a "
                       "quarter of the model"),
      .history = history_setting(verb),
  };
}

}  // namespace

void add_run(Frame& frame) {
  auto options = std::make_shared<Options>();
  Verb& verb = frame.add("run", "Run a program that maps a model larger than memory");
  verb.takes_program();
  const Settings settings = add_settings(verb);
  verb.app().add_option("--report", options->report, "Write a report (JSON) at the end");
  verb.app().add_option("--trace", options->traces.fault, "Write every demand fault to a file");
  verb.app().add_option("--fetch-trace", options->traces.fetch, "Write every read of the model");
  verb.app().add_option("--victim-trace", options->traces.victim, "Write every eviction");
  verb.app().add_option("--routing", options->routing,
                        "Write which experts each token used (.xz: compressed)");
  verb.app().add_flag("--no-cgroup", options->no_cgroup, "Make no control group");
  verb.app().add_flag("--quiet", options->quiet, "Say nothing but failures");
  verb.app().add_flag("--explain", options->explain, "Print every setting with its source first");
  verb.example("residctl run --ram 6GiB -- llama-server -m big.gguf", "keep at most 6 GiB of it");
  verb.example("residctl run --ram 50% --report r.json -- python3 infer.py",
               "half of the model, with a report");
  verb.action([options, settings, &verb](const Context& context) -> Result<int> {
    auto config = to_config(settings);
    if (!config) return tl::unexpected(config.error());
    config->quiet = options->quiet ? 1 : 0;
    if (options->explain) fmt::print(stderr, "{}", explain_text(verb.settings()));
    run::RunOptions run;
    run.command = context.program;
    run.config = *config;
    run.json = context.json;
    run.use_cgroup = !options->no_cgroup;
    run.traces = options->traces;
    run.routing_path = options->routing;
    run.history = settings.history.value;
    if (!options->report.empty()) run.report_path = options->report;
    if (settings.program_need.value != "auto") {
      auto need = parse_bytes(settings.program_need.value, settings.program_need.origin);
      if (!need) return tl::unexpected(need.error());
      run.program_need = *need;
    }
    return run::run_program(run);
  });
}

}  // namespace resid::cli

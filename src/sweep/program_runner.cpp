// Cells of a real program on a real model, at equal memory: the kernel's arm in a control group of
// budget + need, the pager's with the same two figures given to `residctl run`.

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "host/cgroup.hpp"
#include "sweep/page_cache.hpp"
#include "sweep/process.hpp"
#include "sweep/runners.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kControlFile = "control.json";
constexpr const char* kControlOutput = "control.out";
constexpr const char* kReport = "run-report.json";
// Room for what differs from run to run, and for pages on their way in and out, which a group that
// is full to the brim pays for dearly. Small: arm A may use what is left of it for the model.
constexpr std::uint64_t kSlack = 4ULL << 20;
constexpr std::uint64_t kSlackShare = 64;  // and this part of the model
// What the pager itself may hold beside the program: threads, tables. Its residency is bounded by
// its own accounts, which are checked against the kernel's, so the group's limit is but a net.
constexpr std::uint64_t kPagerRoom = 32ULL << 20;
constexpr int kSampleMs = 10;
constexpr double kWarm = 0.99;  // of the model, before and after a run that is called resident

// Repacking copies the weights into anonymous memory and computes with other kernels; with it the
// arms would neither hold nor print the same.
const std::vector<std::pair<std::string, std::string>> kEnvironment{{"LLAMA_ARG_REPACK", "0"}};

Outcome failed(std::string reason, Json figures = nullptr) {
  return {State::failed, std::move(reason), std::move(figures)};
}

Result<host::ChildGroup> make_group() {
  auto self = host::memory_cgroup();
  if (!self) return tl::unexpected(self.error());
  auto group = host::ChildGroup::create(*self);
  if (!group) {
    Failure failure = group.error();
    failure.todo = "run as root, or leave --program out: equal memory needs a control group";
    return tl::unexpected(failure);
  }
  return group;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

// Where two texts begin to differ, counted from 0.
std::size_t first_difference(std::string_view a, std::string_view b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at.first - a.begin());
}

class ProgramRunner {
 public:
  ProgramRunner(RunnerContext context, const SweepFolder& folder, Subject model, Control control)
      : context_(std::move(context)),
        report_path_(folder.file(kReport)),
        model_(std::move(model)),
        control_(std::move(control)) {}

  Outcome run(const Cell& cell) const {
    const std::uint64_t budget =
        page_down(static_cast<std::uint64_t>(static_cast<double>(model_.bytes) * cell.ratio));
    Json figures{{"schema", 1},
                 {"arm", cell.arm},
                 {"ratio", cell.ratio},
                 {"store_bytes", model_.bytes},
                 {"budget_bytes", cell.arm == kResident ? Json(nullptr) : Json(budget)},
                 {"program_need_bytes", control_.need_bytes}};
    if (cell.arm == kResident) return resident(std::move(figures));
    const auto cold = make_cold(model_.files);
    if (!cold) return failed(cold.error().line());
    figures["cold"] = {{"checked_by", name(cold->source)}, {"cached_bytes", cold->bytes}};
    return cell.arm == "A" ? kernel(budget, std::move(figures))
                           : paged(cell, budget, std::move(figures));
  }

 private:
  ProcessRequest request_of(std::vector<std::string> command, std::string path) const {
    ProcessRequest request;
    request.path = std::move(path);
    request.command = std::move(command);
    request.environment = kEnvironment;
    request.stop = context_.stop;
    if (context_.tick) request.tick = [this](pid_t) { context_.tick(); };
    return request;
  }
  ProcessRequest plain() const {
    return request_of(context_.settings->program, context_.settings->program.front());
  }

  // What is the same for all arms: exit, output, time and bytes.
  Outcome judge(const ProcessResult& r, Json figures) const {
    figures["wall_s"] = r.wall_s;
    figures["kernel_read_bytes"] = r.read_bytes;
    if (!figures.contains("bytes_read")) figures["bytes_read"] = r.read_bytes;
    const std::string words = last_words(r.err);
    if (r.signal != 0 || r.exit_code != 0) {
      std::string reason = r.signal != 0 ? fmt::format("killed by signal {}", r.signal)
                                         : fmt::format("exit code {}", r.exit_code);
      if (!words.empty()) reason += ": " + words;
      return failed(std::move(reason), std::move(figures));
    }
    const bool equal = !r.output_cut && r.out == control_.output;
    figures["output_equal"] = equal;
    if (!equal) {
      return failed(fmt::format("its output differs from the control's at byte {}",
                                first_difference(r.out, control_.output)),
                    std::move(figures));
    }
    return {State::done, {}, std::move(figures)};
  }

  Outcome resident(Json figures) const {
    const auto enough = static_cast<std::uint64_t>(kWarm * static_cast<double>(model_.bytes));
    auto before = make_warm(model_.files);
    if (!before) return failed(before.error().line());
    if (before->bytes < enough) {
      return failed(fmt::format("only {} of {} stay in the page cache, so nothing is resident",
                                format_bytes(before->bytes), format_bytes(model_.bytes)),
                    std::move(figures));
    }
    auto result = run_process(plain());
    if (!result) return failed(result.error().line(), std::move(figures));
    if (result->stopped) return {State::stopped, {}, nullptr};
    const auto after = cached(model_.files);
    if (!after) return failed(after.error().line(), std::move(figures));
    figures["warm"] = {{"checked_by", name(after->source)},
                       {"before_bytes", before->bytes},
                       {"after_bytes", after->bytes}};
    if (after->bytes < enough) {
      return failed(fmt::format("the kernel dropped {} of the model from the page cache meanwhile",
                                format_bytes(model_.bytes - std::min(model_.bytes, after->bytes))),
                    std::move(figures));
    }
    return judge(*result, std::move(figures));
  }

  Outcome kernel(std::uint64_t budget, Json figures) const {
    auto group = make_group();
    if (!group) return failed(group.error().line(), std::move(figures));
    const std::uint64_t limit = budget + control_.need_bytes;
    if (auto ok = group->set_limit(limit); !ok)
      return failed(ok.error().line(), std::move(figures));
    figures["group_limit_bytes"] = limit;
    ProcessRequest request = plain();
    request.group = &*group;
    auto result = run_process(request);
    if (!result) return failed(result.error().line(), std::move(figures));
    if (result->stopped) return {State::stopped, {}, nullptr};
    const auto after = group->figures();
    if (after && after->oom_kills > 0 && (result->signal != 0 || result->exit_code != 0)) {
      return {State::censored,
              fmt::format("killed by the kernel at its group's limit of {}", format_bytes(limit)),
              std::move(figures)};
    }
    if (after) figures["group_peak_bytes"] = after->peak;
    return judge(*result, std::move(figures));
  }

  Outcome paged(const Cell& cell, std::uint64_t budget, Json figures) const {
    std::vector<std::string> command{"residctl",
                                     "run",
                                     "--quiet",
                                     "--ram",
                                     fmt::format("{}", budget),
                                     "--policy",
                                     cell.arm == "C" ? "lru" : "layer_order_declared",
                                     "--prefetch",
                                     cell.arm == "E" ? "on" : "off",
                                     "--history",
                                     "off",
                                     "--program-need",
                                     fmt::format("{}", control_.need_bytes + kPagerRoom),
                                     "--report",
                                     report_path_,
                                     "--"};
    const auto& program = context_.settings->program;
    command.insert(command.end(), program.begin(), program.end());
    ::unlink(report_path_.c_str());
    auto result = run_process(request_of(std::move(command), context_.self));
    const auto text = read_file(report_path_);
    ::unlink(report_path_.c_str());
    if (!result) return failed(result.error().line(), std::move(figures));
    if (result->stopped) return {State::stopped, {}, nullptr};
    const Json report = text ? Json::parse(*text, nullptr, false) : Json(nullptr);
    if (std::string why = beyond_reach(*result, report); !why.empty()) {
      return {State::censored, std::move(why), std::move(figures)};
    }
    if (report.is_object()) {
      take(report, figures);
      if (result->exit_code == 0 && figures["budget_kept"] != true) {
        return failed("the budget was not kept", std::move(figures));
      }
    } else if (result->exit_code == 0 && result->signal == 0) {
      return failed("it left no report", std::move(figures));
    }
    return judge(*result, std::move(figures));
  }

  // Why this budget cannot be run; empty when that is not what happened. Exit code 4 alone may be
  // the program's own.
  static std::string beyond_reach(const ProcessResult& result, const Json& report) {
    if (result.exit_code == 0 && result.signal == 0) return {};
    const std::string words = last_words(result.err);
    if (!report.is_object()) return result.exit_code == 4 ? words : std::string();
    const Json::json_pointer status("/failure/status");
    const std::string failure = report.contains(status) && report.at(status).is_string()
                                    ? report.at(status).get<std::string>()
                                    : std::string();
    if (failure == name(Status::infeasible) || failure == name(Status::budget_too_small)) {
      return words.empty() ? "infeasible at this budget" : words;
    }
    const Json::json_pointer kills("/control_group/oom_kills");
    if (failure == name(Status::out_of_memory) && report.contains(kills) &&
        report.at(kills).is_number() && report.at(kills) != 0) {
      return words.empty() ? "killed by the kernel at its group's limit" : words;
    }
    return {};
  }

  static void take(const Json& report, Json& figures) {
    const auto copy = [&](const char* from, const char* to) {
      figures[to] = report.contains(from) ? report[from] : Json(nullptr);
    };
    copy("bytes_fetched", "bytes_read");
    copy("budget_kept", "budget_kept");
    copy("resident_peak_bytes", "resident_peak_bytes");
    copy("kernel_peak_bytes", "kernel_peak_bytes");
    copy("faults", "faults");
    copy("latency_us", "latency_us");
    copy("prefetch", "prefetch");
    copy("policy", "policy");
    copy("config_hash", "config_hash");
  }

  RunnerContext context_;
  std::string report_path_;
  Subject model_;
  Control control_;
};

// The one of an earlier call of the same sweep.
std::optional<Control> stored_control(const SweepFolder& folder) {
  const auto text = read_file(folder.file(kControlFile));
  auto output = read_file(folder.file(kControlOutput));
  if (!text || !output) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("need_bytes") || !json["need_bytes"].is_number() ||
      !json.contains("output_hash") || json["output_hash"] != text_hash(*output)) {
    return std::nullopt;
  }
  return Control{json["need_bytes"].get<std::uint64_t>(), std::move(*output)};
}

// One plain run of the program, which must succeed; nullopt when it was stopped.
Result<std::optional<ProcessResult>> run_plain(const RunnerContext& context,
                                               const host::ChildGroup* group,
                                               const std::function<void()>& sample) {
  const std::string& name = context.settings->program.front();
  ProcessRequest request;
  request.path = name;
  request.command = context.settings->program;
  request.environment = kEnvironment;
  request.group = group;
  request.stop = context.stop;
  request.tick_ms = kSampleMs;
  request.tick = [&](pid_t) {
    if (sample) sample();
    if (context.tick) context.tick();
  };
  auto result = run_process(request);
  if (!result) return tl::unexpected(result.error());
  if (result->stopped) return std::optional<ProcessResult>();
  if (result->signal != 0 || result->exit_code != 0) {
    const std::string words = last_words(result->err);
    return fail(Status::system, name,
                fmt::format("a run with everything resident ended with {} {}{}{}",
                            result->signal != 0 ? "signal" : "exit code",
                            result->signal != 0 ? result->signal : result->exit_code,
                            words.empty() ? "" : ": ", words),
                "run the program by itself first");
  }
  if (result->output_cut) {
    return fail(Status::system, name, "it prints more than 64 MiB", "let it print less");
  }
  return std::optional(std::move(*result));
}

// All that a group held at its worst moment but page cache: the program's memory, and the kernel's
// for it.
class Need {
 public:
  void sample(const host::ChildGroup& group) {
    const auto figures = group.figures();
    if (!figures) return;
    const std::uint64_t cache = figures->file - std::min(figures->file, figures->shmem);
    cache_ = std::max(cache_, cache);
    sampled_ = std::max(sampled_, figures->usage - std::min(figures->usage, cache));
    kernels_ = std::max(kernels_, figures->peak);
  }
  // The kernel's own peak misses nothing, but counts page cache too. Where everything was cached on
  // our account before, there is none; a model larger than memory leaves only the samples.
  std::uint64_t peak() const { return kernels_ != 0 && cache_ <= kCold ? kernels_ : sampled_; }

 private:
  std::uint64_t cache_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t kernels_ = 0;  // 0: it does not tell
};

// nullopt when it was stopped.
Result<std::optional<Control>> control_run(const RunnerContext& context, const SweepFolder& folder,
                                           const Subject& model) {
  auto group = make_group();
  if (!group) return tl::unexpected(group.error());
  Need need;
  auto run = run_plain(context, &*group, [&] { need.sample(*group); });
  if (!run) return tl::unexpected(run.error());
  if (!*run) return std::optional<Control>();
  need.sample(*group);
  const std::uint64_t peak = need.peak();
  Control control{page_up(peak + host::figures_lag() + kSlack + model.bytes / kSlackShare),
                  std::move((*run)->out)};
  if (auto ok = folder.write(kControlOutput, control.output); !ok)
    return tl::unexpected(ok.error());
  const Json json{{"need_bytes", control.need_bytes},
                  {"peak_bytes", peak},
                  {"wall_s", (*run)->wall_s},
                  {"output_bytes", control.output.size()},
                  {"output_hash", text_hash(control.output)}};
  if (auto ok = folder.write(kControlFile, json.dump(2) + "\n"); !ok) {
    return tl::unexpected(ok.error());
  }
  return std::optional(std::move(control));
}

}  // namespace

Result<std::optional<Control>> measure_control(const RunnerContext& context,
                                               const SweepFolder& folder, const Subject& model) {
  if (auto warm = make_warm(model.files); !warm) return tl::unexpected(warm.error());
  // Outside of any group: what the program and its libraries are made of comes into the page cache
  // on our account and stays there, so that no cell reads it.
  auto first = run_plain(context, nullptr, {});
  if (!first) return tl::unexpected(first.error());
  if (!*first) return std::optional<Control>();
  auto control = stored_control(folder);
  if (!control) {
    auto measured = control_run(context, folder, model);
    if (!measured || !*measured) return measured;
    control = std::move(*measured);
  }
  if ((*first)->out != control->output) {
    return fail(Status::usage, context.settings->program.front(),
                fmt::format("two runs of it differ at byte {} of their output",
                            first_difference((*first)->out, control->output)),
                "make it repeatable: a fixed seed or temperature 0, no times on its output");
  }
  return control;
}

CellRunner program_runner(RunnerContext context, const SweepFolder& folder, Subject model,
                          Control control) {
  const auto runner = std::make_shared<const ProgramRunner>(std::move(context), folder,
                                                            std::move(model), std::move(control));
  return [runner](const Cell& cell) { return runner->run(cell); };
}

}  // namespace resid::sweep

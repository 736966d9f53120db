#include "run/launcher.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/units.hpp"
#include "control/expert_area.hpp"
#include "host/memory.hpp"
#include "model/model.hpp"
#include "report/report_file.hpp"
#include "report/run_report.hpp"
#include "run/child.hpp"
#include "run/program.hpp"
#include "run/routing_record.hpp"
#include "run/supervise.hpp"
#include "run/usage_keeper.hpp"

namespace resid::run {
namespace {

constexpr std::uint64_t kGib = 1024ULL * 1024 * 1024;

class Notes {
 public:
  explicit Notes(bool quiet) : quiet_(quiet) {}
  void operator()(std::string_view text) const {
    if (!quiet_) fmt::print(stderr, "residctl: {}\n", text);
  }

 private:
  bool quiet_;
};

// The model named on the command line, if there is one: only a guess, for what has to be decided
// before the program has mapped it. 0 when there is none.
std::uint64_t guessed_model_bytes(const std::vector<std::string>& command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    std::string path = command[i];
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) path = path.substr(path.find('=') + 1);
    if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd || !looks_like_model(fd.get())) continue;
    const auto model = open_model(path);
    return model ? model->bytes() : static_cast<std::uint64_t>(st.st_size);
  }
  return 0;
}

std::uint64_t need_for(const RunOptions& options, std::uint64_t model_bytes) {
  return options.program_need.value_or(std::max(kGib, model_bytes / 4));
}

// The surroundings of the program: its group, its budget, why nothing it keeps resident is swapped.
struct Setting {
  host::MemoryFacts memory;
  host::MemoryCgroup self;
  std::optional<host::ChildGroup> group;
  host::SwapGuarantee guarantee = host::SwapGuarantee::none;
};

Result<void> make_group(const RunOptions& options, const Notes& note, Setting& setting) {
  if (!options.use_cgroup) {
    if (auto self = host::memory_cgroup()) setting.self = std::move(*self);
    return {};
  }
  auto self = host::memory_cgroup();
  if (!self) return tl::unexpected(self.error());
  setting.self = std::move(*self);
  host::sweep_stale_groups(setting.self);
  if (setting.self.version == host::CgroupVersion::none) {
    note("no memory control group here: the program's own memory is not limited");
    return {};
  }
  auto group = host::ChildGroup::create(setting.self);
  if (group) {
    setting.group.emplace(std::move(*group));
  } else {
    note(fmt::format("no control group of its own ({}): the program's own memory is not limited",
                     group.error().why));
  }
  return {};
}

Result<void> settle_budget(const RunOptions& options, const Notes& note, RunConfig& config,
                           const Setting& setting, std::uint64_t model_guess) {
  if (config.ram_is_percent != 0 || config.ram_bytes != 0) return {};
  auto advice = host::default_budget(setting.memory, setting.self, need_for(options, model_guess),
                                     model_guess == 0 ? ~0ULL : page_up(model_guess));
  if (!advice) return tl::unexpected(advice.error());
  config.ram_bytes = advice->bytes;
  note(fmt::format("--ram not given: {} ({})", format_bytes(advice->bytes), advice->reason));
  return {};
}

// The budget in bytes as far as it is known now; kNoLimit when it hangs on an unknown model.
std::uint64_t foreseen_budget(const RunConfig& config, std::uint64_t model_guess) {
  if (config.ram_is_percent == 0) return config.ram_bytes;
  if (model_guess == 0) return host::kNoLimit;
  return static_cast<std::uint64_t>(static_cast<double>(model_guess) * config.ram_percent / 100.0);
}

Result<void> settle_swap(const Notes& note, const RunConfig& config, Setting& setting,
                         std::uint64_t model_guess) {
  auto guarantee =
      host::swap_guarantee(setting.memory, setting.self, setting.group ? &*setting.group : nullptr,
                           foreseen_budget(config, model_guess));
  if (!guarantee) return tl::unexpected(guarantee.error());
  setting.guarantee = *guarantee;
  if (!setting.group) {
    constexpr std::array<std::string_view, 5> kWhy{
        "", "this machine has no swap", "its control group forbids swap",
        "it lives on a mount that is never swapped", "resident pages are locked (mlock)"};
    note(fmt::format("resident stays resident because {}",
                     kWhy[static_cast<std::size_t>(*guarantee)]));
  }
  return {};
}

// Called over and over while the program runs: limits the group once the budget is known, and asks
// the kernel how much is resident.
class Watch {
 public:
  Watch(const RunOptions& options, const RunPage& page, host::ChildGroup* group, const Notes& note)
      : options_(options), page_(page), group_(group), note_(note) {}

  void tick() {
    if (group_ == nullptr) return;
    const std::uint64_t budget = page_.budget_bytes.load();
    if (budget != 0 && !limit_tried_) {
      limit_tried_ = true;
      const std::uint64_t limit = budget + need_for(options_, page_.model_bytes.load());
      if (auto done = group_->set_limit(limit)) {
        limit_ = std::min(limit, group_->ceiling());
      } else {
        note_(fmt::format("the control group has no limit: {}", done.error().why));
      }
    }
    if (const auto figures = group_->figures()) {
      shmem_peak_ = std::max(shmem_peak_, figures->shmem);
      oom_kills_ = std::max(oom_kills_, figures->oom_kills);
    }
  }

  void tell(RunFacts& facts) const {
    if (group_ == nullptr) return;
    facts.control_group = group_->path();
    facts.group_limit = limit_;
    facts.kernel_shmem_peak = shmem_peak_;
    facts.kernel_shmem_lag = host::figures_lag();
    facts.oom_kills = oom_kills_;
  }

 private:
  const RunOptions& options_;
  const RunPage& page_;
  host::ChildGroup* group_;
  const Notes& note_;
  bool limit_tried_ = false;
  std::uint64_t limit_ = 0;
  std::uint64_t shmem_peak_ = 0;
  std::uint64_t oom_kills_ = 0;
};

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// The backend that the program is to load, empty where it is not to be told by one.
std::string backend_for(ExpertSensor sensor, const std::string& preload_library) {
  const bool wanted = sensor == ExpertSensor::automatic || sensor == ExpertSensor::ggml_backend;
  return wanted ? find_ggml_backend(preload_library) : std::string();
}

}  // namespace

Result<std::string> find_preload_library() {
  std::array<char, PATH_MAX> exe{};
  const ssize_t n = ::readlink("/proc/self/exe", exe.data(), exe.size() - 1);
  if (n <= 0) return fail_errno(Status::system, "/proc/self/exe", errno);
  const std::string prefix = directory_of(directory_of(std::string(exe.data())));
  const std::array<std::string, 3> places{prefix + "/lib/" RESID_PRELOAD_NAME,
                                          prefix + "/" RESID_RELATIVE_LIBDIR "/" RESID_PRELOAD_NAME,
                                          RESID_INSTALL_LIBDIR "/" RESID_PRELOAD_NAME};
  for (const std::string& path : places) {
    if (::access(path.c_str(), R_OK) != 0) continue;
    // ld.so(8) splits LD_PRELOAD at both and knows no escape.
    if (path.find_first_of(": ") != std::string::npos) {
      return fail(Status::system, path, "its path holds a space or a colon, LD_PRELOAD cannot",
                  "install residctl under another path");
    }
    return path;
  }
  return fail(Status::system, RESID_PRELOAD_NAME,
              fmt::format("not found in {}", fmt::join(places, ", ")), "reinstall residctl");
}

std::string find_ggml_backend(const std::string& preload_library) {
  const std::string path = directory_of(preload_library) + "/" RESID_BACKEND_NAME;
  return ::access(path.c_str(), R_OK) == 0 ? path : std::string();
}

Result<int> run_program(const RunOptions& options) {
  const Notes note(options.config.quiet != 0);
  if (options.command.empty()) {
    return fail(Status::usage, "run", "no program was given",
                "write it behind two dashes: residctl run [OPTIONS] -- PROGRAM [ARGS]");
  }
  auto program = find_program(options.command[0], std::getenv("PATH"));
  if (!program) return tl::unexpected(program.error());
  auto library = find_preload_library();
  if (!library) return tl::unexpected(library.error());
  std::optional<ReportFile> report;
  if (options.report_path) {
    auto file = ReportFile::prepare(*options.report_path);
    if (!file) return tl::unexpected(file.error());
    report.emplace(std::move(*file));
  }

  Setting setting;
  auto memory = host::memory_facts();
  if (!memory) return tl::unexpected(memory.error());
  setting.memory = *memory;
  if (auto ok = make_group(options, note, setting); !ok) return tl::unexpected(ok.error());
  auto page_file = RunPageFile::create();
  if (!page_file) return tl::unexpected(page_file.error());
  RunPage& page = page_file->page();
  std::optional<RunTraces> traces;
  if (options.traces.any()) {
    auto made = RunTraces::create(options.traces, page_file->path(), options.config.chunk_max);
    if (!made) return tl::unexpected(made.error());
    traces.emplace(std::move(*made));
  }
  std::optional<RoutingRecord> routing;
  if (!options.routing_path.empty()) {
    auto made = RoutingRecord::create(options.routing_path, page_file->path());
    if (!made) return tl::unexpected(made.error());
    routing.emplace(std::move(*made));
  }
  // The report says less without it; the run is the same.
  auto experts = ExpertAreaFile::create_at(expert_area_path(page_file->path()));
  std::optional<UsageKeeper> usage;
  if (experts) {
    usage.emplace(experts->page(), options.history, note);
  } else {
    note(fmt::format("the use of experts is not counted: {}", experts.error().why));
  }
  page.config = options.config;
  const std::uint64_t model_guess = guessed_model_bytes(options.command);
  if (auto ok = settle_budget(options, note, page.config, setting, model_guess); !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = settle_swap(note, page.config, setting, model_guess); !ok) {
    return tl::unexpected(ok.error());
  }
  page.config.swap_guarantee = static_cast<std::uint8_t>(setting.guarantee);
  // Then the model is mapped plainly, and what the program copies out of it is its own affair.
  const bool aside = model_guess != 0 && options.config.never_stand_aside == 0 &&
                     foreseen_budget(page.config, model_guess) >= page_down(model_guess);
  page.config.aside_expected = aside ? 1 : 0;
  page.config.own_cgroup = setting.group ? 1 : 0;

  Launch launch;
  launch.path = program->path;
  Adapted adapted = adapt_arguments(options.command);
  launch.arguments = std::move(adapted.arguments);
  for (const std::string& reason : adapted.reasons)
    note(reason);
  const std::string backend = aside ? "" : backend_for(options.config.expert_sensor, *library);
  if (backend.size() < sizeof page.ggml_backend) backend.copy(page.ggml_backend, backend.size());
  launch.environment = adapt_environment(::getenv, {*library, backend}, page_file->path(), aside);
  for (const Change& change : launch.environment) {
    if (!change.reason.empty()) note(change.reason);
  }
  launch.group = setting.group ? &*setting.group : nullptr;
  launch.stdout_to_stderr = options.json;

  const SignalHold signals;
  launch.signal_mask = signals.before();
  const std::uint64_t started = now_ns();
  auto pid = start(launch);
  if (!pid) return tl::unexpected(pid.error());
  if (usage) usage->start();
  Watch watch(options, page, setting.group ? &*setting.group : nullptr, note);
  const Supervised done = supervise(*pid, signals, [&] {
    watch.tick();
    if (traces) traces->drain();
  });

  if (usage) usage->finish();

  RunFacts facts;
  facts.command = options.command;
  facts.wall_s = static_cast<double>(now_ns() - started) / 1e9;
  facts.swap_guarantee = host::name(setting.guarantee);
  watch.tell(facts);
  if (experts) facts.board = &experts->page().board;
  page.bypassed_reads_mib.store(
      bypassed_mib(done.chars_read, page.stats.bytes_fetched.load(), page.model_bytes.load()));
  Verdict verdict = judge(page, done.ending);
  if (!verdict.failure && facts.oom_kills > 0 && done.ending.by_signal &&
      done.ending.code == SIGKILL) {
    verdict.failure = Failure{Status::out_of_memory, options.command[0],
                              fmt::format("the kernel killed it at its group's limit of {}",
                                          format_bytes(facts.group_limit)),
                              "raise --program-need, which is what it may use beside the budget"};
  }
  facts.exit_code = verdict.exit_code;
  facts.failure = verdict.failure;

  // What the library met it has printed when it met it.
  if (verdict.failure && page.last_status.load() == 0) {
    fmt::print(stderr, "{}\n", verdict.failure->line());
  }
  if (page.bypassed_reads_mib.load() != 0) {
    note(
        fmt::format("the program read {} MiB of files by itself, past the pager: is it mapping "
                    "its model?",
                    page.bypassed_reads_mib.load()));
  }
  if (options.config.quiet == 0) fmt::print(stderr, "{}", run_summary(page, facts));
  const std::string text = report_text(run_report(page, facts));
  if (options.json) std::fwrite(text.data(), 1, text.size(), stdout);
  int code = facts.exit_code;
  const auto settle = [&code](const Result<void>& written) {
    if (written) return;
    fmt::print(stderr, "{}\n", written.error().line());
    if (code == 0) code = exit_code(written.error().status);
  };
  if (report) settle(report->commit(text));
  if (traces && !verdict.failure) settle(traces->finish(config_hash(page.config)));
  if (routing && !verdict.failure) {
    auto recorded = routing->finish();
    settle(recorded.map([](const auto&) {}));
    if (recorded) {
      note(fmt::format("{}: {} tokens, {} more of prompts without a last layer",
                       options.routing_path, recorded->tokens, recorded->left_out));
    }
  }
  return code;
}

}  // namespace resid::run

// residctl sweep: arms x budgets x repetitions, to tables, figures and one page.

#include "sweep/sweep.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/progress.hpp"

namespace resid::cli {
namespace {

using sweep::Mode;

struct Options {
  std::string out, arms, ratios = "0.25,0.375,0.5,0.625,0.75";
  std::string size, model, chunk = "2MiB", store_dir;
  std::uint32_t repeats = 3, passes = 5, threads = 1;
  std::uint64_t compute = 0, seed = 1;
  bool program = false, force = false, keep_store = false;
  // Of replay, handed on as they are.
  std::deque<std::pair<std::string, std::string>> values;
  std::deque<std::pair<std::string, bool>> flags;
};

std::string duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

// One line that is rewritten on a terminal; elsewhere a line now and then.
class SweepLine {
 public:
  SweepLine() : terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~SweepLine() { end(); }
  SweepLine(const SweepLine&) = delete;
  SweepLine& operator=(const SweepLine&) = delete;

  void show(const sweep::Progress& p) {
    const std::uint64_t now = now_ns();
    if (p.running != nullptr) cell_began_ns_ = now;
    state_ = p;
    running_ = p.running == nullptr
                   ? std::string()
                   : fmt::format("; {} at {}, repetition {}", p.running->arm,
                                 sweep::ratio_text(p.running->ratio), p.running->repeat);
    state_.running = nullptr;  // the cell does not outlive the call
    known_ = true;
    if (terminal_ || now - shown_ns_ >= kPlainIntervalNs || p.done == p.total) print(now);
  }
  void tick() {
    const std::uint64_t now = now_ns();
    if (!known_ || now - shown_ns_ < (terminal_ ? kTerminalIntervalNs : kPlainIntervalNs)) return;
    print(now);
  }
  void note(const std::string& text) {
    end();
    fmt::print(stderr, "residctl: {}\n", text);
  }
  void end() {
    if (open_) fmt::print(stderr, "\n");
    open_ = false;
  }

 private:
  static constexpr std::uint64_t kTerminalIntervalNs = 500'000'000;
  static constexpr std::uint64_t kPlainIntervalNs = 10'000'000'000;

  void print(std::uint64_t now) {
    shown_ns_ = now;
    std::string line = fmt::format("sweep: {} of {} cells", state_.done, state_.total);
    if (state_.censored > 0) line += fmt::format(", {} censored", state_.censored);
    if (state_.failed > 0) line += fmt::format(", {} failed", state_.failed);
    if (state_.left_s >= 0 && state_.done < state_.total) {
      // A cell may take longer than those before it: then nobody knows.
      const double in_cell = static_cast<double>(now - cell_began_ns_) / 1e9;
      if (state_.left_s > in_cell) {
        line += fmt::format(", about {} left", duration(state_.left_s - in_cell));
      }
    }
    line += running_;
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n");
    open_ = terminal_;
    std::fflush(stderr);
  }

  bool terminal_;
  bool open_ = false;  // the cursor stands in our line
  bool known_ = false;
  sweep::Progress state_;
  std::string running_;
  std::uint64_t shown_ns_ = 0;
  std::uint64_t cell_began_ns_ = 0;
};

Result<sweep::SweepSettings> settings_of(const Options& o, const Context& context) {
  sweep::SweepSettings s;
  s.mode = o.program ? Mode::program : Mode::replay;
  const std::string arms = !o.arms.empty() ? o.arms : o.program ? "R,A,C,D,E" : "A,C,D,E,OPT";
  auto chosen = sweep::parse_arms(arms, s.mode);
  if (!chosen) return tl::unexpected(chosen.error());
  s.arms = std::move(*chosen);
  auto ratios = sweep::parse_ratios(o.ratios);
  if (!ratios) return tl::unexpected(ratios.error());
  s.ratios = std::move(*ratios);
  auto chunk = parse_bytes(o.chunk, "--chunk");
  if (!chunk) return tl::unexpected(chunk.error());
  s.chunk = *chunk;
  s.model = o.model;
  if (!o.size.empty() || (o.model.empty() && !o.program)) {
    auto size = parse_bytes(o.size.empty() ? "1GiB" : o.size, "--size");
    if (!size) return tl::unexpected(size.error());
    if (*size == 0 || *size % kPage != 0) {
      return fail(Status::usage, "--size", fmt::format("{} bytes are not whole pages", *size),
                  "give a multiple of 4 KiB");
    }
    s.size = *size;
  }
  s.repeats = o.repeats;
  s.seed = o.seed;
  s.passes = o.passes;
  s.threads = o.threads;
  s.compute_ns_per_mib = o.compute;
  for (const auto& [key, value] : o.values) {
    if (!value.empty()) s.passed.emplace_back(key, value);
  }
  for (const auto& [key, given] : o.flags) {
    if (given) s.passed.emplace_back(key, "");
  }
  s.program = context.program;
  if (o.program && !s.passed.empty()) {
    return fail(Status::usage, s.passed.front().first, "is a switch of replay",
                "leave it out: --program runs a program of yours");
  }
  return s;
}

void print_end(const Options& o, const sweep::SweepEnd& end) {
  fmt::print("{} cells: {} done, {} censored, {} failed\n", end.cells, end.done, end.censored,
             end.failed);
  fmt::print("report: {}\n", end.report);
  fmt::print("tables: {0}/cells.csv, {0}/sweep.json\n", o.out);
}

// The document as it was written.
Result<void> print_json(const Options& o) {
  const std::string path = o.out + "/sweep.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail_errno(Status::unreadable, path, errno);
  std::cout << in.rdbuf() << std::flush;
  return {};
}

Result<int> act(const Options& o, const Context& context) {
  auto settings = settings_of(o, context);
  if (!settings) return tl::unexpected(settings.error());
  StopSignals signals;
  SweepLine line;
  sweep::SweepRequest request;
  request.settings = std::move(*settings);
  request.out = o.out;
  request.store_dir = o.store_dir;
  request.force = o.force;
  request.keep_store = o.keep_store;
  request.stop = &signals.flag();
  request.show = [&line](const sweep::Progress& p) { line.show(p); };
  request.tick = [&line] { line.tick(); };
  request.note = [&line](const std::string& text) { line.note(text); };
  auto end = sweep::run_sweep(request);
  line.end();
  if (!end) return tl::unexpected(end.error());
  if (end->stopped) {
    const Failure failure{
        Status::system, o.out,
        fmt::format("stopped with {} of {} cells finished", end->done + end->censored, end->cells),
        "call the same command again to go on; --force starts over"};
    fmt::print(stderr, "{}\n", failure.line());
    signals.resume_default();
    return 1;
  }
  for (const std::string& note : end->notes)
    line.note(note);
  if (context.json) {
    if (auto ok = print_json(o); !ok) return tl::unexpected(ok.error());
  } else {
    print_end(o, *end);
  }
  if (end->failed == 0) return 0;
  line.note(fmt::format("{} cells failed; their reasons are in {}", end->failed, end->report));
  return 1;
}

void add_passed(CLI::App& app, Options& o) {
  constexpr const char* kGroup = "Handed on to replay";
  const auto value = [&](const char* key, const char* type, const char* text) {
    auto& slot = o.values.emplace_back(key, "");
    app.add_option(key, slot.second, text)->type_name(type)->group(kGroup);
  };
  const auto flag = [&](const char* key, const char* text) {
    auto& slot = o.flags.emplace_back(key, false);
    app.add_flag(key, slot.second, text)->group(kGroup);
  };
  value("--lookahead-window", "N", "How many chunks a thread may be ahead of the slowest");
  value("--consumption-signal", "{tid0,all-threads}", "When a chunk counts as consumed");
  value("--advice", "WORD", "Arms A and B: the one madvise, instead of the faster of two");
  value("--prefetch-depth", "N", "How many chunks ahead (arms B and E)");
  value("--prefetch-admission", "{guarded,always}", "May a prefetch evict what is needed sooner");
  value("--prefetch-retention", "{pinned,none}", "Keep a prefetched chunk until it is used");
  value("--fetch-workers", "N", "Threads that fill in what was read");
  value("--fetching-timeout-ms", "N", "When a fetch that nobody carries is given up");
  flag("--sync-handler", "Fetch on the fault thread");
  flag("--eager-reconcile", "Check the accounting after every fetch");
  flag("--protect-current", "Never give up the chunk at the position or before it");
}

}  // namespace

void add_sweep(Frame& frame) {
  auto o = std::make_shared<Options>();
  Verb& verb = frame.add("sweep", "Measure arms against each other over many budgets");
  verb.takes_program();
  CLI::App& app = verb.app();
  app.option_defaults()->take_last();
  app.add_option("--out", o->out, "Folder for everything that comes out; a sweep goes on in it")
      ->type_name("DIR")
      ->required();
  app.add_option("--arms", o->arms,
                 "A,B,C,D,E,OPT (default A,C,D,E,OPT); with --program R,A,C,D,E (default)")
      ->type_name("LIST");
  app.add_option("--ratios", o->ratios, "Budgets as shares of the store")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--repeats", o->repeats, "Repetitions of every cell")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--size", o->size, "Size of a generated store (default 1GiB)")->type_name("SIZE");
  app.add_option("--model", o->model, "A model as the store")->type_name("FILE");
  app.add_option("--chunk", o->chunk, "Unit of residency")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--passes", o->passes, "Passes over the store in a cell")
      ->type_name("N")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--threads", o->threads, "Threads that consume")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--compute-ns-per-mib", o->compute, "Time that each MiB is computed on")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--program", o->program,
               "Measure the program behind `--`, which maps --model, instead of replay");
  app.add_option("--seed", o->seed, "Of the order of the cells")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--store-dir", o->store_dir, "Folder for the generated store (default: DIR)")
      ->type_name("FOLDER");
  app.add_flag("--keep-store", o->keep_store, "Leave the generated store there");
  app.add_flag("--force", o->force, "Remove what another sweep left in DIR, and start over");
  add_passed(app, *o);
  verb.example("residctl sweep --out report", "the standard arms and budgets on a 1 GiB store");
  verb.example("residctl sweep --out r --model big.gguf --ratios 0.5,0.75 --repeats 5",
               "a real model's bytes, read by replay");
  verb.example(
      "residctl sweep --out p --model m.gguf --program -- llama-completion -m m.gguf -p Hi "
      "-n 32 -no-cnv --temp 0",
      "a real program; every run's text is compared");
  verb.action([o](const Context& context) { return act(*o, context); });
}

}  // namespace resid::cli

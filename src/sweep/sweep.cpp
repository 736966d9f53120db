#include "sweep/sweep.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "host/cgroup.hpp"
#include "sweep/figures.hpp"
#include "sweep/machine.hpp"
#include "sweep/page.hpp"
#include "sweep/runners.hpp"
#include "sweep/summary.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

Json manifest_of(const SweepRequest& request, const std::string& store_folder,
                 const std::optional<Subject>& model, Identity& cells) {
  const SweepSettings& s = request.settings;
  Json machine = machine_facts(store_folder);
  const Json version = program_version();
  Identity surroundings{{"residctl", fmt::format("{} ({})", version["version"].get<std::string>(),
                                                 version["git"].get<std::string>())},
                        {"machine", machine_line(machine)},
                        {"environment", settings_in_environment()}};
  if (model) surroundings.emplace_back("model fingerprint", model->fingerprint);
  cells = identity(s, surroundings);

  Json settings = Json::object();
  std::string all;
  for (const auto& [key, value] : cells) {
    settings[key] = value;
    all += fmt::format("{}={}\n", key, value);
  }
  Json policies = Json::object();
  for (const std::string& arm : s.arms)
    policies[arm] = find_arm(s.mode, arm)->how;
  Json store{{"kind", model ? "model" : "generated"},
             {"bytes", model ? model->bytes : s.size.value_or(0)}};
  if (s.mode == Mode::replay) store["chunk_bytes"] = s.chunk;
  if (model) {
    store["files"] = model->files;
    store["fingerprint"] = model->fingerprint;
  }
  Json program = Json::array();
  for (const std::string& word : s.program)
    program.push_back(word);
  return {{"schema", 1},
          {"residctl", version},
          {"date", utc_now()},
          {"mode", name(s.mode)},
          {"config_hash", text_hash(all)},
          {"settings", std::move(settings)},
          {"policies", std::move(policies)},
          {"store", std::move(store)},
          {"program", std::move(program)},
          {"machine", std::move(machine)}};
}

Result<void> check(const SweepRequest& request) {
  const SweepSettings& s = request.settings;
  const auto refuse = [](std::string what, std::string why, std::string todo) {
    return fail(Status::usage, std::move(what), std::move(why), std::move(todo));
  };
  if (request.out.empty()) return refuse("--out", "is empty", "name a folder");
  if (s.arms.empty() || s.ratios.empty() || s.repeats == 0) {
    return refuse("sweep", "there is nothing to run", "give arms, ratios and repeats");
  }
  if (s.mode == Mode::program) {
    if (s.program.empty()) {
      return refuse("--program", "no program was given",
                    "write it behind two dashes: residctl sweep --program ... -- PROGRAM [ARGS]");
    }
    if (s.model.empty()) {
      return refuse("--program", "needs --model",
                    "name the file that the program maps: its size and its cache matter");
    }
  } else if (!s.program.empty()) {
    return refuse("sweep", "a program was given without --program",
                  "add --program to measure it, or leave it out");
  }
  if (s.model.empty() == !s.size.has_value()) {
    return refuse("sweep", "give exactly one of --size and --model", "see residctl sweep --help");
  }
  return {};
}

// What is drawn and written at the end.
class Outputs {
 public:
  Outputs(const SweepFolder& folder, const SweepRequest& request)
      : folder_(folder), request_(request), mode_(request.settings.mode) {}

  Result<void> write(SweepEnd& end) {
    const auto& records = folder_.records();
    PageInput page;
    page.manifest = &folder_.manifest();
    page.records = &records;
    page.mode = mode_;
    page.figures = sweep_figures(group_records(records, mode_), mode_);
    if (auto ok = draw_all(page, end); !ok) return ok;
    if (auto ok = folder_.write("cells.csv", cells_csv(records)); !ok) return ok;
    const Json json = sweep_json(folder_.manifest(), records, mode_);
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (auto ok = folder_.write("sweep.json", text); !ok) return ok;
    if (auto ok = folder_.write("report.html", report_page(page)); !ok) return ok;
    end.report = folder_.file("report.html");
    return {};
  }

 private:
  Result<void> draw_all(PageInput& page, SweepEnd& end) {
    for (const FigureWithTable& f : page.figures) {
      auto svg = draw(f.figure, request_.gnuplot);
      if (!svg) {
        page.drawings.clear();
        page.no_drawings =
            svg.error().status == Status::program_not_found
                ? "The figures are not drawn: there is no gnuplot here. Install gnuplot-nox and "
                  "call the same command again; it draws them from the cells it has. The tables "
                  "have the same numbers."
                : "The figures are not drawn: " + svg.error().why +
                      ". The tables have the same numbers.";
        end.notes.push_back(page.no_drawings);
        break;
      }
      page.drawings.push_back(std::move(*svg));
    }
    // Of an earlier call with other cells.
    for (const std::string& name : sweep_files()) {
      if (name.ends_with(".svg")) ::unlink(folder_.file(name).c_str());
    }
    for (std::size_t i = 0; i < page.drawings.size(); ++i) {
      if (auto ok = folder_.write(page.figures[i].figure.id + ".svg", page.drawings[i]); !ok) {
        return ok;
      }
    }
    return {};
  }

  const SweepFolder& folder_;
  const SweepRequest& request_;
  Mode mode_;
};

bool all_finished(const SweepFolder& folder, const std::vector<Cell>& cells) {
  return std::all_of(cells.begin(), cells.end(), [&](const Cell& cell) {
    return std::any_of(folder.records().begin(), folder.records().end(), [&](const Record& r) {
      return r.cell == cell && r.outcome.state != State::failed;
    });
  });
}

std::string store_folder_of(const SweepRequest& request) {
  return request.store_dir.empty() ? request.out : request.store_dir;
}

// Makes ready what the cells need. An empty function when it was stopped.
Result<CellRunner> make_runner(const SweepRequest& request, SweepFolder& folder,
                               const std::optional<Subject>& model) {
  if (request.runner) return request.runner;
  const SweepSettings& s = request.settings;
  const RunnerContext context{&s, "/proc/self/exe", request.stop, request.tick};
  if (s.mode == Mode::program) {
    if (auto self = host::memory_cgroup()) host::sweep_stale_groups(*self);
    auto control = measure_control(context, folder, *model);
    if (!control) return tl::unexpected(control.error());
    if (!*control) return CellRunner();
    return program_runner(context, folder, *model, std::move(**control));
  }
  if (!s.size) return replay_runner(context, "");
  const std::string store = store_folder_of(request) + "/" + std::string(kStoreFile);
  auto ready = make_store(context, folder, store);
  if (!ready) return tl::unexpected(ready.error());
  return *ready ? replay_runner(context, store) : CellRunner();
}

}  // namespace

Result<SweepEnd> run_sweep(const SweepRequest& request) {
  if (auto ok = check(request); !ok) return tl::unexpected(ok.error());
  const SweepSettings& s = request.settings;
  std::optional<Subject> model;
  if (!s.model.empty()) {
    auto examined = examine_model(s.model);
    if (!examined) return tl::unexpected(examined.error());
    model = std::move(*examined);
  }
  const std::string measured_on = model ? model->files.front() : store_folder_of(request);
  Identity cell_identity;
  const auto note = [&](const std::string& text) {
    if (request.note) request.note(text);
  };
  // It must be there before its disk can be looked at.
  if (auto ok = SweepFolder::prepare(request.out); !ok) return tl::unexpected(ok.error());
  const Json manifest = manifest_of(request, measured_on, model, cell_identity);
  auto folder = SweepFolder::open(request.out, manifest, request.force);
  if (!folder) return tl::unexpected(folder.error());

  const std::vector<Cell> cells = plan_cells(s);
  SweepEnd end;
  end.cells = cells.size();
  if (folder->dropped_torn_line())
    note("the last line of cells.jsonl was torn: its cell runs again");
  const bool finished = all_finished(*folder, cells);
  if (folder->resumed()) {
    note(fmt::format("going on in {}: {} of {} cells have a record", request.out,
                     folder->records().size(), cells.size()));
  }

  if (!finished) {
    auto runner = make_runner(request, *folder, model);
    if (!runner) return tl::unexpected(runner.error());
    if (!*runner) {
      end.stopped = true;
    } else {
      auto loop = run_cells(*folder, cells, cell_identity, *runner, request.show, request.stop);
      if (!loop) return tl::unexpected(loop.error());
      end.stopped = loop->stopped;
    }
  }
  for (const Record& r : folder->records()) {
    end.done += r.outcome.state == State::done ? 1 : 0;
    end.censored += r.outcome.state == State::censored ? 1 : 0;
    end.failed += r.outcome.state == State::failed ? 1 : 0;
  }
  if (end.stopped) return end;
  if (auto ok = Outputs(*folder, request).write(end); !ok) return tl::unexpected(ok.error());
  if (!request.keep_store) folder->remove_store();
  return end;
}

}  // namespace resid::sweep

#include "sweep/page.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

// A machine doing other work moves every figure.
constexpr double kBusyLoad = 0.7;

// The member, or null: a manifest may have been edited by hand.
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto at = object.find(key);
  return at == object.end() ? kNull : *at;
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "unknown";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

// {"a":{"b":1}} as rows `a b` and `1`; byte counts for people beside the number.
void flatten(const Json& value, const std::string& key,
             std::vector<std::vector<std::string>>& rows) {
  if (value.is_object()) {
    for (const auto& [inner, part] : value.items()) {
      std::string name = inner;
      std::replace(name.begin(), name.end(), '_', ' ');
      flatten(part, key.empty() ? name : key + " " + name, rows);
    }
    return;
  }
  if (value.is_array()) {
    for (const Json& part : value)
      flatten(part, key, rows);
    return;
  }
  std::string text = text_of(value);
  std::replace(text.begin(), text.end(), '\x1f', ' ');
  if (key.ends_with("bytes") && value.is_number_unsigned()) {
    text = fmt::format("{} ({})", text, format_bytes(value.get<std::uint64_t>()));
  }
  rows.push_back({key, text});
}

std::string facts_table(const Json& value, std::string caption) {
  HtmlTable table{std::move(caption), {}, {}, 2};
  flatten(value, "", table.rows);
  return html_table(table);
}

std::string paragraph(const std::string& text, const char* css = "") {
  return fmt::format("<p{}>{}</p>\n", *css == 0 ? "" : fmt::format(" class=\"{}\"", css),
                     html_text(text));
}

std::string list(const std::vector<std::string>& items) {
  std::string out = "<ul>\n";
  for (const std::string& item : items)
    out += fmt::format("<li>{}</li>\n", html_text(item));
  return out + "</ul>\n";
}

std::size_t count(const std::vector<Record>& records, State state) {
  return static_cast<std::size_t>(
      std::count_if(records.begin(), records.end(),
                    [state](const Record& r) { return r.outcome.state == state; }));
}

std::string counts_line(const PageInput& in) {
  const auto& records = *in.records;
  return fmt::format("{} cells: {} done, {} censored, {} failed.", records.size(),
                     count(records, State::done), count(records, State::censored),
                     count(records, State::failed));
}

std::string figure_block(const PageInput& in, std::size_t i) {
  const FigureWithTable& f = in.figures[i];
  std::string out = fmt::format("<h2 id=\"{}\">{}</h2>\n", f.figure.id, html_text(f.figure.title));
  if (i < in.drawings.size()) {
    out += fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n",
                       inline_svg(in.drawings[i], f.figure), html_text(f.caption));
    out += fmt::format("<details>\n<summary>The numbers</summary>\n{}</details>\n",
                       html_table(f.table));
  } else {
    out += paragraph(f.caption, "soft") + html_table(f.table);
  }
  return out;
}

std::string arms_table(const PageInput& in) {
  std::set<std::string> used;
  for (const Record& r : *in.records)
    used.insert(r.cell.arm);
  HtmlTable table{"", {"arm", "who decides", "how"}, {}, 3};
  for (const Arm& arm : arms_of(in.mode)) {
    if (!used.contains(std::string(arm.name))) continue;
    table.rows.push_back({std::string(arm.name), std::string(arm.who), std::string(arm.how)});
  }
  return html_table(table);
}

std::vector<std::string> method(const PageInput& in) {
  std::vector<std::string> out;
  if (in.mode == Mode::replay) {
    out.emplace_back(
        "One cell is one process of `residctl replay`: threads consume every byte of every chunk "
        "in "
        "order, pass after pass, by the same loop in every arm, and check each byte; only who "
        "decides what stays in memory differs.");
    out.emplace_back(
        "Each cell runs in a control group of its own with the same memory, budget plus what the "
        "process itself holds, and starts with the store out of the page cache, which is checked.");
    out.emplace_back(
        "The optimum is computed from the accesses of the run itself, never from what a policy "
        "missed.");
    out.emplace_back(
        "Arm A is the better of two runs, with the kernel's default readahead and with sequential "
        "advice; the table of cells names the better one.");
  } else {
    out.emplace_back(
        "One cell is one whole run of the program. Its standard output is compared byte for byte "
        "with "
        "the control run's; a cell whose output differs is a failed one and has no figures here.");
    out.emplace_back(
        "Equal memory: arm A runs in a control group of budget plus the program's own need, which "
        "is "
        "all memory but page cache of a control run at its peak, and 4 MiB and 1/64 of the model, "
        "which arm A may use for the model. The pager's arms hold the budget by their own "
        "accounts, "
        "checked against the kernel's; what the pager itself needs, at most 32 MiB, is theirs on "
        "top.");
    out.emplace_back(
        "Every arm but R starts with the model out of the page cache, which is checked. R starts "
        "with "
        "all of it there, and a run in which the kernel dropped part of it is a failed one.");
    out.emplace_back(
        "Repacking is off in all arms (LLAMA_ARG_REPACK=0): all compute on the file's "
        "own layout.");
  }
  out.emplace_back(
      "One cell at a time. The repetition is the outermost loop; within it the budgets, and within "
      "a "
      "budget the arms, are in an order shuffled by a fixed seed. So a drift of the machine meets "
      "all arms alike.");
  return out;
}

// What a reader must know before quoting a figure.
std::vector<std::string> caveats(const PageInput& in) {
  const Json& manifest = *in.manifest;
  std::vector<std::string> out;
  const Json& repeats = member(member(manifest, "settings"), "--repeats");
  out.push_back(fmt::format(
      "Points are medians of {} repetitions, bars reach from the least to the most. With so few, "
      "the "
      "bar is all that is known of the spread: where two bars overlap, the figures show no "
      "difference.",
      text_of(repeats)));
  out.emplace_back(
      "Censored means that the arm cannot run at this budget: it was refused as infeasible, or the "
      "kernel killed it at its group's limit. That is a result. It has no number, so it stands at "
      "the worse edge of the axis, as a cross in a circle, and is counted in the tables.");
  out.emplace_back(
      "Failed cells should have run and did not. They are listed with their reason, have no part "
      "in "
      "the figures, and are tried again by the next call.");
  out.emplace_back(
      "Absolute figures belong to this machine and this disk; what may be carried over is the "
      "ratio "
      "of two arms at one budget.");
  double busiest = 0;
  for (const Record& r : *in.records)
    busiest = std::max(busiest, r.load);
  out.push_back(fmt::format(
      "The machine's load before a cell was at most {:.2f}{}.", busiest,
      busiest > kBusyLoad
          ? "; the sweep's own cells raise it too, so look at the cells table for whether others "
            "worked beside it"
          : ""));
  const Json machine = member(manifest, "machine");
  const Json disk = member(machine, "disk");
  const std::string filesystem = text_of(member(disk, "filesystem"));
  if (filesystem == "tmpfs" || filesystem == "ramfs") {
    out.push_back(
        fmt::format("The store lies on {}: nothing here was read from a disk.", filesystem));
  }
  const Json& ahead = member(disk, "read_ahead_bytes");
  if (ahead.is_number_unsigned()) {
    out.push_back(
        fmt::format("The kernel may read up to {} around a fault of its own (read_ahead_kb of this "
                    "disk). Where that is not small beside the budget, its arms throw out much of "
                    "it unread, and another setting would give them other figures.",
                    format_bytes(ahead.get<std::uint64_t>())));
  }
  const Json damon = member(machine, "damon");
  if (member(damon, "threads").is_number() && member(damon, "threads") != 0) {
    out.emplace_back(
        "DAMON is at work on this machine and may drop cold page cache by itself, which the "
        "kernel's "
        "arms feel.");
  }
  return out;
}

std::string reasons_table(const PageInput& in, State state, const char* caption) {
  HtmlTable table{caption, {"arm", "budget", "repetition", "reason"}, {}, 4};
  for (const Record& r : *in.records) {
    if (r.outcome.state != state) continue;
    table.rows.push_back(
        {r.cell.arm, ratio_text(r.cell.ratio), fmt::format("{}", r.cell.repeat), r.outcome.reason});
  }
  return table.rows.empty() ? "" : html_table(table);
}

std::string seconds(double value) {
  return std::isfinite(value) ? fmt::format("{:.3f}", value) : "";
}

std::string mebibytes(double value) {
  return std::isfinite(value) ? fmt::format("{:.1f}", value / (1024.0 * 1024.0)) : "";
}

std::string cells_table(const PageInput& in) {
  HtmlTable table{"In the order they ran. cells.csv has every figure.",
                  {"arm", "advice", "state", "budget", "repetition", "wall s", "read MiB",
                   "fault p50 us", "fault p99 us", "load before", "configuration"},
                  {},
                  3};
  const auto micro = [](double v) { return std::isfinite(v) ? fmt::format("{:.0f}", v) : ""; };
  for (const Record& r : *in.records) {
    const Json& figures = r.outcome.figures;
    const Json advice = member(figures, "advice");
    table.rows.push_back({r.cell.arm, advice.is_string() ? advice.get<std::string>() : "",
                          std::string(name(r.outcome.state)), ratio_text(r.cell.ratio),
                          fmt::format("{}", r.cell.repeat), seconds(figure_of(r, "/wall_s")),
                          mebibytes(figure_of(r, "/bytes_read")),
                          micro(figure_of(r, "/latency_us/fault_p50")),
                          micro(figure_of(r, "/latency_us/fault_p99")),
                          fmt::format("{:.2f}", r.load), r.config_hash});
  }
  return html_table(table);
}

std::string details(const char* summary, const std::string& body) {
  return fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n", summary, body);
}

}  // namespace

std::string report_page(const PageInput& in) {
  const Json& manifest = *in.manifest;
  const std::string title =
      in.mode == Mode::replay ? "residctl sweep" : "residctl sweep of a real program";
  std::string body = fmt::format("<h1>{}</h1>\n", html_text(title));
  const Json version = member(manifest, "residctl");
  body += paragraph(
      fmt::format("residctl {} ({}), {}. Configuration {}.", text_of(member(version, "version")),
                  text_of(member(version, "git")), text_of(member(manifest, "date")),
                  text_of(member(manifest, "config_hash"))),
      "soft");
  body += paragraph(counts_line(in));
  if (!in.no_drawings.empty()) body += paragraph(in.no_drawings, "notice");
  for (std::size_t i = 0; i < in.figures.size(); ++i)
    body += figure_block(in, i);

  const std::string censored = reasons_table(in, State::censored, "Censored cells");
  const std::string failed = reasons_table(in, State::failed, "Failed cells");
  if (!censored.empty() || !failed.empty()) {
    body += "<h2>Cells without figures</h2>\n" + censored + failed;
  }
  body += "<h2>Arms</h2>\n" + arms_table(in);
  body += "<h2>How it was measured</h2>\n" + list(method(in));
  body += "<h2>What it does not show</h2>\n" + list(caveats(in));
  body += "<h2>Where it was measured</h2>\n";
  body += facts_table(member(manifest, "machine"), "The machine, as the sweep began");
  body += details("All settings", facts_table(member(manifest, "settings"), ""));
  body += details("The store", facts_table(member(manifest, "store"), "What was read"));
  body += details("Every cell", cells_table(in));
  return html_page(title, figure_styles(arm_styles(in.mode)), body);
}

}  // namespace resid::sweep

#include "sweep/figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "sweep/process.hpp"

namespace resid::sweep {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr double kDrawLimitS = 60;

struct Look {
  std::string_view arm;
  FigureStyle style;
};

// The colours of Okabe and Ito, which readers with any kind of colour vision tell apart, two of
// them darkened so that no two are the same grey; and for a dark page lighter ones.
const std::vector<Look>& looks() {
  static const std::vector<Look> table{
      {"R", {"arm-r", 0x303030, 0xB8B8B8, 0, "2,3", 2.2}},
      {"A", {"arm-a", 0xE69F00, 0xF0B63C, 5, "10,5", 2}},
      {"B", {"arm-b", 0xC8689E, 0xDD8FBB, 8, "3,4", 2}},
      {"C", {"arm-c", 0xD55E00, 0xF07F2A, 7, "10,4,2,4", 2}},
      {"D", {"arm-d", 0x00639C, 0x5AA9DE, 13, "", 2.6}},
      {"E", {"arm-e", 0x009E73, 0x2CC79B, 10, "16,5", 2.2}},
      {"OPT", {"arm-opt", 0x000000, 0xFFFFFF, 3, "", 1.2}},
  };
  return table;
}

FigureStyle style_of(std::string_view arm) {
  for (const Look& look : looks()) {
    if (look.arm == arm) return look.style;
  }
  return {"arm-opt", 0x000000, 0xFFFFFF, 6, "", 1.2};
}

FigureStyle reference_line() {
  return {"arm-opt", 0x000000, 0xFFFFFF, 0, "2,4", 1.8};
}

std::string series_name(std::string_view arm, Mode mode) {
  const Arm* known = find_arm(mode, arm);
  return known == nullptr ? std::string(arm) : fmt::format("{}: {}", arm, known->who);
}

// A number as people read it: three or four digits that mean something.
std::string shown(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::fabs(value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

using Value = std::function<double(const Record&)>;

std::vector<double> ratios_of(const std::vector<Group>& groups) {
  std::set<double> ratios;
  for (const Group& g : groups) {
    if (g.arm != kResident) ratios.insert(g.ratio);
  }
  return {ratios.begin(), ratios.end()};
}

class Builder {
 public:
  Builder(const std::vector<Group>& groups, Mode mode)
      : groups_(groups), mode_(mode), ratios_(ratios_of(groups)) {}

  // One series an arm. An arm without any value, for which the figure has no meaning, is left out,
  // and so is what it could not run.
  FigureWithTable build(Figure figure, std::string caption, const Value& value) const {
    FigureWithTable out;
    figure.x_label = "budget as a share of the store";
    figure.x_ticks = ratios_;
    out.caption = std::move(caption);
    out.table.caption = figure.y_label + ": median (least .. most) of the repetitions";
    out.table.columns = {"arm", "budget", "median", "least", "most", "done", "censored", "failed"};
    for (const Arm& arm : arms_of(mode_)) {
      FigureSeries series{series_name(arm.name, mode_), style_of(arm.name), {}, {}};
      bool means_something = false;
      std::vector<std::vector<std::string>> rows;
      for (const Group& g : groups_) {
        if (g.arm != arm.name) continue;
        const Spread s = g.spread_by(value);
        if (s.n > 0) {
          means_something = true;
          add_points(g, s, series);
        }
        if (g.censored > 0) series.censored.push_back(g.ratio);
        rows.push_back({series.name, g.arm == kResident ? "all" : ratio_text(g.ratio),
                        shown(s.median), shown(s.low), shown(s.high), fmt::format("{}", g.done),
                        fmt::format("{}", g.censored), fmt::format("{}", g.failed)});
      }
      // An arm that never ran at all is censored everywhere; it belongs into the figure too.
      const bool never_ran = std::all_of(groups_.begin(), groups_.end(), [&](const Group& g) {
        return g.arm != arm.name || g.done == 0;
      });
      if (!means_something && !(never_ran && !series.censored.empty())) continue;
      figure.series.push_back(std::move(series));
      out.table.rows.insert(out.table.rows.end(), rows.begin(), rows.end());
    }
    figure.description = fmt::format("{} by {}, one line an arm; the table below has the numbers.",
                                     figure.y_label, figure.x_label);
    out.figure = std::move(figure);
    return out;
  }

  // A line that belongs to the budget and not to an arm: the median of what all cells there say.
  void add_line(FigureWithTable& out, std::string name, const Value& value) const {
    FigureSeries line{std::move(name), reference_line(), {}, {}};
    for (const double ratio : ratios_) {
      std::vector<double> values;
      for (const Group& g : groups_) {
        if (g.ratio != ratio) continue;
        for (const Record* r : g.results)
          values.push_back(value(*r));
      }
      const Spread s = spread_of(std::move(values));
      if (s.n == 0) continue;
      line.points.push_back({ratio, s.median, s.median, s.median});
      out.table.rows.push_back(
          {line.name, ratio_text(ratio), shown(s.median), shown(s.low), shown(s.high), "", "", ""});
    }
    if (!line.points.empty()) out.figure.series.push_back(std::move(line));
  }

 private:
  void add_points(const Group& g, const Spread& s, FigureSeries& series) const {
    if (g.arm != kResident) {
      series.points.push_back({g.ratio, s.median, s.low, s.high});
      return;
    }
    // Independent of the budget: one level across the figure.
    for (const double ratio : ratios_)
      series.points.push_back({ratio, s.median, s.low, s.high});
  }

  const std::vector<Group>& groups_;
  Mode mode_;
  std::vector<double> ratios_;
};

Value field(const char* pointer, double unit = 1) {
  return [pointer, unit](const Record& r) { return figure_of(r, pointer) / unit; };
}

Value a_pass(const char* pointer) {
  return
      [pointer](const Record& r) { return figure_of(r, pointer) / figure_of(r, "/passes") / kMib; };
}

double over_opt(const Record& r) {
  const double opt = figure_of(r, "/opt_bytes");
  return opt > 0 ? figure_of(r, "/bytes_read") / opt : std::nan("");
}

Figure blank(std::string id, std::string title, std::string y_label) {
  Figure figure;
  figure.id = std::move(id);
  figure.title = std::move(title);
  figure.y_label = std::move(y_label);
  return figure;
}

// Where one arm takes many times what another takes, a linear axis shows only the worst one.
void widen(FigureWithTable& out) {
  constexpr double kFar = 20;
  double low = HUGE_VAL;
  double high = 0;
  for (const FigureSeries& series : out.figure.series) {
    for (const FigurePoint& p : series.points) {
      if (p.y > 0) low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  }
  if (!(high > kFar * low)) return;
  out.figure.log_y = true;
  out.caption += " The vertical axis is logarithmic; a value of 0 has no place on it.";
}

void latency(const Builder& builder, std::vector<FigureWithTable>& out) {
  Figure p50 = blank("fault-p50", "Fault to resume, median", "microseconds");
  Figure p99 = blank("fault-p99", "Fault to resume, 99th percentile", "microseconds");
  p50.log_y = p99.log_y = true;
  const std::string note =
      " Logarithmic. From the pager's own histogram; the kernel's arms have none, because nobody "
      "times the kernel's own faults.";
  out.push_back(builder.build(std::move(p50), "Half of all faults waited less than this." + note,
                              field("/latency_us/fault_p50")));
  out.push_back(builder.build(std::move(p99),
                              "One fault in a hundred waited longer than this." + note,
                              field("/latency_us/fault_p99")));
}

}  // namespace

std::vector<FigureWithTable> sweep_figures(const std::vector<Group>& groups, Mode mode) {
  const Builder builder(groups, mode);
  std::vector<FigureWithTable> out;
  if (mode == Mode::replay) {
    Figure ratio = blank("bytes-over-opt", "Bytes read, in multiples of the optimum",
                         "bytes read / optimum's bytes");
    ratio.y_from = 0.9;
    out.push_back(builder.build(
        std::move(ratio),
        "1 is Belady's optimum for the very accesses of the run; no policy can be below it. The "
        "vertical axis does not begin at 0.",
        over_opt));

    Figure speed = blank("throughput", "Throughput", "MiB consumed a second");
    speed.censored_at_top = false;
    out.push_back(builder.build(
        std::move(speed),
        "Bytes that the workload consumed, by wall time. The roofline is what one pass can reach "
        "at "
        "best: limited by computing with everything resident, or by reading store - budget at the "
        "disk's bandwidth as each cell's process measured it; it leaves out the first pass, in "
        "which everything must be read.",
        field("/achieved_bytes_per_s", kMib)));
    builder.add_line(out.back(), "roofline", field("/roofline_bytes_per_s", kMib));

    Figure misses = blank("bytes-read", "Miss curves", "MiB read a pass");
    out.push_back(
        builder.build(std::move(misses),
                      "All bytes read, divided by the passes; the first pass, in which everything "
                      "must be read, is "
                      "one of them. The floor is what a cyclic scan must read whatever the policy.",
                      a_pass("/bytes_read")));
    builder.add_line(out.back(), "floor of a cyclic scan", a_pass("/floor_bytes"));
  } else {
    out.push_back(builder.build(blank("wall-time", "Time of a whole run", "seconds"),
                                "From the start of the program to its end, loading included. The "
                                "control has the whole model "
                                "in the page cache, whatever the budget.",
                                field("/wall_s")));
    widen(out.back());
    out.push_back(builder.build(blank("bytes-read", "Bytes read in a whole run", "MiB read"),
                                "Of the pager's arms by its own count, of the others by the "
                                "kernel's (rusage of the program "
                                "and its children).",
                                field("/bytes_read", kMib)));
    widen(out.back());
  }
  latency(builder, out);
  std::erase_if(out, [](const FigureWithTable& f) { return f.figure.empty(); });
  return out;
}

std::vector<FigureStyle> arm_styles(Mode mode) {
  std::vector<FigureStyle> out;
  for (const Arm& arm : arms_of(mode))
    out.push_back(style_of(arm.name));
  return out;
}

Result<std::string> draw(const Figure& figure, const std::string& gnuplot) {
  ProcessRequest request;
  request.path = gnuplot;
  request.command = {"gnuplot", "-d"};  // without the user's own start-up file
  request.environment = {{"LC_ALL", "C"}};
  request.input = gnuplot_script(figure);
  request.limit_s = kDrawLimitS;
  auto result = run_process(request);
  if (!result) return tl::unexpected(result.error());
  if (result->exit_code != 0 || result->out.find("</svg>") == std::string::npos) {
    const std::string words = last_words(result->err);
    return fail(Status::system, "gnuplot", words.empty() ? "drew nothing" : words,
                "the tables have the same numbers; install gnuplot-nox 5.4 or later");
  }
  return finish_svg(std::move(result->out), figure);
}

}  // namespace resid::sweep

#include "report/figure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "report/html.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kInk = 0x000000;
constexpr std::uint32_t kGrid = 0xCFD3D8;

// Series at the same x stand beside each other, so that their error bars can be told apart.
constexpr double kDodge = 0.013;  // of the x range

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = 0;
  while ((at = text.find(from, at)) != std::string::npos) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

// Removes every [from, to], both included, and the line break behind it.
void cut_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = 0;
  while ((at = text.find(from, at)) != std::string::npos) {
    std::size_t end = text.find(to, at + from.size());
    if (end == std::string::npos) return;
    end += to.size();
    if (end < text.size() && text[end] == '\n') ++end;
    text.erase(at, end - at);
  }
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "NaN";
}

std::string hex(std::uint32_t rgb) {
  return fmt::format("#{:06X}", rgb & 0xFFFFFFU);
}

// As gnuplot writes it.
std::string rgb_text(std::uint32_t rgb) {
  return fmt::format("rgb({:3d}, {:3d}, {:3d})", (rgb >> 16) & 0xFFU, (rgb >> 8) & 0xFFU,
                     rgb & 0xFFU);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Range x_range(const Figure& figure) {
  Range x;
  for (const double tick : figure.x_ticks)
    x.take(tick);
  for (const FigureSeries& s : figure.series) {
    for (const FigurePoint& p : s.points)
      x.take(p.x);
    for (const double c : s.censored)
      x.take(c);
  }
  if (x.empty()) x = {0, 1};
  const double margin = x.high > x.low ? 0.07 * (x.high - x.low) : 0.1;
  return {x.low - margin, x.high + margin};
}

// Room is left at the edge where censored points stand.
Range y_range(const Figure& figure) {
  Range y;
  for (const FigureSeries& s : figure.series) {
    for (const FigurePoint& p : s.points) {
      if (figure.log_y && p.low <= 0) continue;
      y.take(p.low);
      y.take(p.high);
    }
  }
  const bool room = figure.censored_cells() > 0;
  if (figure.log_y) {
    if (y.empty()) y = {1, 10};
    y.low = std::pow(10, std::floor(std::log10(y.low)));
    y.high = std::pow(10, std::ceil(std::log10(y.high * (room ? 1.5 : 1.05))));
    return y;
  }
  if (y.empty()) y = {figure.y_from, figure.y_from + 1};
  const double low = std::min(y.low, figure.y_from);
  const double span = std::max(y.high - low, 1e-9);
  return {low - (room && !figure.censored_at_top ? 0.1 * span : 0),
          y.high + (room && figure.censored_at_top ? 0.16 : 0.06) * span};
}

std::string dash_type(const FigureStyle& style) {
  return style.dash.empty() ? "dt solid" : fmt::format("dt ({})", style.dash);
}

std::string line_style(const FigureStyle& style) {
  return fmt::format("lw {} {} lc rgb '{}'", number(style.width), dash_type(style), hex(style.rgb));
}

// A cross inside a hollow circle: no other marker looks like it, in grey either.
void censored_marks(const Figure& figure, const Range& x, double dodge_of_first, double dodge,
                    std::string& script) {
  const double height = figure.censored_at_top ? 0.965 : 0.035;
  int label = 1;
  const auto mark = [&](const std::string& at, std::uint32_t rgb, const std::string& text) {
    for (const auto& [shape, size] : {std::pair{6, 1.3}, std::pair{2, 0.8}}) {
      script += fmt::format(
          "set label {} {} at {} right offset -1.5,0 noenhanced point pt {} ps {} lw 1.6 "
          "lc rgb '{}'\n",
          label++, gnuplot_quote(shape == 6 ? text : ""), at, shape, number(size), hex(rgb));
    }
  };
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const FigureSeries& s = figure.series[i];
    for (const double at : s.censored) {
      const double shown =
          at + (s.style.marker == 0 ? 0 : dodge_of_first + dodge * static_cast<double>(i));
      if (shown < x.low || shown > x.high) continue;
      mark(fmt::format("first {}, graph {}", number(shown), number(height)), s.style.rgb, "");
    }
  }
  const std::size_t cells = figure.censored_cells();
  if (cells == 0) return;
  mark("screen 0.975, screen 0.04", kInk,
       fmt::format("{} censored {}", cells, cells == 1 ? "point" : "points"));
}

}  // namespace

bool Figure::empty() const {
  return std::all_of(series.begin(), series.end(),
                     [](const FigureSeries& s) { return s.points.empty() && s.censored.empty(); });
}

std::size_t Figure::censored_cells() const {
  std::size_t n = 0;
  for (const FigureSeries& s : series)
    n += s.censored.size();
  return n;
}

std::string gnuplot_quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    // Doubling it is gnuplot's own way, which fails where the text begins with one.
    if (c == '\'') {
      out += "\xE2\x80\x99";
    } else {
      out += c < ' ' || c > '~' ? '?' : c;
    }
  }
  return out + "'";
}

std::string gnuplot_script(const Figure& figure) {
  const Range x = x_range(figure);
  const Range y = y_range(figure);
  const double dodge = kDodge * (x.high - x.low);
  const double first = -dodge * (static_cast<double>(figure.series.size()) - 1) / 2;
  std::string s =
      "set encoding utf8\n"
      "set terminal svg size 960,500 dynamic font 'sans-serif,15' background '#FFFFFF'\n";
  s += fmt::format("set title {} noenhanced\n", gnuplot_quote(figure.title));
  s += fmt::format("set xlabel {} noenhanced\n", gnuplot_quote(figure.x_label));
  s += fmt::format("set ylabel {} noenhanced\n", gnuplot_quote(figure.y_label));
  s += fmt::format("set xrange [{}:{}]\n", number(x.low), number(x.high));
  s += fmt::format("set yrange [{}:{}]\n", number(y.low), number(y.high));
  if (figure.log_y) s += "set logscale y 10\n";
  if (!figure.x_ticks.empty()) {
    s += "set xtics nomirror (";
    for (std::size_t i = 0; i < figure.x_ticks.size(); ++i) {
      s += fmt::format("{}{}", i == 0 ? "" : ", ", number(figure.x_ticks[i]));
    }
    s += ")\n";
  }
  s += "set ytics nomirror\nset border 3\nset tics out scale 0.6\n";
  s += fmt::format("set grid ytics lt 1 lw 0.6 lc rgb '{}'\n", hex(kGrid));
  s += "set pointintervalbox 0\nset errorbars 0.7\n";
  // Room for the names is ours to know: gnuplot guesses widths without the reader's fonts.
  s += "set rmargin at screen 0.655\n";
  s += "set key at screen 0.67, screen 0.5 left center vertical Left reverse samplen 3.2 "
       "spacing 1.35 noenhanced\n";
  censored_marks(figure, x, first, dodge, s);
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const FigureSeries& series = figure.series[i];
    const double shift = series.style.marker == 0 ? 0 : first + dodge * static_cast<double>(i);
    s += fmt::format("$s{} << END\n", i);
    for (const FigurePoint& p : series.points) {
      s += fmt::format("{} {} {} {}\n", number(p.x + shift), number(p.y), number(p.low),
                       number(p.high));
    }
    s += "END\n";
  }
  s += "plot ";
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const FigureSeries& series = figure.series[i];
    const std::string look = line_style(series.style);
    const std::string title = gnuplot_quote(series.name);
    const std::string mark = fmt::format("pt {} ps 0.95", series.style.marker);
    if (!series.points.empty()) {
      s += fmt::format("$s{} using 1:2 with lines {} notitle, ", i, look);
      if (series.style.marker != 0) {
        s += fmt::format(
            "$s{} using 1:2:3:4 with yerrorbars {} lw 1.6 dt solid lc rgb '{}' notitle, ", i, mark,
            hex(series.style.rgb));
      }
    }
    s += series.style.marker == 0
             ? fmt::format("keyentry with lines {} title {}, ", look, title)
             : fmt::format("keyentry with linespoints {} {} title {}, ", look, mark, title);
  }
  // A plot needs one thing with a value; this one is never seen.
  return s + "NaN with lines notitle\n";
}

std::string finish_svg(std::string svg, const Figure& figure) {
  cut_all(svg, "<desc>", "</desc>");
  cut_all(svg, "<title>gnuplot_plot_", "</title>");
  replace_all(svg, "<title>Gnuplot</title>",
              fmt::format("<title>{}</title>\n<desc>{}</desc>", html_text(figure.title),
                          html_text(figure.description)));
  cut_all(svg, "<filter", "</filter>");
  replace_all(svg, "gnuplot_canvas", "canvas");
  replace_all(svg, "gnuplot_plot_", "part-");
  replace_all(svg, "gpPt", "mark-");
  replace_all(svg, "gpDot", "mark-dot");
  // gnuplot opens a group for every change of state and puts nothing into most of them.
  std::size_t at = 0;
  while ((at = svg.find("<g ", at)) != std::string::npos) {
    const std::size_t close = svg.find(">\n</g>\n", at);
    const std::size_t end = svg.find('>', at);
    if (close != std::string::npos && close == end) {
      svg.erase(at, close + 7 - at);
    } else {
      ++at;
    }
  }
  return svg;
}

std::string inline_svg(std::string svg, const Figure& figure) {
  if (const std::size_t start = svg.find("<svg"); start != std::string::npos) svg.erase(0, start);
  cut_all(svg, "xmlns=\"", "\"");
  cut_all(svg, "xmlns:xlink=\"", "\"");
  cut_all(svg, "<rect x=\"0\" y=\"0\"", "/>");  // the background
  replace_all(svg, "<svg ", "<svg role=\"img\" ");
  replace_all(svg, "xlink:href=", "href=");
  for (const std::string_view name : {"canvas", "part-", "mark-"}) {
    for (const std::string_view before : {"id=\"", "id='", "href='#"}) {
      replace_all(svg, fmt::format("{}{}", before, name),
                  fmt::format("{}{}-{}", before, figure.id, name));
    }
  }
  for (const FigureSeries& s : figure.series) {
    if (s.style.rgb != kInk) {
      replace_all(svg, rgb_text(s.style.rgb), fmt::format("var(--{})", s.style.css));
    }
  }
  replace_all(svg, rgb_text(kGrid), "var(--grid)");
  replace_all(svg, rgb_text(kInk), "var(--ink)");
  replace_all(svg, "\"rgb(0,0,0)\"", "\"var(--ink)\"");
  replace_all(svg, "\"black\"", "\"var(--ink)\"");
  replace_all(svg, "'black'", "'var(--ink)'");
  replace_all(svg, "#FFFFFF", "var(--paper)");
  return svg;
}

std::string figure_styles(const std::vector<FigureStyle>& styles) {
  std::string day;
  std::string night;
  for (const FigureStyle& s : styles) {
    if (s.rgb == kInk) continue;  // drawn with the ink of the page
    day += fmt::format(" --{}: {};", s.css, hex(s.rgb));
    night += fmt::format(" --{}: {};", s.css, hex(s.night));
  }
  return fmt::format(":root {{{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n",
                     day, night);
}

}  // namespace resid

#pragma once
// Line figures, drawn by gnuplot: the script it is given, and what is done to the SVG it answers
// with. Pure text in, text out; who runs gnuplot is another matter.
//
// Figures must be readable in colour, by a reader who sees few colours, and in print: every series
// has its own marker and dash beside its colour. The same figure gives the same bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace resid {

// A median with the range of its repetitions, in the figure's own units.
struct FigurePoint {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

// How one series looks.
struct FigureStyle {
  std::string css;          // name of the page's variable for its colour: [a-z0-9-]+
  std::uint32_t rgb = 0;    // on white
  std::uint32_t night = 0;  // the same, on a dark page
  int marker = 7;           // gnuplot's number for SVG; 0 = a line alone
  std::string dash;         // as gnuplot's `dashtype`: digits and commas; empty = solid
  double width = 2;
};

struct FigureSeries {
  std::string name;  // as in the key
  FigureStyle style;
  std::vector<FigurePoint> points;  // by x, ascending
  std::vector<double> censored;     // x where there is no value because it is beyond reach
};

struct Figure {
  std::string id;  // file name without .svg, and prefix of the ids inside: [a-z0-9-]+
  std::string title;
  std::string description;  // for readers who do not see it
  std::string x_label;      // with unit
  std::string y_label;      // with unit
  std::vector<double> x_ticks;
  bool log_y = false;
  double y_from = 0;            // where a linear axis begins
  bool censored_at_top = true;  // at that edge of the axis which is worse
  std::vector<FigureSeries> series;

  bool empty() const;  // neither a point nor a censored one
  std::size_t censored_cells() const;
};

// Text between single quotes for gnuplot: it expands nothing in there. An apostrophe becomes a
// typographic one; control characters, and bytes beyond ASCII that fonts may lack, become `?`.
std::string gnuplot_quote(std::string_view text);

// What `gnuplot -d` is to read on its standard input; it answers with an SVG on its output.
std::string gnuplot_script(const Figure& figure);

// The SVG without what names the program and its version, with the figure's own title. A file of
// its own: white background.
std::string finish_svg(std::string svg, const Figure& figure);

// A finished SVG as part of a page: no prologue, ids of its own, colours by the page's variables
// --ink, --paper, --grid and one for every series.
std::string inline_svg(std::string svg, const Figure& figure);

// The rules that define the variables of the series.
std::string figure_styles(const std::vector<FigureStyle>& styles);

}  // namespace resid

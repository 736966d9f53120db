#pragma once
// The figures of a sweep: which there are, from which numbers, and the table behind each.

#include <string>
#include <vector>

#include "report/figure.hpp"
#include "report/html.hpp"
#include "sweep/summary.hpp"

namespace resid::sweep {

struct FigureWithTable {
  Figure figure;
  std::string caption;  // what to see in it, and how it was made
  HtmlTable table;
};

// Figures for which there are no numbers at all are left out.
std::vector<FigureWithTable> sweep_figures(const std::vector<Group>& groups, Mode mode);

// How each arm looks, for figure_styles().
std::vector<FigureStyle> arm_styles(Mode mode);

// Draws a figure with the gnuplot of that name: the finished SVG. program_not_found where there is
// none, system when it refused.
Result<std::string> draw(const Figure& figure, const std::string& gnuplot);

}  // namespace resid::sweep

#pragma once
// The report of a sweep as one page.

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sweep/figures.hpp"

namespace resid::sweep {

struct PageInput {
  const nlohmann::ordered_json* manifest = nullptr;
  const std::vector<Record>* records = nullptr;
  Mode mode = Mode::replay;
  std::vector<FigureWithTable> figures;
  std::vector<std::string> drawings;  // finished SVGs, one a figure; none when nothing was drawn
  std::string no_drawings;            // then why, and what to do
};

// Nothing but its input goes into it: the same cells give the same bytes.
std::string report_page(const PageInput& input);

}  // namespace resid::sweep

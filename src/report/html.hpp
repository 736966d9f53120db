#pragma once
// Pieces of a page that stands alone: no script, no network, nothing outside the file.

#include <string>
#include <string_view>
#include <vector>

namespace resid {

// Text as element content or attribute value. Control characters and bytes that are no UTF-8 become
// U+FFFD, so that the page is valid whatever a file is called.
std::string html_text(std::string_view text);

struct HtmlTable {
  std::string caption;               // plain text
  std::vector<std::string> columns;  // plain text, units included
  std::vector<std::vector<std::string>> rows;
  std::size_t left_columns = 1;  // the first ones are words, the others numbers
};
std::string html_table(const HtmlTable& table);

// The whole document. `body` is markup; `styles` are rules that follow the common ones.
std::string html_page(std::string_view title, std::string_view styles, std::string_view body);

}  // namespace resid

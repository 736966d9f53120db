#include "report/html.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace resid {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The length of the UTF-8 sequence at the start of `text`, or 0.
std::size_t sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  if (length < 3) return length;
  const unsigned second = byte(1);
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second >= 0xA0) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second >= 0x90) return 0;
  return length;
}

constexpr std::string_view kStyles = R"css(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1d21; --soft: #5a6069;
  --grid: #cfd3d8; --card: #f5f6f8; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181d; --ink: #e6e8eb; --soft: #a5abb4;
  --grid: #3b4048; --card: #1f2229; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
p, li { max-width: 46rem; }
.soft { color: var(--soft); }
.notice { background: var(--card); border-left: 4px solid var(--soft); padding: .6rem .9rem; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; color: var(--ink); }
figcaption { color: var(--soft); }
details { margin: .5rem 0 1rem; }
summary { cursor: pointer; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--grid); text-align: right;
  vertical-align: top; }
.l { text-align: left; overflow-wrap: anywhere; }
code { font-size: .9em; overflow-wrap: anywhere; }
)css";

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n = sequence(text);
    const char c = text[0];
    if (n == 0 || (n == 1 && ((c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 0x7F))) {
      out += kReplacement;
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

std::string html_table(const HtmlTable& table) {
  const auto side = [&](std::size_t column) {
    return column < table.left_columns ? " class=\"l\"" : "";
  };
  std::string out = "<div class=\"wide\"><table>\n";
  if (!table.caption.empty()) {
    out += fmt::format("<caption>{}</caption>\n", html_text(table.caption));
  }
  if (!table.columns.empty()) {
    out += "<thead><tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      out += fmt::format("<th scope=\"col\"{}>{}</th>", side(i), html_text(table.columns[i]));
    }
    out += "</tr></thead>\n";
  }
  out += "<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += fmt::format("<td{}>{}</td>", side(i), html_text(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_page(std::string_view title, std::string_view styles, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      html_text(title), kStyles, styles, body);
}

}  // namespace resid

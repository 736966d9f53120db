#pragma once
// Comma-separated values as RFC 4180 has them, but with plain newlines.

#include <string>
#include <string_view>
#include <vector>

namespace resid {

// The field as it is written: in quotes where it holds a comma, a quote or a line break.
std::string csv_field(std::string_view text);

// One line, newline included.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace resid

#pragma once
// What a run's expert board says: for the report, and one line for people.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "pager/expert_board.hpp"

namespace resid {

// {"layers": [...], "total": {...}, "tokens", "read_bytes_per_token"}, to be joined with the other
// fields of "experts". A layer that has experts stands in `layers` even if nobody has asked for
// any. `total` sums over them under the same names. A token is a row that the router of the first
// layer with experts has spoken for: a prompt of n tokens counts n.
nlohmann::json expert_report(const ExpertBoard& board);

// Where the slices that routers asked for were, by bytes; what was read a token; which share of
// `wall_s` the program waited for them. Empty where nothing was asked for.
std::string expert_summary(const ExpertBoard& board, double wall_s);

}  // namespace resid

#pragma once
// What became of one cell, as a line of cells.jsonl.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "sweep/settings.hpp"

namespace resid::sweep {

// done: it has figures. censored: the arm cannot run at this budget (infeasible, or killed at its
// group's limit); a result, kept and drawn. failed: it should have run; tried again next time.
// stopped: the user stopped it; never written down.
enum class State : std::uint8_t { done, censored, failed, stopped };
std::string_view name(State state);

// What running a cell gave.
struct Outcome {
  State state = State::failed;
  std::string reason;              // why not done; one line, printable
  nlohmann::ordered_json figures;  // as `residctl replay --json` writes them; null when there are
                                   // none
};

struct Record {
  Cell cell;
  std::string config_hash;
  Outcome outcome;
  double elapsed_s = 0;  // of the whole cell, start and cooling of the cache included
  double load = 0;       // the machine's load average over a minute, just before
};

// One line, newline included.
std::string record_line(const Record& record);
// Status::malformed for anything that record_line() would not have written.
Result<Record> parse_record(std::string_view line);

// The number at a JSON pointer of the figures; NaN where there is none. Booleans are 0 and 1.
double figure_of(const Record& record, const char* pointer);

// One printable line of at most 300 bytes: what a failed program said last, its own
// `residctl: ...` line where there is one.
std::string last_words(std::string_view stderr_text);

// Judges what a child that was to run `cell` left behind. Its figures are checked before anybody
// believes them: the arm it was asked for, finite numbers, no mismatch, the budget kept, nothing
// read below what is possible.
Outcome judge_replay(const Cell& cell, int exit_code, int signal, std::string_view out,
                     std::string_view err);

}  // namespace resid::sweep

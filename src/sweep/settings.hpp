#pragma once
// What a sweep is to do: arms x budgets x repetitions, and in which order.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace resid::sweep {

// replay: each cell is `residctl replay` on a synthetic or real store. program: each cell runs a
// real program on a real model.
enum class Mode : std::uint8_t { replay, program };
std::string_view name(Mode mode);

// One arm as it is shown; `who` in a few words, `how` in a sentence.
struct Arm {
  std::string_view name;
  std::string_view who;
  std::string_view how;
};
// The arms of a mode, in the order of the tables.
const std::vector<Arm>& arms_of(Mode mode);
// nullptr when the mode has no such arm.
const Arm* find_arm(Mode mode, std::string_view name);
// R of a program sweep: everything resident, whatever the budget.
inline constexpr std::string_view kResident = "R";

struct SweepSettings {
  Mode mode = Mode::replay;
  std::vector<std::string> arms;
  std::vector<double> ratios;  // budget / store, ascending, in (0, 1]
  std::uint32_t repeats = 3;
  std::uint64_t seed = 1;  // of the order of the cells

  // The store: a file of its own of `size` bytes, or a model.
  std::optional<std::uint64_t> size;
  std::string model;

  // Of replay.
  std::uint64_t chunk = 2ULL << 20;
  std::uint32_t passes = 5;
  std::uint32_t threads = 1;
  std::uint64_t compute_ns_per_mib = 0;
  std::vector<std::pair<std::string, std::string>> passed;  // further switches: "--x" and value,
                                                            // empty for one that stands alone
  std::vector<std::string> program;                         // command line of mode program
};

// `A,C,D` and `0.25,0.5`: usage failures name the switch and the word. Ratios come back sorted.
Result<std::vector<std::string>> parse_arms(std::string_view text, Mode mode);
Result<std::vector<double>> parse_ratios(std::string_view text);
// The shortest text that means the same number.
std::string ratio_text(double ratio);

// One run of one arm at one budget.
struct Cell {
  std::string arm;
  double ratio = 0;
  std::uint32_t repeat = 1;  // from 1
  bool operator==(const Cell&) const = default;
};

// All cells in the order they run. The repetition is the outermost loop, so that a drift of the
// machine meets every arm alike; within it the budgets, and within a budget the arms, are shuffled
// by the seed, so that no arm always follows the same one. The arms of one budget run side by side
// in time: they are what is compared. The same seed gives the same order on every machine.
std::vector<Cell> plan_cells(const SweepSettings& settings);

// The settings as text, in a fixed order: what must be equal for two cells to be comparable.
// `surroundings` is appended: the program's version, the machine, the model.
using Identity = std::vector<std::pair<std::string, std::string>>;
Identity identity(const SweepSettings& settings, const Identity& surroundings);

// FNV-1a, 64 bits, in hexadecimal.
std::string text_hash(std::string_view text);
// Of everything but how often and in which order: equal for all repetitions of an arm at a budget.
std::string cell_hash(const Identity& identity, const Cell& cell);

}  // namespace resid::sweep

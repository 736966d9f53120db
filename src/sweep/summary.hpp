#pragma once
// What the repetitions of a cell say together, and the sweep as documents for programs.

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sweep/record.hpp"
#include "sweep/settings.hpp"

namespace resid::sweep {

// Of the values that are numbers; n = 0: there were none, and the rest is NaN. The median of an
// even number of values is the mean of the middle two.
struct Spread {
  std::size_t n = 0;
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

// A figure of a cell that goes into the tables.
struct Column {
  const char* name;     // of the CSV column
  const char* pointer;  // into the figures
  bool number;          // has a median
};
std::span<const Column> columns();

// All repetitions of one arm at one budget.
struct Group {
  std::string arm;
  double ratio = 0;
  std::size_t done = 0, censored = 0, failed = 0;
  std::vector<const Record*> results;  // the done ones
  // The spread of a figure, or of what `value` makes of each result.
  Spread spread(const char* pointer) const;
  template <class Value>
  Spread spread_by(Value value) const {
    std::vector<double> values;
    for (const Record* r : results)
      values.push_back(value(*r));
    return spread_of(std::move(values));
  }
};

// By arm in the order of the settings, then by ratio. Pointers into `records`.
std::vector<Group> group_records(const std::vector<Record>& records, Mode mode);

// One row a cell, in the order they ran.
std::string cells_csv(const std::vector<Record>& records);

// {"schema":1,"manifest":..,"cells":[..],"summary":[..]}
nlohmann::ordered_json sweep_json(const nlohmann::ordered_json& manifest,
                                  const std::vector<Record>& records, Mode mode);

}  // namespace resid::sweep

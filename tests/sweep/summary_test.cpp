// Medians and spreads, CSV, and the document for programs.

#include "sweep/summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "fake_cells.hpp"
#include "report/csv.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;

// By counting how many values lie on either side, without sorting.
double naive_median(const std::vector<double>& values) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double v : values) {
    std::size_t below = 0;
    std::size_t above = 0;
    for (const double other : values) {
      below += other < v ? 1 : 0;
      above += other > v ? 1 : 0;
    }
    if (2 * below <= values.size() && 2 * above <= values.size()) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  return (low + high) / 2;
}

RC_GTEST_PROP(Spread, IsThatOfANaiveReference, ()) {
  const auto whole =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-50, 50)));
  std::vector<double> values(whole.begin(), whole.end());
  const Spread s = spread_of(values);
  RC_ASSERT(s.n == values.size());
  RC_ASSERT(s.median == naive_median(values));
  for (const double v : values)
    RC_ASSERT(s.low <= v && v <= s.high);
  values.push_back(std::nan(""));
  const Spread again = spread_of(values);
  RC_ASSERT(again.n == whole.size());
  RC_ASSERT(again.median == s.median);
}

TEST(Spread, OfNothingIsNoNumber) {
  const Spread s = spread_of({std::nan("")});
  EXPECT_EQ(s.n, 0U);
  EXPECT_TRUE(std::isnan(s.median));
}

TEST(Csv, QuotesWhatNeedsIt) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(csv_line({"", "a", ""}), ",a,\n");
}

std::vector<Record> some_records() {
  std::vector<Record> records;
  for (const Cell& cell : plan_cells(fake_settings())) {
    Record r{cell, cell_hash({}, cell), fake_outcome(cell), 1, 0.1};
    if (cell.arm == "C" && cell.ratio == 0.25) r.outcome = {State::censored, "too, small", nullptr};
    if (cell == Cell{"A", 0.75, 2}) r.outcome = {State::failed, "said \"no\"", nullptr};
    records.push_back(r);
  }
  return records;
}

TEST(Csv, HasOneRowACellAndAsManyFieldsAsColumns) {
  const auto records = some_records();
  const std::string csv = cells_csv(records);
  std::size_t rows = 0;
  std::size_t fields = 1;
  std::size_t expected = 0;
  bool quoted = false;
  for (const char c : csv) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ',') ++fields;
    if (c != '\n') continue;
    if (rows == 0) expected = fields;
    EXPECT_EQ(fields, expected) << "row " << rows;
    fields = 1;
    ++rows;
  }
  EXPECT_EQ(rows, records.size() + 1);
  EXPECT_THAT(csv, HasSubstr("\"too, small\""));
  EXPECT_THAT(csv, HasSubstr("\"said \"\"no\"\"\""));
  EXPECT_THAT(csv, HasSubstr(records[0].config_hash));
}

TEST(Groups, CountEveryCellAndMeasureTheFinished) {
  const auto records = some_records();
  const auto groups = group_records(records, Mode::replay);
  ASSERT_EQ(groups.size(), 12U);
  std::size_t cells = 0;
  for (const Group& g : groups) {
    cells += g.done + g.censored + g.failed;
    EXPECT_EQ(g.results.size(), g.done);
  }
  EXPECT_EQ(cells, records.size());
  EXPECT_EQ(groups[0].arm, "A");
  EXPECT_EQ(groups[0].ratio, 0.25);
  EXPECT_EQ(groups.back().arm, "OPT");
  const auto censored = std::find_if(
      groups.begin(), groups.end(), [](const Group& g) { return g.arm == "C" && g.ratio == 0.25; });
  EXPECT_EQ(censored->censored, 3U);
  EXPECT_EQ(censored->spread("/wall_s").n, 0U);
}

TEST(Json, HasManifestCellsAndSummary) {
  const auto records = some_records();
  const auto json = sweep_json({{"x", 1}}, records, Mode::replay);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["manifest"]["x"], 1);
  EXPECT_EQ(json["cells"].size(), records.size());
  EXPECT_EQ(json["summary"].size(), 12U);
  for (const auto& group : json["summary"]) {
    if (group["arm"] != "D" || group["ratio"] != 0.5) continue;
    EXPECT_EQ(group["done"], 3);
    EXPECT_EQ(group["metrics"]["fault_p50_us"]["median"], 1500.0 * 1.02);
    EXPECT_EQ(group["metrics"]["fault_p50_us"]["min"], 1500.0 * 1.01);
    EXPECT_EQ(group["metrics"]["fault_p50_us"]["max"], 1500.0 * 1.03);
    return;
  }
  FAIL() << "no group D at 0.5";
}

}  // namespace
}  // namespace resid::sweep

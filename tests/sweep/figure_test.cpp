// The figures: what gnuplot is told, and what it draws.

#include "report/figure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "fake_cells.hpp"
#include "sweep/figures.hpp"
#include "sweep/summary.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;
using testing::Not;

Figure small() {
  Figure f;
  f.id = "small";
  f.title = "T";
  f.x_label = "x";
  f.y_label = "y";
  f.x_ticks = {0.25, 0.5};
  f.series.push_back(
      {"one", {"arm-d", 0x00639C, 0x5AA9DE, 13, "", 2}, {{0.25, 1, 0.5, 2}, {0.5, 2, 2, 2}}, {}});
  f.series.push_back({"two", {"arm-c", 0xD55E00, 0xF07F2A, 7, "8,4", 2}, {}, {0.25, 0.5}});
  return f;
}

TEST(Script, NoTextCanBecomeACommand) {
  EXPECT_EQ(gnuplot_quote("plain"), "'plain'");
  EXPECT_EQ(gnuplot_quote("it's"), "'it\xe2\x80\x99s'");
  EXPECT_EQ(gnuplot_quote("a\nsystem('x')"), "'a?system(\xe2\x80\x99x\xe2\x80\x99)'");
  EXPECT_EQ(gnuplot_quote("\xe2\x80\xa6"),
            "'?"
            "?"
            "?'");
  Figure f = small();
  f.title = "'; system('touch /tmp/x'); set title '";
  f.series[0].name = "`id` @macro \"quoted\"";
  const std::string script = gnuplot_script(f);
  // Outside of quotes nothing of it is left.
  std::string bare;
  bool quoted = false;
  for (const char c : script) {
    if (c == '\'') quoted = !quoted;
    if (!quoted && c != '\'') bare += c;
  }
  EXPECT_FALSE(quoted);
  EXPECT_THAT(bare, Not(HasSubstr("system")));
  EXPECT_THAT(bare, Not(HasSubstr("`")));
  EXPECT_THAT(bare, Not(HasSubstr("@")));
}

TEST(Script, NumbersThatAreNoneStayOut) {
  Figure f = small();
  f.series[0].points.push_back({0.75, std::nan(""), INFINITY, -INFINITY});
  const std::string script = gnuplot_script(f);
  EXPECT_THAT(script, HasSubstr("NaN NaN NaN"));
  EXPECT_THAT(script, Not(HasSubstr("inf")));
}

TEST(Script, CensoredPointsAreMarkedAtTheWorseEdgeAndCounted) {
  Figure f = small();
  EXPECT_EQ(f.censored_cells(), 2U);
  EXPECT_THAT(gnuplot_script(f), HasSubstr("graph 0.965"));
  EXPECT_THAT(gnuplot_script(f), HasSubstr("'2 censored points'"));
  f.censored_at_top = false;
  EXPECT_THAT(gnuplot_script(f), HasSubstr("graph 0.035"));
  f.series[1].censored.clear();
  EXPECT_THAT(gnuplot_script(f), Not(HasSubstr("censored")));
}

TEST(Styles, NoTwoArmsShareAColourAMarkerOrADash) {
  const auto grey = [](std::uint32_t rgb) {
    return 0.299 * ((rgb >> 16) & 0xFF) + 0.587 * ((rgb >> 8) & 0xFF) + 0.114 * (rgb & 0xFF);
  };
  for (const Mode mode : {Mode::replay, Mode::program}) {
    const auto styles = arm_styles(mode);
    for (std::size_t i = 0; i < styles.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_NE(styles[i].marker, styles[j].marker);
        EXPECT_GT(std::fabs(grey(styles[i].rgb) - grey(styles[j].rgb)), 10)
            << styles[i].css << " and " << styles[j].css << " are the same grey";
        EXPECT_TRUE(styles[i].dash != styles[j].dash || styles[i].width != styles[j].width);
      }
    }
  }
}

std::vector<Record> fake_records(bool censored) {
  std::vector<Record> records;
  for (const Cell& cell : plan_cells(fake_settings())) {
    Record r{cell, "h", fake_outcome(cell), 1, 0.1};
    if (censored && cell.arm == "C" && cell.ratio == 0.25) {
      r.outcome = {State::censored, "x", nullptr};
    }
    records.push_back(r);
  }
  return records;
}

TEST(Figures, HaveWhatTheirTitleSays) {
  const auto records = fake_records(false);
  const auto figures = sweep_figures(group_records(records, Mode::replay), Mode::replay);
  ASSERT_EQ(figures.size(), 5U);
  EXPECT_EQ(figures[0].figure.id, "bytes-over-opt");
  EXPECT_EQ(figures[0].figure.series.size(), 4U);
  for (const FigurePoint& p : figures[0].figure.series.back().points)
    EXPECT_EQ(p.y, 1) << "the optimum is 1 of itself";
  // D, in order: median of three, and their range.
  const FigurePoint d = figures[3].figure.series[1].points[1];
  EXPECT_DOUBLE_EQ(d.y, 1500 * 1.02);
  EXPECT_DOUBLE_EQ(d.low, 1500 * 1.01);
  EXPECT_DOUBLE_EQ(d.high, 1500 * 1.03);
  // The floor: the store once, then n - k four times, a pass.
  const auto& floor = figures[2].figure.series.back();
  EXPECT_DOUBLE_EQ(floor.points[1].y, 1024.0 * (1 + 4 * 0.5) / 5);
  // The kernel's arms have no latency: no line, and no row.
  for (const auto& series : figures[3].figure.series)
    EXPECT_THAT(series.name, Not(testing::StartsWith("A")));
}

TEST(Figures, AnArmThatNeverRanIsStillInThem) {
  std::vector<Record> records;
  for (Record r : fake_records(false)) {
    if (r.cell.arm == "C") r.outcome = {State::censored, "x", nullptr};
    records.push_back(r);
  }
  const auto figures = sweep_figures(group_records(records, Mode::replay), Mode::replay);
  for (const auto& f : figures) {
    EXPECT_EQ(f.figure.censored_cells(), 3U) << f.figure.id;
    const auto rows = f.table.rows;
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const auto& row) {
      return row[0].starts_with("C") && row[2] == "-" && row[6] == "3";
    })) << f.figure.id;
  }
}

class Drawn : public testing::Test {
 protected:
  void SetUp() override {
    const auto probe = draw(small(), "gnuplot");
    if (!probe && probe.error().status == Status::program_not_found) {
      GTEST_SKIP() << "gnuplot is not installed: the figures were not drawn";
    }
    ASSERT_TRUE(probe) << probe.error().line();
  }
};

TEST_F(Drawn, TwiceIsTheSameBytesAndNamesNoProgram) {
  const auto records = fake_records(true);
  for (const auto& f : sweep_figures(group_records(records, Mode::replay), Mode::replay)) {
    const auto first = draw(f.figure, "gnuplot");
    const auto second = draw(f.figure, "gnuplot");
    ASSERT_TRUE(first) << first.error().line();
    EXPECT_EQ(*first, *second);
    std::string lower = *first;
    std::transform(lower.begin(), lower.end(), lower.begin(), ::tolower);
    EXPECT_EQ(lower.find("gnuplot"), std::string::npos) << lower.substr(lower.find("gnuplot"), 80);
    EXPECT_THAT(*first, HasSubstr("<title>" + f.figure.title + "</title>"));
    EXPECT_THAT(*first, HasSubstr("font-size=\"15.00\""));
    EXPECT_THAT(*first, HasSubstr("sans-serif"));
  }
}

TEST_F(Drawn, InAPageItTakesThePagesColoursAndKeepsItsIdsApart) {
  const auto svg = draw(small(), "gnuplot");
  ASSERT_TRUE(svg);
  EXPECT_THAT(*svg, HasSubstr("fill=\"#ffffff\"")) << "a file of its own has a background";
  const std::string part = inline_svg(*svg, small());
  EXPECT_TRUE(part.starts_with("<svg "));
  EXPECT_THAT(part, HasSubstr("var(--arm-d)"));
  EXPECT_THAT(part, HasSubstr("var(--arm-c)"));
  EXPECT_THAT(part, HasSubstr("var(--ink)"));
  EXPECT_THAT(part, HasSubstr("id='small-mark-"));
  EXPECT_THAT(part, HasSubstr("href='#small-mark-"));
  for (const char* gone : {"rgb(  0,   0,   0)", "http:", "https:", "xlink", "<?xml", "#FFFFFF",
                           "#ffffff", "\"black\"", "'black'", "id='mark-"})
    EXPECT_THAT(part, Not(HasSubstr(gone)));
}

TEST_F(Drawn, NothingInATitleRuns) {
  TempFolder temp;
  Figure f = small();
  f.title = "'; system('touch " + (temp / "ran") + "') #";
  f.series[0].name = "`touch " + (temp / "ran") + "`";
  ASSERT_TRUE(draw(f, "gnuplot"));
  EXPECT_FALSE(std::filesystem::exists(temp / "ran"));
}

TEST(NotDrawn, WithoutGnuplot) {
  const auto svg = draw(small(), "no-such-gnuplot");
  ASSERT_FALSE(svg);
  EXPECT_EQ(svg.error().status, Status::program_not_found);
}

}  // namespace
}  // namespace resid::sweep

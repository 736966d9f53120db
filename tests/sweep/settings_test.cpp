// What is asked for, and the order in which it is done.

#include "sweep/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "fake_cells.hpp"

namespace resid::sweep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Arms, AreWordsOfTheMode) {
  EXPECT_THAT(*parse_arms("A, D,OPT", Mode::replay), ElementsAre("A", "D", "OPT"));
  EXPECT_THAT(*parse_arms("R,E", Mode::program), ElementsAre("R", "E"));
  for (const char* bad : {"", "A,,D", "X", "a", "A,D,A"}) {
    const auto arms = parse_arms(bad, Mode::replay);
    ASSERT_FALSE(arms) << bad;
    EXPECT_EQ(arms.error().status, Status::usage);
    EXPECT_EQ(arms.error().what, "--arms");
  }
  // There is no optimum of a program's unknown accesses, and no warm control of a replay.
  EXPECT_FALSE(parse_arms("OPT", Mode::program));
  EXPECT_FALSE(parse_arms("R", Mode::replay));
}

TEST(Ratios, AreSharesInOrder) {
  EXPECT_THAT(*parse_ratios("0.75,0.25, 1"), ElementsAre(0.25, 0.75, 1));
  for (const char* bad :
       {"", "0", "-0.5", "1.01", "nan", "inf", "0.5x", "0.5,", "50%", "0.5,0.50"}) {
    const auto ratios = parse_ratios(bad);
    ASSERT_FALSE(ratios) << bad;
    EXPECT_EQ(ratios.error().what, "--ratios") << bad;
  }
}

TEST(Plan, HasEveryCellOnce) {
  const SweepSettings s = fake_settings();
  const auto cells = plan_cells(s);
  EXPECT_EQ(cells.size(), s.arms.size() * s.ratios.size() * s.repeats);
  std::set<std::string> seen;
  for (const Cell& c : cells)
    seen.insert(c.arm + " " + ratio_text(c.ratio) + " " + std::to_string(c.repeat));
  EXPECT_EQ(seen.size(), cells.size());
}

TEST(Plan, RepetitionIsOutermostAndArmsOfABudgetStandTogether) {
  const SweepSettings s = fake_settings();
  const auto cells = plan_cells(s);
  const std::size_t arms = s.arms.size();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(cells[i].repeat, 1 + i / (arms * s.ratios.size()));
    EXPECT_EQ(cells[i].ratio, cells[i / arms * arms].ratio);
  }
}

TEST(Plan, NoArmHasAPlaceOfItsOwn) {
  SweepSettings s = fake_settings();
  s.repeats = 10;
  std::map<std::string, std::set<std::size_t>> places;
  const auto cells = plan_cells(s);
  for (std::size_t i = 0; i < cells.size(); ++i)
    places[cells[i].arm].insert(i % s.arms.size());
  for (const auto& [arm, found] : places)
    EXPECT_EQ(found.size(), s.arms.size()) << arm << " always runs at the same places";
}

TEST(Plan, IsTheSameForTheSameSeed) {
  SweepSettings s = fake_settings();
  const auto first = plan_cells(s);
  EXPECT_EQ(first, plan_cells(s));
  s.seed = 2;
  EXPECT_NE(first, plan_cells(s));
  // Written down, because a folder that is half done is gone on with by another build.
  EXPECT_EQ(first[0], (Cell{first[0].arm, first[0].ratio, 1}));
  std::string order;
  for (std::size_t i = 0; i < 4; ++i)
    order += first[i].arm + ratio_text(first[i].ratio) + " ";
  EXPECT_EQ(order, "D0.5 OPT0.5 A0.5 C0.5 ");
}

TEST(Plan, TheControlOfAProgramHasNoBudget) {
  SweepSettings s = fake_settings();
  s.mode = Mode::program;
  s.arms = {"R", "A", "E"};
  const auto cells = plan_cells(s);
  EXPECT_EQ(cells.size(), s.repeats * (1 + 2 * s.ratios.size()));
  EXPECT_EQ(std::count_if(cells.begin(), cells.end(),
                          [](const Cell& c) { return c.arm == "R" && c.ratio == 1; }),
            s.repeats);
}

TEST(Hash, TellsWhatMattersApart) {
  const SweepSettings s = fake_settings();
  const Cell cell{"D", 0.5, 1};
  const auto hash = [&](const SweepSettings& settings, const Cell& c) {
    return cell_hash(identity(settings, {{"machine", "m"}}), c);
  };
  const std::string base = hash(s, cell);
  EXPECT_EQ(base, hash(s, {"D", 0.5, 3})) << "a repetition is the same configuration";
  SweepSettings more = s;
  more.repeats = 9;
  more.ratios = {0.5};
  more.seed = 7;
  EXPECT_EQ(base, hash(more, cell)) << "which other cells there are does not matter to this one";
  EXPECT_NE(base, hash(s, {"E", 0.5, 1}));
  EXPECT_NE(base, hash(s, {"D", 0.75, 1}));
  for (const auto& change : std::vector<void (*)(SweepSettings&)>{
           [](SweepSettings& x) { x.chunk = 4096; }, [](SweepSettings& x) { x.passes = 6; },
           [](SweepSettings& x) { x.threads = 2; }, [](SweepSettings& x) { x.size = 4096; },
           [](SweepSettings& x) { x.compute_ns_per_mib = 1; },
           [](SweepSettings& x) {
             x.passed = {{"--eager-reconcile", ""}};
           }}) {
    SweepSettings other = s;
    change(other);
    EXPECT_NE(base, hash(other, cell));
  }
  EXPECT_NE(base, cell_hash(identity(s, {{"machine", "another"}}), cell));
}

}  // namespace
}  // namespace resid::sweep

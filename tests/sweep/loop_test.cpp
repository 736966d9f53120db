// The loop over the cells, with cells that answer by a formula.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cells.hpp"
#include "sweep/sweep.hpp"

namespace resid::sweep {
namespace {

class Loop : public testing::Test {
 protected:
  SweepFolder open() {
    auto folder = SweepFolder::open(temp_ / "out", fake_manifest(identity_), false);
    if (!folder) throw std::runtime_error(folder.error().line());
    return std::move(*folder);
  }
  TempFolder temp_;
  SweepSettings settings_ = fake_settings();
  Identity identity_ = identity(settings_, {});
  std::vector<Cell> cells_ = plan_cells(settings_);
  std::vector<Cell> ran_;
  std::atomic<bool> stop_{false};
  CellRunner runner_ = [this](const Cell& cell) {
    ran_.push_back(cell);
    return fake_outcome(cell);
  };
};

TEST_F(Loop, RunsTheCellsInTheirOrderAndWritesThemDown) {
  SweepFolder folder = open();
  const auto end = run_cells(folder, cells_, identity_, runner_, {}, &stop_);
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->stopped);
  EXPECT_EQ(end->ran, cells_.size());
  EXPECT_EQ(ran_, cells_);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    EXPECT_EQ(folder.records()[i].cell, cells_[i]);
    EXPECT_EQ(folder.records()[i].config_hash, cell_hash(identity_, cells_[i]));
  }
}

TEST_F(Loop, GoesOnWhereItWasInterrupted) {
  {
    SweepFolder folder = open();
    const CellRunner until_five = [this](const Cell& cell) {
      if (ran_.size() == 5) return Outcome{State::stopped, {}, nullptr};
      return runner_(cell);
    };
    const auto end = run_cells(folder, cells_, identity_, until_five, {}, &stop_);
    EXPECT_TRUE(end->stopped);
    EXPECT_EQ(end->ran, 5U);
  }
  // And a power cut while the sixth was being written.
  write_all(temp_ / "out/cells.jsonl", read_all(temp_ / "out/cells.jsonl") + "{\"schema\":1,");
  SweepFolder folder = open();
  const auto end = run_cells(folder, cells_, identity_, runner_, {}, &stop_);
  EXPECT_EQ(end->ran, cells_.size() - 5);
  EXPECT_EQ(ran_, cells_) << "each once, in the planned order";
  EXPECT_EQ(folder.records().size(), cells_.size());
}

TEST_F(Loop, StopsBetweenCells) {
  SweepFolder folder = open();
  const CellRunner stopping = [this](const Cell& cell) {
    if (ran_.size() == 2) stop_ = true;  // the cell itself still finishes
    return runner_(cell);
  };
  const auto end = run_cells(folder, cells_, identity_, stopping, {}, &stop_);
  EXPECT_TRUE(end->stopped);
  EXPECT_EQ(folder.records().size(), 3U) << "what was finished is kept";
}

TEST_F(Loop, FailedCellsAreTriedAgainCensoredOnesAreNot) {
  {
    SweepFolder folder = open();
    const CellRunner bad = [](const Cell& cell) {
      if (cell.arm == "A") return Outcome{State::failed, "no disk", nullptr};
      if (cell.arm == "C") return Outcome{State::censored, "too small", nullptr};
      return fake_outcome(cell);
    };
    std::vector<Progress> shown;
    const auto end = run_cells(
        folder, cells_, identity_, bad, [&](const Progress& p) { shown.push_back(p); }, &stop_);
    ASSERT_TRUE(end);
    EXPECT_EQ(shown.back().done, cells_.size());
    EXPECT_EQ(shown.back().failed, 9U);
    EXPECT_EQ(shown.back().censored, 9U);
  }
  SweepFolder folder = open();
  const auto end = run_cells(folder, cells_, identity_, runner_, {}, &stop_);
  EXPECT_EQ(end->ran, 9U);
  for (const Cell& cell : ran_)
    EXPECT_EQ(cell.arm, "A");
  for (const Record& r : folder.records())
    EXPECT_EQ(r.outcome.state, r.cell.arm == "C" ? State::censored : State::done);
}

TEST_F(Loop, ARepetitionOfAnotherConfigurationIsNone) {
  SweepFolder folder = open();
  const CellRunner drifting = [](const Cell& cell) {
    Outcome o = fake_outcome(cell);
    if (cell.arm == "D" && cell.ratio == 0.5 && cell.repeat == 2)
      o.figures["config_hash"] = "other";
    return o;
  };
  ASSERT_TRUE(run_cells(folder, cells_, identity_, drifting, {}, &stop_));
  for (const Record& r : folder.records()) {
    const bool odd = r.cell == Cell{"D", 0.5, 2};
    EXPECT_EQ(r.outcome.state, odd ? State::failed : State::done);
    EXPECT_EQ(r.outcome.reason.find("its configuration") == 0, odd);
  }
}

TEST_F(Loop, EstimatesByTheLikestFinishedCells) {
  const auto took = [](const char* arm, double ratio, double s) {
    const Cell cell{arm, ratio, 1};
    return Record{cell, "", fake_outcome(cell), s, 0};
  };
  EXPECT_LT(estimate_left_s({}, {{"A", 0.5, 1}}), 0);
  EXPECT_EQ(estimate_left_s({}, {}), 0);
  const std::vector<Record> done{took("A", 0.5, 10), took("A", 0.25, 30), took("D", 0.5, 2)};
  EXPECT_DOUBLE_EQ(estimate_left_s(done, {{"A", 0.5, 2}}), 10);
  EXPECT_DOUBLE_EQ(estimate_left_s(done, {{"A", 0.75, 1}}), 20);
  EXPECT_DOUBLE_EQ(estimate_left_s(done, {{"E", 0.75, 1}}), 14);
  EXPECT_DOUBLE_EQ(estimate_left_s(done, {{"A", 0.5, 2}, {"D", 0.5, 2}}), 12);
}

}  // namespace
}  // namespace resid::sweep

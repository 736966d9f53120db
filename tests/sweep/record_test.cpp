// What became of a cell: judged, written, read back.

#include "sweep/record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_cells.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;

const Cell kCell{"D", 0.5, 2};

Outcome judge(const nlohmann::ordered_json& figures, int code = 0, const char* err = "") {
  return judge_replay(kCell, code, 0, figures.dump(), err);
}

TEST(Judge, BelievesAWholeDocument) {
  const Outcome o = judge(fake_figures(kCell));
  EXPECT_EQ(o.state, State::done) << o.reason;
  EXPECT_EQ(o.figures["passes"], 5);
}

TEST(Judge, BelievesNothingImpossible) {
  const auto refused = [](const char* key, const nlohmann::ordered_json& value) {
    auto figures = fake_figures(kCell);
    figures[key] = value;
    const Outcome o = judge(figures);
    EXPECT_EQ(o.state, State::failed) << key;
    EXPECT_NE(o.reason, "") << key;
    return o.reason;
  };
  refused("schema", 2);
  refused("arm", "C");
  refused("ratio", 0.75);
  refused("wall_s", nullptr);
  refused("wall_s", -1);
  refused("bytes_read", nullptr);
  EXPECT_THAT(refused("mismatches", 3), HasSubstr("3 reads"));
  EXPECT_THAT(refused("budget_kept", false), HasSubstr("budget"));
  EXPECT_THAT(refused("bytes_read", 1000), HasSubstr("less than"));
  EXPECT_THAT(refused("latency_us", {{"fault_p50", -5}}), HasSubstr("latency_us.fault_p50"));
}

TEST(Judge, TheKernelsArmsHaveNoExactFloor) {
  const Cell cell{"A", 0.5, 1};
  auto figures = fake_figures(cell);
  figures["bytes_read"] = 1000;
  EXPECT_EQ(judge_replay(cell, 0, 0, figures.dump(), "").state, State::done);
}

TEST(Judge, ExitFourIsACensoredCell) {
  auto figures = fake_figures(kCell);
  figures["censored"] = true;
  figures["censored_reason"] = "killed at its limit";
  Outcome o = judge(figures, 4);
  EXPECT_EQ(o.state, State::censored);
  EXPECT_EQ(o.reason, "killed at its limit");
  // Refused before there was anything to print.
  o = judge_replay(kCell, 4, 0, "", "residctl: budget : too small : raise it\n");
  EXPECT_EQ(o.state, State::censored);
  EXPECT_EQ(o.reason, "residctl: budget : too small : raise it");
  EXPECT_TRUE(o.figures.is_null());
}

TEST(Judge, AnyOtherEndIsAFailedCellWithItsReason) {
  EXPECT_EQ(judge_replay(kCell, 1, 0, "", "noise\nresidctl: a : b : c\nresidctl: remark\n").reason,
            "residctl: a : b : c");
  EXPECT_EQ(judge_replay(kCell, 3, 0, "", "").reason, "exit code 3");
  EXPECT_THAT(judge_replay(kCell, -1, 11, "", "").reason, HasSubstr("signal 11"));
  EXPECT_THAT(judge_replay(kCell, 0, 0, "not json", "").reason, HasSubstr("no JSON"));
  for (const int code : {1, 2, 3, 5, 127})
    EXPECT_EQ(judge_replay(kCell, code, 0, fake_figures(kCell).dump(), "").state, State::failed);
}

TEST(LastWords, ArePrintableAndShort) {
  EXPECT_EQ(last_words(""), "");
  EXPECT_EQ(last_words("one\ntwo\n\n"), "two");
  EXPECT_EQ(last_words("10 %\r20 %\rdone"), "done");
  EXPECT_EQ(last_words("a\x1b[Kb"), "a?[Kb");
  EXPECT_EQ(last_words(std::string(1000, 'x')).size(), 300U);
}

TEST(Line, IsReadBackAsItWas) {
  Record r{kCell, "0123456789abcdef", fake_outcome(kCell), 12.5, 0.25};
  for (const State state : {State::done, State::censored, State::failed}) {
    r.outcome.state = state;
    r.outcome.reason = state == State::done ? "" : "a \"reason\", with\ta tab and \xff";
    const std::string line = record_line(r);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    const auto back = parse_record(std::string_view(line).substr(0, line.size() - 1));
    ASSERT_TRUE(back) << back.error().why;
    EXPECT_EQ(back->cell, r.cell);
    EXPECT_EQ(back->config_hash, r.config_hash);
    EXPECT_EQ(back->outcome.state, state);
    EXPECT_EQ(back->outcome.figures, r.outcome.figures);
    EXPECT_EQ(back->elapsed_s, 12.5);
    EXPECT_EQ(record_line(*back), line);
  }
}

TEST(Line, NoCutOneIsARecord) {
  const Record r{kCell, "0123456789abcdef", fake_outcome(kCell), 12.5, 0.25};
  const std::string line = record_line(r);
  for (std::size_t n = 0; n + 1 < line.size(); ++n)
    EXPECT_FALSE(parse_record(std::string_view(line).substr(0, n))) << n;
  for (const char* bad : {"[]", "{}", "1", R"({"schema":1,"arm":"D","ratio":0.5,"repeat":0})"})
    EXPECT_FALSE(parse_record(bad)) << bad;
}

TEST(Figure, IsANumberOrNone) {
  const Record r{kCell, "", {State::done, {}, {{"a", {{"b", 2}}}, {"c", true}, {"d", "x"}}}, 0, 0};
  EXPECT_EQ(figure_of(r, "/a/b"), 2);
  EXPECT_EQ(figure_of(r, "/c"), 1);
  EXPECT_TRUE(std::isnan(figure_of(r, "/d")));
  EXPECT_TRUE(std::isnan(figure_of(r, "/a/b/c")));
  EXPECT_TRUE(std::isnan(figure_of(r, "/none")));
}

}  // namespace
}  // namespace resid::sweep

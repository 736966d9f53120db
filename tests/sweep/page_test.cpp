// A whole sweep with cells by a formula: what lies in its folder afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cells.hpp"
#include "report/html.hpp"
#include "sweep/page.hpp"
#include "sweep/sweep.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;
using testing::Not;

SweepRequest request_in(const std::string& out) {
  SweepRequest request;
  request.settings = fake_settings();
  request.out = out;
  request.gnuplot = "no-such-gnuplot";
  request.runner = [](const Cell& cell) -> Outcome {
    if (cell.arm == "C" && cell.ratio == 0.25) return {State::censored, "too <small>", nullptr};
    if (cell == Cell{"A", 0.75, 2}) return {State::failed, "the disk said \"no\" & left", nullptr};
    return fake_outcome(cell);
  };
  return request;
}

TEST(Html, TextCannotBecomeMarkup) {
  EXPECT_EQ(html_text("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(html_text("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(html_text("\xff\x01\xc3"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(html_text("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "a surrogate";
}

TEST(Sweep, LeavesTablesPageAndDocumentWithoutGnuplot) {
  TempFolder temp;
  const auto end = run_sweep(request_in(temp / "out"));
  ASSERT_TRUE(end) << end.error().line();
  EXPECT_EQ(end->cells, 36U);
  EXPECT_EQ(end->done, 32U);
  EXPECT_EQ(end->censored, 3U);
  EXPECT_EQ(end->failed, 1U);
  ASSERT_EQ(end->notes.size(), 1U);
  EXPECT_THAT(end->notes[0], HasSubstr("gnuplot-nox"));
  const std::string page = read_all(end->report);
  EXPECT_THAT(page, HasSubstr("gnuplot-nox"));
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
  EXPECT_THAT(page, HasSubstr("Bytes read, in multiples of the optimum"));
  for (const auto& entry : std::filesystem::directory_iterator(temp / "out"))
    EXPECT_NE(entry.path().extension(), ".svg");
  EXPECT_THAT(read_all(temp / "out/cells.csv"), HasSubstr("\"the disk said \"\"no\"\" & left\""));
  const auto json = nlohmann::json::parse(read_all(temp / "out/sweep.json"));
  EXPECT_EQ(json["cells"].size(), 36U);
  EXPECT_EQ(json["manifest"]["settings"]["--chunk"], "2097152");
}

TEST(Page, StandsAlone) {
  TempFolder temp;
  ASSERT_TRUE(run_sweep(request_in(temp / "out")));
  const std::string page = read_all(temp / "out/report.html");
  for (const char* outside :
       {"http:", "https:", "<script", "<link", "<iframe", "@import", "url(", " src="})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Page, SaysWhatHasNoFigure) {
  TempFolder temp;
  ASSERT_TRUE(run_sweep(request_in(temp / "out")));
  const std::string page = read_all(temp / "out/report.html");
  EXPECT_THAT(page, HasSubstr("36 cells: 32 done, 3 censored, 1 failed."));
  EXPECT_THAT(page, HasSubstr("too &lt;small&gt;"));
  EXPECT_THAT(page, HasSubstr("the disk said &quot;no&quot; &amp; left"));
  EXPECT_THAT(page, HasSubstr("medians of 3 repetitions"));
  EXPECT_THAT(page, HasSubstr("Censored means"));
}

TEST(Sweep, CalledAgainRunsOnlyWhatFailedAndWritesTheSameBytes) {
  TempFolder temp;
  SweepRequest request = request_in(temp / "out");
  ASSERT_TRUE(run_sweep(request));
  const std::vector<std::string> names{"cells.csv", "sweep.json", "report.html", "manifest.json"};
  std::vector<std::string> before;
  for (const std::string& name : names)
    before.push_back(read_all(temp / ("out/" + name)));
  std::vector<Cell> ran;
  const CellRunner first = request.runner;
  request.runner = [&](const Cell& cell) {
    ran.push_back(cell);
    return first(cell);
  };
  ASSERT_TRUE(run_sweep(request));
  EXPECT_EQ(ran, (std::vector<Cell>{{"A", 0.75, 2}}));
  // That cell's own times are new; nothing else is.
  EXPECT_EQ(read_all(temp / "out/manifest.json"), before[3]);

  // Now nothing is left to run.
  request.runner = [](const Cell& cell) { return fake_outcome(cell); };
  ASSERT_TRUE(run_sweep(request));
  before.clear();
  for (const std::string& name : names)
    before.push_back(read_all(temp / ("out/" + name)));
  request.runner = [](const Cell&) -> Outcome {
    ADD_FAILURE() << "a finished cell ran again";
    return {};
  };
  ASSERT_TRUE(run_sweep(request));
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(read_all(temp / ("out/" + names[i])), before[i]) << names[i];
}

TEST(Sweep, OfOtherSettingsIsRefusedUntilForced) {
  TempFolder temp;
  SweepRequest request = request_in(temp / "out");
  ASSERT_TRUE(run_sweep(request));
  request.settings.passes = 7;
  const auto refused = run_sweep(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(exit_code(refused.error().status), 2);
  EXPECT_THAT(refused.error().line(), HasSubstr("--passes was 5, now 7"));
  request.force = true;
  EXPECT_TRUE(run_sweep(request));
}

TEST(Sweep, StoppedSaysSoAndKeepsWhatIsDone) {
  TempFolder temp;
  SweepRequest request = request_in(temp / "out");
  std::size_t ran = 0;
  request.runner = [&](const Cell& cell) -> Outcome {
    if (++ran == 4) return {State::stopped, {}, nullptr};
    return fake_outcome(cell);
  };
  const auto end = run_sweep(request);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->stopped);
  EXPECT_EQ(end->done, 3U);
  EXPECT_EQ(end->report, "");
}

TEST(Sweep, NeedsAStoreAndAProgramThatFit) {
  TempFolder temp;
  const auto refused = [&](void (*change)(SweepRequest&)) {
    SweepRequest request = request_in(temp / "out");
    change(request);
    const auto end = run_sweep(request);
    EXPECT_FALSE(end);
    return end ? std::string() : end.error().line();
  };
  EXPECT_THAT(refused([](SweepRequest& r) { r.settings.size.reset(); }), HasSubstr("--model"));
  EXPECT_THAT(refused([](SweepRequest& r) { r.settings.model = "m"; }), HasSubstr("exactly one"));
  EXPECT_THAT(refused([](SweepRequest& r) { r.settings.program = {"x"}; }), HasSubstr("--program"));
  EXPECT_THAT(refused([](SweepRequest& r) { r.settings.mode = Mode::program; }),
              HasSubstr("--program"));
  EXPECT_THAT(refused([](SweepRequest& r) {
                r.settings.size.reset();
                r.settings.model = "no-such-model.gguf";
              }),
              HasSubstr("no-such-model.gguf"));
  EXPECT_FALSE(std::filesystem::exists(temp / "out")) << "nothing is made before all is checked";
}

}  // namespace
}  // namespace resid::sweep

// The report of a run, without running anything.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/report_file.hpp"
#include "report/run_report.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;

class RunReport : public testing::Test {
 protected:
  void SetUp() override {
    page_->budget_bytes.store(64 * kMib);
    page_->model_bytes.store(256 * kMib);
    page_->config.chunk_max = 2 * kMib;
    std::strcpy(page_->config.policy, "lru");
    std::strcpy(page_->model_path, "/m/a.gguf");
    page_->stats.resident_peak_bytes.store(64 * kMib);
    page_->stats.kernel_peak_bytes.store(64 * kMib);
    page_->stats.bytes_fetched.store(7);
    page_->stats.faults_missing.store(3);
  }
  std::unique_ptr<RunPage> page_ = std::make_unique<RunPage>();
  RunFacts facts_;
};

TEST_F(RunReport, has_every_field_of_schema_1) {
  const nlohmann::json report = run_report(*page_, facts_);
  EXPECT_EQ(report.at("schema"), 1);
  for (const char* key : {"model",
                          "budget_bytes",
                          "resident_peak_bytes",
                          "bytes_fetched",
                          "bytes_punched",
                          "faults",
                          "tripwires",
                          "evictions",
                          "prefetch",
                          "infeasible",
                          "reconcile",
                          "latency_us",
                          "policy",
                          "swap_guarantee",
                          "config_hash",
                          "kernel_peak_bytes",
                          "kernel_shmem_peak_bytes",
                          "budget_kept",
                          "exit_code",
                          "wall_s",
                          "uffd_route",
                          "failure"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  for (const char* key : {"issued", "useful", "late", "wasted", "declined", "pin_broken"}) {
    EXPECT_TRUE(report.at("prefetch").contains(key)) << key;
  }
  EXPECT_EQ(report.at("faults").at("missing"), 3);
  EXPECT_EQ(report.at("bytes_fetched"), 7);
  EXPECT_EQ(report.at("model").at("path"), "/m/a.gguf");
  EXPECT_EQ(report.at("model").at("bytes"), 256 * kMib);
  EXPECT_TRUE(report.at("reconcile").contains("max_divergence_bytes"));
  EXPECT_TRUE(report.at("latency_us").contains("fault_p99"));
  EXPECT_TRUE(report.at("failure").is_null());
  EXPECT_TRUE(report.at("kernel_shmem_peak_bytes").is_null()) << "no group, no figure";
}

TEST_F(RunReport, carries_the_failure) {
  facts_.failure = Failure{Status::store_changed, "/m/a.gguf", "its size changed", {}};
  const nlohmann::json failure = run_report(*page_, facts_).at("failure");
  EXPECT_EQ(failure.at("status"), "store_changed");
  EXPECT_EQ(failure.at("why"), "its size changed");
  EXPECT_FALSE(failure.at("todo").get<std::string>().empty());
}

TEST_F(RunReport, budget_is_kept_up_to_one_chunk_by_every_count) {
  EXPECT_TRUE(budget_kept(*page_, facts_));
  page_->stats.kernel_peak_bytes.store(66 * kMib);
  EXPECT_TRUE(budget_kept(*page_, facts_));
  page_->stats.kernel_peak_bytes.store(66 * kMib + 1);
  EXPECT_FALSE(budget_kept(*page_, facts_));
  page_->stats.kernel_peak_bytes.store(0);
  page_->stats.resident_peak_bytes.store(66 * kMib + 1);
  EXPECT_FALSE(budget_kept(*page_, facts_));
  page_->stats.resident_peak_bytes.store(0);
  facts_.kernel_shmem_peak = 66 * kMib + 4096;
  EXPECT_FALSE(budget_kept(*page_, facts_));
  facts_.kernel_shmem_lag = 4096;
  EXPECT_TRUE(budget_kept(*page_, facts_));
  EXPECT_EQ(peak_resident(*page_, facts_), 66 * kMib + 4096);
}

TEST_F(RunReport, bytes_that_are_no_utf8_do_not_break_it) {
  std::strcpy(page_->model_path, "/m/\xff\xfe.gguf");
  facts_.command = {"a", "\xc3\x28"};
  const std::string text = report_text(run_report(*page_, facts_));
  EXPECT_TRUE(nlohmann::json::accept(text));
}

TEST_F(RunReport, the_hash_tells_settings_apart_and_nothing_else) {
  const std::string before = config_hash(page_->config);
  EXPECT_EQ(before.size(), 16U);
  page_->config.quiet = 1;
  page_->config.own_cgroup = 1;
  EXPECT_EQ(config_hash(page_->config), before);
  page_->config.chunk_max = kMib;
  EXPECT_NE(config_hash(page_->config), before);
}

TEST_F(RunReport, the_summary_says_where_the_routed_experts_were) {
  EXPECT_EQ(run_summary(*page_, facts_).find("experts"), std::string::npos);
  EXPECT_EQ(run_report(*page_, facts_)["experts"]["sensor"], "faults");
  page_->stats.expert_layers = 4;
  EXPECT_EQ(run_report(*page_, facts_)["experts"]["sensor"], "faults");
  page_->expert_sensor = ExpertSensor::eval_callback;
  EXPECT_EQ(run_summary(*page_, facts_).find("experts"), std::string::npos) << "no board";
  const auto board = std::make_unique<ExpertBoard>();
  facts_.board = board.get();
  facts_.wall_s = 4;
  // The first layers of some models have no experts; tokens are counted where they begin.
  for (const std::size_t i : {3U, 4U}) {
    ExpertBoard::Layer& layer = board->layers[i];
    layer.experts = 8;
    layer.tokens = i == 3 ? 10 : 7;
    for (int n = 0; n < 10; ++n)
      layer.asked.add(100);
    for (int n = 0; n < 7; ++n)
      (n < 4 ? layer.cached : layer.prefetched).add(100);
    layer.pinned.add(100);
    layer.missed.add(100);
    layer.missed.add(100);
    layer.read_bytes = 5 * kMib;
    layer.wait_ns = 500'000'000;
  }
  EXPECT_NE(
      run_summary(*page_, facts_)
          .find("40 % cached, 30 % prefetched, 10 % pinned, 20 % missed of 1.95 KiB asked for; "
                "1.00 MiB read a token (10 tokens); waited for them 25 % of the time"),
      std::string::npos)
      << run_summary(*page_, facts_);
  const nlohmann::json experts = run_report(*page_, facts_)["experts"];
  ASSERT_EQ(experts["layers"].size(), 2U);
  EXPECT_EQ(experts["layers"][0]["layer"], 3);
  EXPECT_EQ(experts["layers"][1]["cached"], 4);
  EXPECT_EQ(experts["layers"][1]["cached_bytes"], 400);
  EXPECT_EQ(experts["layers"][1]["wait_s"], 0.5);
  EXPECT_EQ(experts["total"]["asked"], 20);
  EXPECT_EQ(experts["total"]["missed"], 4);
  EXPECT_EQ(experts["total"]["wait_s"], 1.0);
  EXPECT_EQ(experts["tokens"], 10);
  EXPECT_EQ(experts["read_bytes_per_token"], 1.0 * kMib);
  EXPECT_EQ(experts["sensor"], "eval_callback") << "the other fields stay";
}

TEST_F(RunReport, the_summary_says_whether_the_budget_was_kept) {
  EXPECT_NE(run_summary(*page_, facts_).find("(kept)"), std::string::npos);
  page_->stats.resident_peak_bytes.store(100 * kMib);
  EXPECT_NE(run_summary(*page_, facts_).find("EXCEEDED"), std::string::npos);
}

class ReportFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/residctl-report.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  void TearDown() override { (void)!std::system(("rm -rf " + folder_).c_str()); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int entries() const {
    int n = 0;
    if (FILE* list = ::popen(("ls -A " + folder_ + " | wc -l").c_str(), "r")) {
      if (std::fscanf(list, "%d", &n) != 1) n = -1;
      ::pclose(list);
    }
    return n;
  }
  std::string folder_;
};

TEST_F(ReportFiles, appears_whole_on_commit) {
  auto file = ReportFile::prepare(at("r.json"));
  ASSERT_TRUE(file);
  EXPECT_NE(::access(at("r.json").c_str(), F_OK), 0);
  ASSERT_TRUE(file->commit("text"));
  EXPECT_EQ(read(at("r.json")), "text");
  EXPECT_EQ(entries(), 1);
}

TEST_F(ReportFiles, without_commit_nothing_changes) {
  std::ofstream(at("r.json")) << "old";
  { EXPECT_TRUE(ReportFile::prepare(at("r.json"))); }
  EXPECT_EQ(read(at("r.json")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(ReportFiles, refuses_folders_and_missing_ones) {
  for (const std::string& path : {folder_, at("none/r.json")}) {
    const auto file = ReportFile::prepare(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().status, Status::write_failed);
  }
}

TEST_F(ReportFiles, follows_a_symbolic_link) {
  std::ofstream(at("real")) << "old";
  ASSERT_EQ(::symlink("real", at("link").c_str()), 0);
  auto file = ReportFile::prepare(at("link"));
  ASSERT_TRUE(file && file->commit("new"));
  EXPECT_EQ(read(at("real")), "new");
  struct stat st {};
  ASSERT_EQ(::lstat(at("link").c_str(), &st), 0);
  EXPECT_TRUE(S_ISLNK(st.st_mode));
}

TEST_F(ReportFiles, writes_into_devices_and_does_not_replace_them) {
  auto file = ReportFile::prepare("/dev/null");
  ASSERT_TRUE(file && file->commit("x"));
  struct stat st {};
  ASSERT_EQ(::stat("/dev/null", &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
}

}  // namespace
}  // namespace resid

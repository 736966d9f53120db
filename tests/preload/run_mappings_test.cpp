// Every way of handling a mapping, in an unmodified program, plain and under `residctl run` with a
// budget of an eighth of the model; as root and as a user without rights.

#include "run_support.hpp"

namespace resid::test {
namespace {

constexpr int kTensors = 8;
constexpr std::uint64_t kEach = 2 * 1024 * 1024 + 40;  // tensors begin inside pages
const std::vector<std::string> kBudget{"--ram", "2MiB"};

class Mappings : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new Folder;
    write_safetensors(model(), kTensors, kEach);
    ::chmod(model().c_str(), 0644);
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string model() { return *folder_ / "model.safetensors"; }
  static Folder* folder_;
};
Folder* Mappings::folder_ = nullptr;

TEST_P(Mappings, plain) {
  const Outcome outcome = execute(*folder_, {kOps, GetParam(), model()});
  EXPECT_EQ(outcome.code, 0) << outcome.err << "the test itself is wrong about mmap";
}

TEST_P(Mappings, under_a_budget) {
  RESID_NEED_PRELOAD();
  const std::string report = *folder_ / "report.json";
  const Outcome outcome =
      execute(*folder_, run_with(kBudget) + std::vector<std::string>{"--report", report, "--", kOps,
                                                                     GetParam(), model()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(slurp(report));
  EXPECT_TRUE(json.at("budget_kept").get<bool>()) << json.dump(2);
  EXPECT_EQ(json.at("budget_bytes"), 2 * 1024 * 1024);
  EXPECT_GT(json.at("bytes_fetched"), 0);
  EXPECT_TRUE(json.at("failure").is_null());
}

TEST_P(Mappings, as_a_user_without_rights) {
  RESID_NEED_PRELOAD();
  if (::getuid() != 0) GTEST_SKIP() << "only root can become nobody";
  if (GetParam() == "mlock") GTEST_SKIP() << "RLIMIT_MEMLOCK decides there";
  if (!everybody_can_reach(kOps)) GTEST_SKIP() << kOps << " lies in a folder closed to nobody";
  Folder own;  // nobody's output files
  const std::string report = own / "report.json";
  const Outcome outcome = execute(
      own, std::vector<std::string>{"env", "-u", "XDG_RUNTIME_DIR", "setpriv", "--reuid=65534",
                                    "--regid=65534", "--clear-groups"} +
               run_with(kBudget) +
               std::vector<std::string>{"--report", report, "--", kOps, GetParam(), model()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(slurp(report));
  EXPECT_TRUE(json.at("budget_kept").get<bool>());
  EXPECT_EQ(json.at("uffd_route"), "user-mode-only");
}

INSTANTIATE_TEST_SUITE_P(Program, Mappings,
                         testing::Values("read", "private", "populate", "twice", "offset",
                                         "partial_munmap", "spanning_munmap", "map_over", "mremap",
                                         "mprotect", "madvise", "mlock", "fork", "threads_exit",
                                         "write", "send"),
                         [](const auto& the_case) { return the_case.param; });

}  // namespace
}  // namespace resid::test

// `residctl replay` as scripts see it: one JSON document, exit codes, plain words for mistakes.

#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "replay_support.hpp"

namespace resid {
namespace {

using nlohmann::json;
using test::fresh_path;
using test::GeneratedStore;
using test::MiB;

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

Output residctl(const std::string& arguments) {
  const std::string err_path = fresh_path();
  const std::string command = RESID_BIN_DIR "/residctl " + arguments + " 2>" + err_path;
  Output result;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> part{};
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe))
    result.out.append(part.data(), n);
  result.code = WEXITSTATUS(::pclose(pipe));
  std::ifstream err(err_path);
  result.err.assign(std::istreambuf_iterator<char>(err), {});
  ::unlink(err_path.c_str());
  return result;
}

TEST(ReplayCommand, WritesOneDocument) {
  const GeneratedStore store(16 * MiB);
  const Output r = residctl("replay --store " + store.path() +
                            " --chunk 512KiB --ratio 0.5 --arm D --passes 3 --no-probe --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json j = json::parse(r.out);
  EXPECT_EQ(j.at("schema"), 1);
  EXPECT_EQ(j.at("arm"), "D");
  EXPECT_EQ(j.at("chunks"), 32);
  EXPECT_EQ(j.at("mismatches"), 0);
  EXPECT_EQ(j.at("censored"), false);
  EXPECT_EQ(j.at("budget_kept"), true);
  EXPECT_EQ(j.at("bytes_read"), j.at("kernel_read_bytes"));
  EXPECT_GE(j.at("bytes_over_opt").get<double>(), 1.0);
  EXPECT_EQ(j.at("floor_bytes"), 32 * MiB);
  EXPECT_TRUE(j.at("probe_bytes_per_s").is_null());
  EXPECT_EQ(j.at("cold").at("cached_bytes"), 0);
}

TEST(ReplayCommand, MeasuresTheDiskAndTheRooflineOfItsRun) {
  const GeneratedStore store(16 * MiB);
  const Output r = residctl("replay --store " + store.path() +
                            " --chunk 512KiB --ratio 0.5 --arm D --passes 2 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json j = json::parse(r.out);
  EXPECT_GT(j.at("probe_bytes_per_s").get<double>(), 0);
  EXPECT_GT(j.at("compute_s_per_pass").get<double>(), 0);
  EXPECT_GT(j.at("roofline_bytes_per_s").get<double>(), 0);
}

TEST(ReplayCommand, MakesAndRemovesItsOwnStore) {
  const std::string store = fresh_path();
  EXPECT_EQ(residctl("replay --make-store " + store + " --size 4MiB").code, 0);
  EXPECT_EQ(::access(store.c_str(), F_OK), 0);
  EXPECT_EQ(residctl("replay --make-store " + store + " --size 4MiB").code, 2);
  ::unlink(store.c_str());
  const Output r = residctl("replay --size 4MiB --chunk 256KiB --ratio 0.5 --no-probe --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(::access(json::parse(r.out).at("store").get<std::string>().c_str(), F_OK), 0);
}

TEST(ReplayCommand, KnowsMistakesBeforeItWritesAStore) {
  for (const std::string& arguments : {std::string("--arm Z --ratio 0.5"), std::string("--arm D"),
                                       std::string("--arm D --ratio 0.5 --advice x")}) {
    const std::string store = fresh_path();
    EXPECT_EQ(residctl("replay --size 4MiB --store " + store + " " + arguments).code, 2);
    EXPECT_NE(::access(store.c_str(), F_OK), 0) << arguments;
  }
  EXPECT_EQ(residctl("replay --make-store " + fresh_path()).code, 2);
}

TEST(ReplayCommand, NeverWritesATraceOverAnythingElse) {
  const GeneratedStore store(4 * MiB);
  const Output r =
      residctl("replay --store " + store.path() +
               " --chunk 256KiB --ratio 0.5 --no-probe --reference-trace " + store.path());
  EXPECT_EQ(r.code, 2) << r.err;
  const Fd fd(::open(store.path().c_str(), O_RDONLY));
  EXPECT_TRUE(is_generated_store(fd.get(), 4 * MiB, store.path()).value());
}

TEST(ReplayCommand, RefusesTracesThatWouldStayEmpty) {
  const GeneratedStore store(4 * MiB);
  const std::string some = "replay --store " + store.path() + " --chunk 256KiB --ratio 0.5 ";
  EXPECT_EQ(residctl(some + "--arm A --fault-trace " + fresh_path()).code, 2);
  EXPECT_EQ(residctl(some + "--arm OPT --reference-trace " + fresh_path()).code, 2);
}

TEST(ReplayCommand, LeavesNoStoreWhenItIsStopped) {
  const std::string folder = fresh_path();
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const std::string command = "TMPDIR=" + folder +
                              " timeout -s TERM 1 " RESID_BIN_DIR
                              "/residctl replay --size 16MiB --chunk 256KiB --ratio 0.5 --arm OPT"
                              " --compute-ns-per-mib 500000000 >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 124);
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << "something was left in " << folder;
}

TEST(ReplayCommand, CallsABudgetThatCannotBeAResult) {
  const GeneratedStore store(4 * MiB);
  const Output r = residctl("replay --store " + store.path() + " --ratio 0.1 --no-probe --json");
  EXPECT_EQ(r.code, 4);
  const json j = json::parse(r.out);
  EXPECT_EQ(j.at("censored"), true);
  EXPECT_TRUE(j.at("censored_reason").is_string());
  EXPECT_TRUE(j.at("bytes_read").is_null());
}

TEST(ReplayCommand, ExitsWith1WhenBytesWereWrong) {
  const GeneratedStore store(4 * MiB);
  store.spoil(4096 * 5 + 1);
  const Output r = residctl("replay --store " + store.path() +
                            " --chunk 256KiB --ratio 0.5 --passes 2 --no-probe --json");
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(json::parse(r.out).at("mismatches"), 2);
  EXPECT_NE(r.err.find("wrong bytes"), std::string::npos) << r.err;
}

TEST(ReplayCommand, ReplaysARealModel) {
  const Output r = residctl("replay --model " RESID_SOURCE_DIR
                            "/models/linnet-moe-q4.gguf --ratio 0.4 --arm D --passes 2 --no-probe "
                            "--json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json j = json::parse(r.out);
  EXPECT_EQ(j.at("mismatches"), 0);
  EXPECT_GE(j.at("bytes_over_opt").get<double>(), 1.0);
  EXPECT_LE(j.at("opt_bytes").get<double>(), j.at("opt_feasible_bytes").get<double>());
}

TEST(ReplayCommand, RefusesWhatMakesNoSense) {
  const GeneratedStore store(4 * MiB);
  const std::string some = "replay --store " + store.path() + " --chunk 256KiB ";
  for (const std::string& arguments :
       {std::string("replay --ratio 0.5"), some, some + "--ratio 0", some + "--ratio -1",
        some + "--ratio nan", some + "--ratio 0.5 --ram 1MiB", some + "--ratio 0.5 --arm Z",
        some + "--ratio 0.5 --advice maybe", some + "--ratio 0.5 --consumption-signal x",
        some + "--ratio 0.5 --passes 0", some + "--ratio 0.5 --model m.gguf",
        std::string("replay --store /no/such/file --ratio 0.5"),
        std::string("replay --model /no/such/file --ratio 0.5"),
        std::string("replay --size 4MiB --chunk 1000 --ratio 0.5"),
        std::string("replay --size 12x --ratio 0.5")}) {
    const Output r = residctl(arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_EQ(r.err.rfind("residctl: ", 0), 0U) << arguments << "\n" << r.err;
  }
}

TEST(ReplayCommand, NamesATraceFileThatCannotBeWritten) {
  const GeneratedStore store(4 * MiB);
  const Output r = residctl("replay --store " + store.path() +
                            " --chunk 256KiB --ratio 0.5 --no-probe --fault-trace /no/such/f");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("/no/such/f"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace resid

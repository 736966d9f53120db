// `residctl run` with ordinary programs: same output, budget kept, report written.

#include "run_support.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;

class Run : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new Folder;
    write_safetensors(model(), 12, 2 * kMib + 8);
    ::chmod(model().c_str(), 0644);
  }
  static void TearDownTestSuite() { delete shared_; }
  static std::string model() { return *shared_ / "model.safetensors"; }
  nlohmann::json report() const { return nlohmann::json::parse(slurp(report_)); }
  Outcome run(const std::vector<std::string>& options, const std::vector<std::string>& program) {
    return execute(
        folder_, run_with(options) + std::vector<std::string>{"--report", report_, "--"} + program);
  }

  static Folder* shared_;
  Folder folder_;
  const std::string report_ = folder_ / "report.json";
};
Folder* Run::shared_ = nullptr;

TEST_F(Run, a_c_program_reads_the_same_bytes_within_the_budget) {
  RESID_NEED_PRELOAD();
  const std::string once = fnv_of(model());
  const Outcome outcome = run({"--ram", "25%"}, {kReader, model(), "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, once + once);
  const auto json = report();
  const std::uint64_t size = slurp(model()).size();
  EXPECT_EQ(json.at("model").at("bytes"), size);
  EXPECT_TRUE(json.at("budget_kept").get<bool>()) << json.dump(2);
  EXPECT_LE(json.at("resident_peak_bytes"), json.at("budget_bytes"));
  EXPECT_GE(json.at("bytes_fetched").get<std::uint64_t>(), size);
  EXPECT_GT(json.at("evictions"), 0);
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_NE(outcome.err.find("(kept)"), std::string::npos) << outcome.err;
}

TEST_F(Run, every_policy_and_switch_gives_the_same_bytes) {
  RESID_NEED_PRELOAD();
  const std::string once = fnv_of(model());
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--policy", "lru"},
           {"--policy", "layer_order_learned"},
           {"--policy", "layer_order_declared"},
           {"--prefetch", "off"},
           {"--prefetch-depth", "8", "--prefetch-retention", "none"},
           {"--prefetch-admission", "always"},
           {"--sync-handler"},
           {"--protect-current"},
           {"--fetch-workers", "1"},
           {"--no-cgroup"}}) {
    const Outcome outcome =
        run(std::vector<std::string>{"--ram", "3MiB"} + options, {kReader, model(), "2"});
    ASSERT_EQ(outcome.code, 0) << options[0] << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, once + once) << options[0];
    EXPECT_TRUE(report().at("budget_kept").get<bool>()) << options[0];
  }
}

TEST_F(Run, without_ram_the_machine_decides) {
  RESID_NEED_PRELOAD();
  const Outcome outcome = run({}, {kReader, model()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, fnv_of(model()));
  EXPECT_NE(outcome.err.find("--ram not given"), std::string::npos) << outcome.err;
}

TEST_F(Run, a_budget_for_all_of_it_maps_plainly_and_says_so) {
  RESID_NEED_PRELOAD();
  for (const char* ram : {"100%", "200%", "1GiB"}) {
    const Outcome outcome = run({"--ram", ram}, {kReader, model()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, fnv_of(model()));
    EXPECT_NE(outcome.err.find("stands aside"), std::string::npos) << outcome.err;
    const auto told = report();
    EXPECT_TRUE(told.at("stood_aside").get<bool>());
    EXPECT_EQ(told.at("bytes_fetched"), 0);
    EXPECT_EQ(told.at("faults").at("missing"), 0);
  }
}

TEST_F(Run, stands_aside_only_when_it_may_and_all_of_it_fits) {
  RESID_NEED_PRELOAD();
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--ram", "100%", "--stand-aside", "off"}, {"--ram", "99%"}}) {
    const Outcome outcome = run(options, {kReader, model()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, fnv_of(model()));
    EXPECT_FALSE(report().at("stood_aside").get<bool>());
    EXPECT_GT(report().at("bytes_fetched"), 0);
  }
}

TEST_F(Run, quiet_says_nothing) {
  RESID_NEED_PRELOAD();
  const Outcome outcome = run({"--ram", "25%", "--quiet"}, {kReader, model()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Run, json_puts_one_document_on_stdout) {
  RESID_NEED_PRELOAD();
  const Outcome outcome = run({"--ram", "25%", "--json"}, {kReader, model()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
  EXPECT_EQ(nlohmann::json::parse(outcome.out), report());
  EXPECT_NE(outcome.err.find(fnv_of(model())), std::string::npos) << "the program's own output";
}

TEST_F(Run, other_files_by_glob) {
  RESID_NEED_PRELOAD();
  const std::string blob = folder_ / "weights.bin";
  ASSERT_EQ(std::system(("tail -c +100 " + model() + " > " + blob).c_str()), 0);
  EXPECT_EQ(run({"--ram", "4MiB"}, {kReader, blob}).code, 3);
  const Outcome outcome = run({"--ram", "4MiB", "--match", "*.bin"}, {kReader, blob, "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, fnv_of(blob) + fnv_of(blob));
  EXPECT_EQ(report().at("policy"), "layer_order_spread");
}

TEST_F(Run, survives_exec_through_a_shell) {
  RESID_NEED_PRELOAD();
  const Outcome outcome =
      run({"--ram", "4MiB"},
          {"/bin/sh", "-c", kReader + " " + model() + "; " + kReader + " " + model()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, fnv_of(model()) + fnv_of(model()));
  EXPECT_GE(report().at("processes"), 3);
}

TEST_F(Run, the_programs_own_code_is_passed_on) {
  RESID_NEED_PRELOAD();
  EXPECT_EQ(
      run({"--ram", "4MiB"}, {"/bin/sh", "-c", kReader + " " + model() + " > /dev/null; exit 42"})
          .code,
      42);
  EXPECT_EQ(run({"--ram", "4MiB"}, {kOps, "abort", model()}).code, 128 + SIGABRT);
  EXPECT_EQ(report().at("exit_code"), 128 + SIGABRT);
}

TEST_F(Run, an_existing_preload_stays) {
  RESID_NEED_PRELOAD();
  ::setenv("LD_PRELOAD", "libm.so.6", 1);
  const Outcome outcome =
      run({"--ram", "4MiB"}, {"/bin/sh", "-c", "echo $LD_PRELOAD; " + kReader + " " + model()});
  ::unsetenv("LD_PRELOAD");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("libresid-preload.so:libm.so.6\n"), std::string::npos) << outcome.out;
}

TEST_F(Run, a_writable_mapping_is_left_alone_and_told) {
  RESID_NEED_PRELOAD();
  const Outcome outcome = run({"--ram", "4MiB"}, {kOps, "writable", model()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("mapped writable"), std::string::npos) << outcome.err;
}

TEST_F(Run, leaves_no_files_and_no_groups_behind) {
  RESID_NEED_PRELOAD();
  // A folder of its own: other runs make and remove theirs at any moment.
  const std::string runtime = folder_ / "runtime";
  ASSERT_EQ(::mkdir(runtime.c_str(), 0700), 0);
  const Outcome outcome = execute(
      folder_, {"env", "XDG_RUNTIME_DIR=" + runtime, kResidctl, "run", "--chunk-max", "256KiB",
                "--ram", "4MiB", "--trace", folder_ / "trace", "--report", report_, "--", "/bin/sh",
                "-c", "ls " + runtime + " >&2; exec " + kReader + " " + model()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("residctl."), std::string::npos) << "it used another folder";
  const auto group = report().at("control_group").at("path");
  if (group.is_string()) {
    EXPECT_NE(::access(group.get<std::string>().c_str(), F_OK), 0) << group;
  }
  EXPECT_EQ(execute(folder_, {"ls", "-A", runtime}).out, "");
}

// The traces tell what the report counts.
TEST_F(Run, traces_hold_every_fault_fetch_and_victim) {
  RESID_NEED_PRELOAD();
  const Outcome outcome =
      run({"--ram", "25%", "--prefetch", "off", "--trace", folder_ / "faults", "--fetch-trace",
           folder_ / "fetches", "--victim-trace", folder_ / "victims"},
          {kReader, model(), "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = report();
  const auto dumped = [&](const std::string& name) {
    const Outcome dump = execute(folder_, {kResidctl, "opt", "--dump", folder_ / name});
    EXPECT_EQ(dump.code, 0) << dump.err;
    return dump.out;
  };
  const auto records = [](const std::string& dump) {  // its last line says how many
    const std::size_t end = dump.rfind(" records\n");
    const std::size_t begin = end == std::string::npos ? end : dump.rfind('\n', end);
    return begin == std::string::npos ? ~0ULL : std::stoull(dump.substr(begin + 1, end));
  };
  EXPECT_NE(dumped("faults").find("fault"), std::string::npos);
  // One read may bring a chunk and its seams.
  EXPECT_GE(records(dumped("fetches")), json.at("fetches").get<std::uint64_t>());
  EXPECT_EQ(records(dumped("victims")), json.at("evictions").get<std::uint64_t>());
  EXPECT_GT(records(dumped("faults")), 0U);
  // What a fault trace is not for.
  const Outcome judged = execute(folder_, {kResidctl, "opt", folder_ / "faults", "--ram", "50%"});
  EXPECT_EQ(judged.code, 2);
}

// Two programs one after another, each with a pager that numbers its chunks from 0.
TEST_F(Run, traces_of_two_programs_in_turn_do_not_mix) {
  RESID_NEED_PRELOAD();
  const std::string reader = kReader + " " + model();
  const Outcome outcome = run({"--ram", "25%", "--trace", folder_ / "faults"},
                              {"/bin/sh", "-c", reader + " && " + reader});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Outcome dump = execute(folder_, {kResidctl, "opt", "--dump", "--json", folder_ / "faults"});
  ASSERT_EQ(dump.code, 0) << dump.err;
  std::istringstream lines(dump.out);
  std::string line;
  std::getline(lines, line);
  const std::uint64_t chunks = nlohmann::json::parse(line).at("chunk_bytes").size();
  ASSERT_EQ(chunks % 2, 0U);
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  while (std::getline(lines, line)) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("chunk")) continue;
    ++(record.at("chunk").get<std::uint64_t>() < chunks / 2 ? first : second);
  }
  EXPECT_GT(first, 0U);
  EXPECT_GT(second, 0U);
}

TEST_F(Run, a_trace_never_replaces_the_model) {
  const std::string copy = folder_ / "copy.safetensors";
  ASSERT_EQ(execute(folder_, {"cp", model(), copy}).code, 0);
  const Outcome outcome = run({"--ram", "25%", "--trace", copy}, {kReader, copy});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(slurp(copy), slurp(model()));
  const Outcome twice = run(
      {"--ram", "25%", "--trace", folder_ / "t", "--victim-trace", folder_ / "t"}, {kReader, copy});
  EXPECT_EQ(twice.code, 2) << twice.err;
}

// The program may have removed its model by then.
TEST_F(Run, traces_survive_the_end_of_the_model) {
  RESID_NEED_PRELOAD();
  const std::string copy = folder_ / "gone.safetensors";
  ASSERT_EQ(execute(folder_, {"cp", model(), copy}).code, 0);
  const Outcome outcome = run({"--ram", "25%", "--trace", folder_ / "faults"},
                              {"/bin/sh", "-c", kReader + " " + copy + "; rm " + copy});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(execute(folder_, {kResidctl, "opt", "--dump", folder_ / "faults"}).code, 0);
}

TEST_F(Run, a_trace_that_cannot_be_written_is_refused_before_the_program_starts) {
  const Outcome outcome = run({"--trace", "/no/such/folder/trace"}, {"touch", folder_ / "ran"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("/no/such/folder/trace"), std::string::npos) << outcome.err;
  EXPECT_NE(::access((folder_ / "ran").c_str(), F_OK), 0);
}

const char* const kPythonMmap = R"(
import hashlib, mmap, sys
with open(sys.argv[1], 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    print(hashlib.sha256(m).hexdigest())
    m.close()
)";

const char* const kPythonMemmap = R"(
import sys, numpy
m = numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode='r')
print(int(m.astype(numpy.uint64).sum()))
)";

class Python : public Run {
 protected:
  void expect_same(const char* source) {
    RESID_NEED_PRELOAD();
    const std::string script = folder_ / "script.py";
    std::ofstream(script) << source;
    // The system's own first: the one on the path may lack what the distribution's packages bring.
    std::string python = "/usr/bin/python3";
    Outcome plain = execute(folder_, {python, script, model()});
    if (plain.code != 0) plain = execute(folder_, {python = "python3", script, model()});
    if (plain.code != 0) GTEST_SKIP() << "python3 here cannot run it: " << plain.err;
    const Outcome outcome = run({"--ram", "4MiB"}, {python, script, model()});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, plain.out);
    EXPECT_TRUE(report().at("budget_kept").get<bool>());
    EXPECT_GT(report().at("bytes_fetched"), 20 * kMib);
  }
};

TEST_F(Python, mmap_module) {
  expect_same(kPythonMmap);
}
TEST_F(Python, numpy_memmap) {
  expect_same(kPythonMemmap);
}

}  // namespace
}  // namespace resid::test

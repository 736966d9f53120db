// `residctl opt` as its users meet it.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trace/optimum.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class OptCommand : public Folder {
 protected:
  struct Outcome {
    int code = -1;
    std::string out;
    std::string err;
  };
  Outcome run(const std::string& args, const std::string& to = "out") const {
    const std::string command = "cd '" + folder_.string() + "' && env -u RESIDCTL_RAM '" +
                                RESID_BIN_DIR "/residctl' opt " + args + " >" + to + " 2>err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, get(path("out")), get(path("err"))};
  }
  // Exit 2, nothing on stdout, one line on stderr.
  std::string refused(const std::string& args, int code = 2) const {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, StartsWith("residctl: "));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    return o.err;
  }

  // 40 chunks of 4 KiB, five times over.
  TraceHeader scan(const char* name) const {
    const TraceHeader header = cyclic_header(Ids(40, 4096), 5);
    write_trace(path(name), header, records_of(cyclic_accesses(header)));
    return header;
  }
};

TEST_F(OptCommand, JudgesEveryPolicyOnACyclicScan) {
  const TraceHeader header = scan("t");
  const Outcome o = run("t --ram 50% --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  const json doc = json::parse(o.out);
  EXPECT_EQ(doc["accesses"], 200);
  EXPECT_EQ(doc["ram_bytes"], 20 * 4096);
  EXPECT_EQ(doc["floor_bytes"], 4096 * (40 + 4 * 20));
  const auto optimum = optimum_bytes(header, cyclic_accesses(header), 20 * 4096);
  EXPECT_EQ(doc["opt"]["exact"], true);
  EXPECT_EQ(doc["opt"]["misses"], optimum->misses);
  EXPECT_EQ(doc["opt"]["lower_bytes"], optimum->lower_bytes);
  EXPECT_EQ(doc["opt"]["upper_bytes"], optimum->lower_bytes);
  EXPECT_EQ(doc["lru"]["misses"], 200);
  EXPECT_EQ(doc["lru"]["bytes"], 200 * 4096);
  EXPECT_EQ(doc["policies"].size(), 7U);
  EXPECT_EQ(doc["policies"]["lru"], doc["lru"]);
  for (const char* policy : {"layer_order_learned", "layer_order_declared", "layer_order_spread"}) {
    const json& p = doc["policies"][policy];
    EXPECT_GE(p["bytes"], doc["floor_bytes"]);
    EXPECT_LE(p["misses"], 40 + 4 * (20 + 3)) << policy;
    EXPECT_NEAR(p["bytes_over_opt"],
                p["bytes"].get<double>() / doc["opt"]["lower_bytes"].get<double>(), 1e-9);
  }

  const Outcome text = run("t --ram 80KiB");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* part :
       {"5 passes over 40 chunks", "floor of a cyclic scan", "OPT", "lru", "layer_order_learned",
        "layer_order_declared", "layer_order_spread", "1.0000"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
}

TEST_F(OptCommand, OnlyTheNamedPoliciesAndLru) {
  scan("t");
  const json doc = json::parse(run("t --json --ram 50% --policy layer_order_declared").out);
  EXPECT_EQ(doc["policies"].size(), 1U);
  EXPECT_TRUE(doc["policies"].contains("layer_order_declared"));
  EXPECT_EQ(doc["lru"]["misses"], 200);
  const std::string listed = run("--ram 50% --policy lru,layer_order_learned t").out;
  EXPECT_THAT(listed, HasSubstr("layer_order_learned"));
  EXPECT_THAT(listed, testing::Not(HasSubstr("layer_order_declared")));
  EXPECT_THAT(refused("t --ram 50% --policy belady"), HasSubstr("choose one of lru, "));
}

TEST_F(OptCommand, WhatThePolicyMayNotGiveUpCosts) {
  scan("t");
  const auto misses = [&](const std::string& more) {
    const json doc =
        json::parse(run("t --json --ram 12KiB --policy layer_order_declared " + more).out);
    return doc["policies"]["layer_order_declared"]["misses"].get<int>();
  };
  // Room for three: with two kept at hand there is no choice left.
  EXPECT_EQ(misses(""), 200);
  EXPECT_EQ(misses("--keep-current 2"), 200);
  EXPECT_LT(misses("--keep-current 0"), 200);
  EXPECT_LT(misses("--keep-current 0 --signal faults"), 200);
}

TEST_F(OptCommand, UnequalChunksHaveTwoBounds) {
  Ids bytes;
  for (std::uint32_t i = 0; i < 40; ++i)
    bytes.push_back(1000 + i * 7919 % 5003);
  const TraceHeader header = header_of(bytes);
  Ids accesses;
  for (std::uint32_t i = 0; i < 2000; ++i)
    accesses.push_back(i * i * 7919 % 401 % 40);
  write_trace(path("t"), header, records_of(accesses));
  const json doc = json::parse(run("t --ram 30% --json").out);
  EXPECT_TRUE(doc["floor_bytes"].is_null());
  EXPECT_EQ(doc["opt"]["exact"], false);
  EXPECT_LT(doc["opt"]["lower_bytes"], doc["opt"]["upper_bytes"]);
  EXPECT_GE(doc["lru"]["bytes"], doc["opt"]["lower_bytes"]);
  const std::string text = run("t --ram 30%").out;
  EXPECT_THAT(text, HasSubstr("OPT, at least"));
  EXPECT_THAT(text, HasSubstr("OPT, at most"));
}

TEST_F(OptCommand, SeveralTracesAreOneRun) {
  scan("a");
  scan("b");
  const json doc = json::parse(run("a b --ram 50% --json").out);
  EXPECT_EQ(doc["accesses"], 400);
  EXPECT_EQ(doc["passes"], 10);
  EXPECT_EQ(doc["traces"], json({"a", "b"}));
  write_trace(path("c"), header_of(Ids(41, 4096)), records_of({40}));
  EXPECT_THAT(refused("a c --ram 50%"), HasSubstr("c : is not of the model of a"));
}

TEST_F(OptCommand, RefusesWhatAnOptimumMustNotBeComputedFrom) {
  TraceHeader header = scan("t");
  for (const TraceKind kind : {TraceKind::fault, TraceKind::fetch, TraceKind::victim}) {
    header.kind = kind;
    write_trace(path("other"), header, records_of({0, 1}));
    EXPECT_THAT(refused("other --ram 50%"), HasSubstr(std::string(name(kind)) + " trace"));
    EXPECT_THAT(refused("t other --ram 50%"), HasSubstr(std::string(name(kind)) + " trace"));
  }
  // By force, with the claim of the run it came from.
  header.kind = TraceKind::reference;
  Ids faults = cyclic_accesses(header);
  faults.resize(120);
  write_trace(path("forced"), header, records_of(faults));
  EXPECT_THAT(refused("forced --ram 20%"), HasSubstr("not the workload's own reference trace"));
}

TEST_F(OptCommand, RefusesWhatIsDamaged) {
  scan("t");
  const std::string whole = get(path("t"));
  put(path("cut"), whole.substr(0, whole.size() / 2 + 100));
  EXPECT_THAT(refused("cut --ram 50%"), HasSubstr("cut : offset "));
  std::string foreign = whole;
  std::reverse(foreign.begin() + 8, foreign.begin() + 12);
  put(path("foreign"), foreign);
  EXPECT_THAT(refused("foreign --ram 50%"), HasSubstr("other byte order"));
  put(path("text"), "no trace");
  EXPECT_THAT(refused("text --ram 50%"), HasSubstr("this is no trace"));
  EXPECT_THAT(refused("none --ram 50%"), HasSubstr("none : "));
}

TEST_F(OptCommand, TellsWrongUsageFromABudgetThatIsTooSmall) {
  scan("t");
  EXPECT_THAT(refused("t"), HasSubstr("--ram : is needed"));
  EXPECT_THAT(refused("t --ram much"), HasSubstr("'much'"));
  EXPECT_THAT(refused("t --ram 50% --signal smoke"), HasSubstr("smoke"));
  EXPECT_THAT(refused("--ram 50%"), HasSubstr("TRACE"));
  EXPECT_THAT(refused("t --ram 4095", 4), HasSubstr("chunk 0 : is 4096 bytes large"));
}

TEST_F(OptCommand, DumpShowsEveryKind) {
  TraceHeader header = header_of({4096, 100});
  header.model = "esc\x1b[31m.gguf";
  const auto dumped = [&](TraceKind kind, std::uint32_t detail, const std::string& more = {}) {
    header.kind = kind;
    write_trace(path("t"), header, {{12345, 1, detail}});
    const Outcome o = run("t --dump " + more);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    return o.out;
  };
  EXPECT_THAT(dumped(TraceKind::reference, 3),
              HasSubstr("12345          1  thread 3\n1 records\n"));
  EXPECT_THAT(dumped(TraceKind::reference, 3), StartsWith("t: reference trace\n"));
  EXPECT_THAT(dumped(TraceKind::reference, 3), testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(dumped(TraceKind::fault, 0), HasSubstr("missing"));
  EXPECT_THAT(dumped(TraceKind::fault, 1), HasSubstr("minor"));
  EXPECT_THAT(dumped(TraceKind::fetch, 77), HasSubstr("77 us\n"));
  EXPECT_THAT(dumped(TraceKind::fetch, 77 | 1U << 31), HasSubstr("77 us, prefetch\n"));
  EXPECT_THAT(dumped(TraceKind::victim, 1), HasSubstr("by force"));

  const std::string lines = dumped(TraceKind::fetch, 77 | 1U << 31, "--json");
  std::istringstream in(lines);
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const json head = json::parse(line);
  EXPECT_EQ(head["kind"], "fetch");
  EXPECT_EQ(head["model"], header.model);
  EXPECT_EQ(head["chunk_bytes"], json({4096, 100}));
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_EQ(json::parse(line),
            json({{"time_ns", 12345}, {"chunk", 1}, {"us", 77}, {"prefetch", true}}));
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_EQ(json::parse(line), json({{"records", 1}}));
  EXPECT_FALSE(std::getline(in, line));
}

// What was whole is shown, and then it is said that the rest is not.
TEST_F(OptCommand, DumpOfADamagedTraceFails) {
  scan("t");
  const std::string whole = get(path("t"));
  put(path("cut"), whole.substr(0, whole.size() - 1));
  const Outcome o = run("cut --dump");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.out, HasSubstr("cut: reference trace"));
  EXPECT_THAT(o.out, testing::Not(HasSubstr("200 records")));
  EXPECT_THAT(o.err, HasSubstr("cut off"));
}

TEST_F(OptCommand, AFullDeviceBehindDumpIsAFailure) {
  const TraceHeader header = cyclic_header(Ids(40, 4096), 500);
  write_trace(path("t"), header, records_of(cyclic_accesses(header)));
  const Outcome o = run("t --dump", "/dev/full");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("standard output"));
}

TEST_F(OptCommand, TheBudgetMayComeFromTheSettings) {
  scan("t");
  put(path("residctl.toml"), "ram = '50%'\n");
  EXPECT_EQ(json::parse(run("t --json").out)["ram_bytes"], 20 * 4096);
  EXPECT_EQ(json::parse(run("t --json --ram 25%").out)["ram_bytes"], 10 * 4096);
}

}  // namespace
}  // namespace resid::trace_test

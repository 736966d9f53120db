// `residctl opt --cap` as its users meet it.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "trace/routing.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class OptExperts : public Folder {
 protected:
  struct Outcome {
    int code = -1;
    std::string out;
    std::string err;
  };
  Outcome run(const std::string& args) const {
    const std::string command = "cd '" + folder_.string() + "' && env -u RESIDCTL_RAM '" +
                                RESID_BIN_DIR "/residctl' " + args + " >out 2>err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, get(path("out")), get(path("err"))};
  }
  json document(const std::string& args) const {
    const Outcome o = run("opt " + args + " --json");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    return json::parse(o.out);
  }
  // Exit 2, nothing on stdout, one line on stderr.
  std::string refused(const std::string& args) const {
    const Outcome o = run("opt " + args);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, StartsWith("residctl: "));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    return o.err;
  }

  // Experts 0, 1, 2 in turn in layer 3; always expert 0 in layer 5.
  void round_robin(const std::string& name) const {
    auto writer = RoutingWriter::create(path(name.c_str()), 3, 1);
    ASSERT_TRUE(writer);
    for (std::uint32_t t = 0; t < 30; ++t) {
      const std::array<ExpertId, 1> turn{static_cast<ExpertId>(t % 3)};
      const std::array<ExpertId, 1> same{0};
      ASSERT_TRUE(writer->append({{0, t, t}, 3, turn}));
      ASSERT_TRUE(writer->append({{0, t, t}, 5, same}));
    }
    ASSERT_TRUE(writer->finish());
  }
};

TEST_F(OptExperts, GivesHitRatesOverAllLayersAndForEach) {
  round_robin("t.csv.xz");
  const json doc = document("t.csv.xz --cap 2");
  EXPECT_EQ(doc["tokens"], 30);
  EXPECT_EQ(doc["experts"], 3);
  EXPECT_EQ(doc["experts_used"], 1);
  EXPECT_EQ(doc["cap"], 2);
  ASSERT_EQ(doc["layers"].size(), 2U);
  EXPECT_EQ(doc["layers"][0]["layer"], 3);
  EXPECT_EQ(doc["layers"][1]["layer"], 5);
  for (const char* name : {"lru", "lfru", "foresight", "opt"}) {
    EXPECT_NEAR(doc["hit_rate"][name],
                (doc["layers"][0]["hit_rate"][name].get<double>() +
                 doc["layers"][1]["hit_rate"][name].get<double>()) /
                    2,
                1e-12);
    EXPECT_NEAR(doc["layers"][1]["hit_rate"][name], 29 / 30.0, 1e-12) << name;
  }
  EXPECT_EQ(doc["layers"][0]["hit_rate"]["lru"], 0.0);
  // Three in turn with room for two: one of two requests can be a hit.
  EXPECT_NEAR(doc["layers"][0]["hit_rate"]["opt"], 14 / 30.0, 1e-12);
  EXPECT_TRUE(doc["layers"][1]["gap_closed"]["foresight"].is_null()) << "there is no gap";
  EXPECT_EQ(doc["gap_closed"].size(), 2U);
}

TEST_F(OptExperts, SeveralCapsGiveAnArray) {
  round_robin("t");
  const json doc = document("t --cap 1,2,3");
  ASSERT_TRUE(doc.is_array());
  ASSERT_EQ(doc.size(), 3U);
  EXPECT_EQ(doc[1], document("t --cap 2"));
  EXPECT_EQ(doc[2]["hit_rate"]["lru"], doc[2]["hit_rate"]["opt"]);
}

TEST_F(OptExperts, OnlyTheNamedRankingsAndLru) {
  round_robin("t");
  const json doc = document("t --cap 2 --policy lfru");
  EXPECT_EQ(doc["hit_rate"].size(), 3U);
  EXPECT_TRUE(doc["hit_rate"].contains("lfru"));
  EXPECT_THAT(refused("t --cap 2 --policy layer_order_spread"),
              HasSubstr("'layer_order_spread' ranks no experts : choose among lru, lfru"));
}

TEST_F(OptExperts, APoolServesTheLayerThatNeedsMore) {
  round_robin("t");
  EXPECT_NEAR(document("t --cap 2 --pool")["hit_rate"]["lru"], (27 + 29) / 60.0, 1e-12);
}

TEST_F(OptExperts, HoldIsPassedOn) {
  put(path("t"), "seq,pos,token_id,layer,e0,e1\n0,0,1,0,1,0\n0,1,1,0,2,1\n");
  // LRU with room for two: 2 takes the place of 1, unless 1 is known to be needed.
  EXPECT_EQ(document("t --cap 2")["hit_rate"]["lru"], 0.0);
  EXPECT_EQ(document("t --cap 2 --hold pending")["hit_rate"]["lru"], 0.25);
  EXPECT_EQ(document("t --cap 2 --hold token")["hold"], "token");
}

TEST_F(OptExperts, TablesForPeople) {
  round_robin("t");
  const Outcome one = run("opt t --cap 2");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.err, "");
  for (const char* part : {"t: 30 tokens, 2 layers of 3 experts, 1 used by a token", "layer", "lru",
                           "lfru", "foresight", "optimum", "gap closed by", "all", "96.7 %"}) {
    EXPECT_THAT(one.out, HasSubstr(part));
  }
  const Outcome several = run("opt t --cap 1,2");
  EXPECT_THAT(several.out, HasSubstr("\n  cap "));
  EXPECT_THAT(several.out, testing::Not(HasSubstr("\n  all")));
}

TEST_F(OptExperts, ATraceOfChunksDoesNotGoWithCap) {
  for (const TraceKind kind : {TraceKind::reference, TraceKind::fault}) {
    TraceHeader header = header_of({4096, 4096});
    header.kind = kind;
    write_trace(path("chunks"), header, records_of({0, 1}));
    EXPECT_THAT(refused("chunks --cap 8"),
                HasSubstr("chunks : is a trace of chunks, while --cap judges a routing trace : "
                          "give --ram instead of --cap"));
  }
}

TEST_F(OptExperts, ARoutingTraceDoesNotGoWithoutCap) {
  round_robin("t.csv");
  round_robin("t.csv.xz");
  for (const char* args : {"t.csv", "t.csv --ram 50%", "t.csv.xz --ram 50%"}) {
    EXPECT_THAT(refused(args), HasSubstr("is a routing trace, which knows of experts, not of "
                                         "chunks : judge it with --cap N"));
  }
  EXPECT_THAT(refused("t.csv.xz --dump"), HasSubstr("use xzcat or cat"));
}

TEST_F(OptExperts, OptionsOfTheOtherKindAreRefused) {
  round_robin("t");
  for (const char* other : {"--ram 50%", "--keep-current 2", "--signal uses", "--dump"})
    EXPECT_THAT(refused("t --cap 2 " + std::string(other)), HasSubstr("does not go with --cap"));
  EXPECT_THAT(refused("t t --cap 2"), HasSubstr("one routing trace at a time"));
  write_trace(path("chunks"), header_of({4096}), records_of({0}));
  for (const char* other : {"--pool", "--hold token", "--experts 4"})
    EXPECT_THAT(refused("chunks --ram 50% " + std::string(other)), HasSubstr("only with --cap"));
}

TEST_F(OptExperts, ABudgetInTheSettingsDoesNotDisturb) {
  round_robin("t");
  put(path("residctl.toml"), "ram = '50%'\n");
  EXPECT_EQ(document("t --cap 2")["cap"], 2);
}

TEST_F(OptExperts, NamesWhatIsWrong) {
  put(path("t"), "seq,pos,token_id,layer,e0\n0,0,1,0,9\n");
  EXPECT_THAT(refused("t --cap 2 --experts 8"),
              HasSubstr("t : line 2: e0: expert 9 of a layer of 8"));
  put(path("text"), "no trace\n");
  EXPECT_THAT(refused("text --cap 2"), HasSubstr("text : line 1: seq: "));
  EXPECT_THAT(refused("none --cap 2"), HasSubstr("none : "));
  EXPECT_THAT(refused("t --cap 0"), HasSubstr("--cap"));
  EXPECT_THAT(refused("t --cap many"), HasSubstr("--cap"));
  EXPECT_THAT(refused("t --cap 2 --hold on"), HasSubstr("--hold"));
}

TEST_F(OptExperts, CompletionAndHelpKnowTheOptions) {
  const std::string help = run("opt --help").out;
  EXPECT_THAT(help, HasSubstr("--cap N"));
  EXPECT_THAT(help, HasSubstr("residctl opt routing-trace.csv.xz --cap 8"));
  const std::string bash = run("completion bash").out;
  for (const char* option : {"--cap", "--hold", "--pool", "--experts"})
    EXPECT_THAT(bash, HasSubstr(option));
  EXPECT_THAT(bash, HasSubstr("none pending token"));
}

}  // namespace
}  // namespace resid::trace_test

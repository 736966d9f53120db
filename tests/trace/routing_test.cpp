// Routing traces: what is written is read back, and what is wrong is named.

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "trace/routing.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHead = "seq,pos,token_id,layer,e0,e1\n";
// Two tokens in the layers 1 and 3.
const std::string kWhole = std::string(kHead) +
                           "0,0,17,1,3,0\n"
                           "0,0,17,3,2,1\n"
                           "0,1,99,1,0,5\n"
                           "0,1,99,3,4,2\n";

class Routing : public Folder {
 protected:
  Result<RoutingTrace> read(const std::string& text, std::uint32_t experts = 0) const {
    put(path("t"), text);
    return read_routing(path("t"), experts);
  }
  // The failure, which must be exit code 2 and name the file.
  std::string refused(const std::string& text, std::uint32_t experts = 0) const {
    const auto trace = read(text, experts);
    if (trace) return "was accepted";
    EXPECT_EQ(exit_code(trace.error().status), 2);
    EXPECT_EQ(trace.error().what, path("t"));
    return trace.error().why + " : " + trace.error().todo;
  }
  std::string body_refused(const std::string& lines, std::uint32_t experts = 0) const {
    return refused(kHead + lines, experts);
  }
};

TEST_F(Routing, ReadsAPlainTrace) {
  const auto trace = read(kWhole);
  ASSERT_TRUE(trace) << trace.error().line();
  EXPECT_THAT(trace->layers, ElementsAre(1, 3));
  EXPECT_EQ(trace->experts, 6U);
  EXPECT_EQ(trace->used, 2U);
  EXPECT_THAT(trace->tokens, ElementsAre(RoutingToken{0, 0, 17}, RoutingToken{0, 1, 99}));
  EXPECT_THAT(trace->choice(0, 1), ElementsAre(2, 1));
  EXPECT_THAT(trace->choice(1, 0), ElementsAre(0, 5));
}

TEST_F(Routing, LinesMayEndAsUnderWindows) {
  std::string text;
  for (const char c : kWhole)
    text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const auto trace = read(text);
  ASSERT_TRUE(trace) << trace.error().line();
  EXPECT_THAT(trace->choice(1, 1), ElementsAre(4, 2));
}

TEST_F(Routing, TakesTheNumberOfExpertsAsTold) {
  EXPECT_EQ(read(kWhole, 32)->experts, 32U);
}

TEST_F(Routing, SequencesMayTakeTurns) {
  const auto trace =
      read(std::string(kHead) + "7,5,1,0,1,2\n9,0,1,0,1,2\n7,6,1,0,1,2\n9,1,1,0,1,2\n");
  ASSERT_TRUE(trace) << trace.error().line();
  EXPECT_EQ(trace->tokens.size(), 4U);
}

TEST_F(Routing, NamesTheColumnThatIsCalledOtherwise) {
  EXPECT_THAT(refused("seq,pos,token,layer,e0\n"),
              HasSubstr("line 1: token_id: the column is called 'token'"));
  EXPECT_THAT(refused("seq,pos,token_id,layer,e1\n"), HasSubstr("line 1: e0: "));
  EXPECT_THAT(refused("seq,pos,token_id,layer\n"), HasSubstr("no column for an expert"));
  EXPECT_THAT(refused("\n"), HasSubstr("line 1: seq: "));
  EXPECT_THAT(refused("seq,pos\x1b[31m\n"), HasSubstr("'pos?[31m'"));
}

TEST_F(Routing, NamesAWrongNumberOfColumns) {
  EXPECT_THAT(body_refused("0,0,17,1,3\n"), HasSubstr("line 2: e1: 5 columns where"));
  EXPECT_THAT(body_refused("0,0,17,1,3,0,9\n"), HasSubstr("line 2: end of the line: 7 columns"));
  EXPECT_THAT(body_refused("\n"), HasSubstr("line 2: pos: 1 columns"));
}

TEST_F(Routing, NamesWhatIsNoNumber) {
  EXPECT_THAT(body_refused("0,0,17,1,3,x\n"), HasSubstr("line 2: e1: 'x' is no number"));
  EXPECT_THAT(body_refused("0,0,17,1,3, 1\n"), HasSubstr("line 2: e1: ' 1' is no number"));
  EXPECT_THAT(body_refused("0,-1,17,1,3,1\n"), HasSubstr("line 2: pos: '-1' is no number"));
  EXPECT_THAT(body_refused("0,,17,1,3,1\n"), HasSubstr("line 2: pos: '' is no number"));
  EXPECT_THAT(body_refused("0,0,17,1,3,1\r\r\n"), HasSubstr("line 2: e1: '1?' is no number"));
  EXPECT_THAT(body_refused("0,0,4294967296,1,3,1\n"), HasSubstr("token_id: 4294967296 is more"));
  EXPECT_THAT(body_refused("0,0,1,1,3,65535\n"), HasSubstr("e1: 65535 is more than 65534"));
}

TEST_F(Routing, NamesAnExpertOutOfRange) {
  EXPECT_THAT(refused(kWhole, 5), HasSubstr("line 4: e1: expert 5 of a layer of 5"));
}

TEST_F(Routing, NamesAnExpertThatIsThereTwice) {
  EXPECT_THAT(body_refused("0,0,17,1,3,3\n"),
              HasSubstr("line 2: e1: expert 3 is in the line twice"));
}

TEST_F(Routing, NamesLayersOutOfOrder) {
  EXPECT_THAT(body_refused("0,0,17,3,2,1\n0,0,17,1,3,0\n"), HasSubstr("line 3: layer: 1 behind 3"));
  EXPECT_THAT(body_refused("0,0,17,3,2,1\n0,0,17,3,3,0\n"), HasSubstr("line 3: layer: 3 behind 3"));
  EXPECT_THAT(body_refused("0,0,17,1,2,1\n0,0,17,3,3,0\n0,1,99,3,1,0\n"),
              HasSubstr("line 4: layer: 3 where the first token has layer 1"));
  EXPECT_THAT(body_refused("0,0,17,1,2,1\n0,0,17,3,3,0\n0,1,99,1,1,0\n0,1,99,2,1,0\n"),
              HasSubstr("line 5: layer: 2 where the first token has layer 3"));
}

TEST_F(Routing, NamesATokenThatLacksALine) {
  const std::string start = "0,0,17,1,2,1\n0,0,17,3,3,0\n0,1,99,1,1,0\n";
  EXPECT_THAT(body_refused(start + "0,2,5,1,1,0\n"),
              HasSubstr("line 5: pos: another token begins before layer 3"));
  EXPECT_THAT(body_refused(start + "1,1,99,3,1,0\n"), HasSubstr("line 5: seq: another token"));
  EXPECT_THAT(body_refused(start + "0,1,98,3,1,0\n"), HasSubstr("line 5: token_id: another token"));
  EXPECT_THAT(body_refused(start), HasSubstr("line 4: layer: the file ends before layer 3"));
}

TEST_F(Routing, NamesAPositionThatIsLeftOut) {
  EXPECT_THAT(body_refused("0,0,17,1,2,1\n0,2,17,1,2,1\n"),
              HasSubstr("line 3: pos: 2 where sequence 0 goes on with 1"));
  EXPECT_THAT(body_refused("0,3,17,1,2,1\n1,0,17,1,2,1\n0,3,17,1,2,1\n"),
              HasSubstr("line 4: pos: 3 where sequence 0 goes on with 4"));
}

TEST_F(Routing, RefusesWhatHasNoToken) {
  EXPECT_THAT(refused(""), HasSubstr("is empty"));
  EXPECT_THAT(refused(kHead), HasSubstr("line 1: seq: there is no token"));
  EXPECT_EQ(read_routing(path("none")).error().status, Status::no_such_file);
  EXPECT_EQ(read_routing(folder_).error().status, Status::not_a_file);
}

TEST_F(Routing, RefusesALineWithoutEnd) {
  EXPECT_THAT(refused(kWhole.substr(0, kWhole.size() - 1)),
              HasSubstr("line 5: it does not end with a line break, so the file was cut off"));
  EXPECT_THAT(refused(kHead + std::string(100'000, '1')), HasSubstr("line 2: it is longer than"));
  EXPECT_THAT(refused(kHead + std::string(20'000, '1') + "\n"), HasSubstr("line 2: it is longer"));
}

// ---- Compressed

RoutingTrace sample(std::uint32_t tokens) {
  RoutingTrace trace;
  trace.layers = {0, 1, 2};
  trace.experts = 16;
  trace.used = 2;
  std::uint32_t random = 1;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    trace.tokens.push_back({0, t, t * 7});
    for (int layer = 0; layer < 3; ++layer) {
      random = random * 1664525U + 1013904223U;
      const auto first = static_cast<ExpertId>(random >> 28);
      trace.choices.push_back(first);
      trace.choices.push_back(static_cast<ExpertId>((first + 1 + (random >> 8) % 15) % 16));
    }
  }
  return trace;
}

Result<void> write(const std::string& path, const RoutingTrace& trace) {
  auto writer = RoutingWriter::create(path, trace.experts, trace.used);
  if (!writer) return tl::unexpected(writer.error());
  for (std::size_t t = 0; t < trace.tokens.size(); ++t) {
    for (std::size_t l = 0; l < trace.layers.size(); ++l) {
      auto ok = writer->append({trace.tokens[t], trace.layers[l], trace.choice(t, l)});
      if (!ok) return ok;
    }
  }
  return writer->finish();
}

bool same(const RoutingTrace& a, const RoutingTrace& b) {
  return a.layers == b.layers && a.used == b.used && a.tokens == b.tokens && a.choices == b.choices;
}

TEST_F(Routing, WritesWhatItReadsPlainAndCompressed) {
  const RoutingTrace trace = sample(20'000);  // several blocks of the reader
  for (const char* name : {"t.csv", "t.csv.xz"}) {
    ASSERT_TRUE(write(path(name), trace));
    const auto back = read_routing(path(name), trace.experts);
    ASSERT_TRUE(back) << back.error().line();
    EXPECT_TRUE(same(*back, trace)) << name;
  }
  EXPECT_EQ(get(path("t.csv.xz")).substr(1, 4), "7zXZ");
  EXPECT_LT(get(path("t.csv.xz")).size() * 3, get(path("t.csv")).size());
}

TEST_F(Routing, ReadsXzByContentWhateverItsName) {
  ASSERT_TRUE(write(path("t.xz"), sample(10)));
  std::filesystem::rename(path("t.xz"), path("t"));
  EXPECT_TRUE(read_routing(path("t")));
}

TEST_F(Routing, ReadsXzStreamsThatFollowEachOther) {
  ASSERT_TRUE(write(path("t.xz"), sample(10)));
  const std::string one = get(path("t.xz"));
  // The second begins with a head, which is no row: what matters is that it was looked into.
  EXPECT_THAT(refused(one + one), HasSubstr("line 32: seq: 'seq' is no number"));
  EXPECT_THAT(refused(one + "rest"), HasSubstr("offset "));
}

TEST_F(Routing, RefusesXzThatWasCutOffAnywhere) {
  ASSERT_TRUE(write(path("t.xz"), sample(100)));
  const std::string whole = get(path("t.xz"));
  for (std::size_t size = 0; size < whole.size(); ++size)
    ASSERT_NE(refused(whole.substr(0, size)), "was accepted") << size;
  EXPECT_THAT(refused(whole.substr(0, whole.size() / 2)),
              HasSubstr("the file ends inside the xz stream"));
}

TEST_F(Routing, NoFlippedBitOfAnXzFileGoesUnseen) {
  const RoutingTrace trace = sample(60);
  ASSERT_TRUE(write(path("t.xz"), trace));
  const std::string whole = get(path("t.xz"));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    const auto back = read(flipped);
    if (back) {
      ASSERT_TRUE(same(*back, trace)) << at;
    }
  }
}

TEST_F(Routing, APlainFileThatWasCutOffIsRefusedButAtTheEndOfAToken) {
  const std::size_t head = std::string(kHead).size();
  const std::size_t second_token = kWhole.find("0,1,99");
  for (std::size_t size = 0; size < kWhole.size(); ++size) {
    // A first token that lacks a layer cannot be told from one of a model with fewer layers.
    const bool whole_lines = size > head && kWhole[size - 1] == '\n';
    EXPECT_EQ(read(kWhole.substr(0, size)).has_value(), whole_lines && size <= second_token)
        << size;
  }
}

// ---- The writer

TEST_F(Routing, WriterRefusesWhatNoReaderWouldTake) {
  auto writer = RoutingWriter::create(path("t"), 4, 2);
  ASSERT_TRUE(writer);
  const std::vector<ExpertId> good{0, 3};
  const std::vector<ExpertId> high{0, 4};
  EXPECT_TRUE(writer->append({{0, 0, 1}, 0, good}));
  const auto refused = writer->append({{0, 1, 1}, 0, high});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, Status::internal);
  EXPECT_THAT(refused.error().why, HasSubstr("line 3: e1: expert 4 of a layer of 4"));
  // And says so from then on.
  EXPECT_FALSE(writer->append({{0, 1, 1}, 0, good}));
  EXPECT_FALSE(writer->finish());
}

TEST_F(Routing, WriterLeavesNothingWithoutFinish) {
  {
    auto writer = RoutingWriter::create(path("t"), 4, 2);
    ASSERT_TRUE(writer);
    EXPECT_THAT(files(), ElementsAre("t.part"));
    const auto second = RoutingWriter::create(path("t"), 4, 2);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().why, HasSubstr("another program is writing"));
    EXPECT_FALSE(writer->finish()) << "there is no token";
  }
  EXPECT_THAT(files(), ElementsAre());
}

TEST_F(Routing, WriterReplacesATraceAndNothingElse) {
  ASSERT_TRUE(write(path("t"), sample(3)));
  ASSERT_TRUE(write(path("t"), sample(5)));
  EXPECT_EQ(read_routing(path("t"))->tokens.size(), 5U);
  put(path("novel"), "Call me Ishmael.");
  const auto refused = write(path("novel"), sample(3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, Status::usage);
  EXPECT_EQ(get(path("novel")), "Call me Ishmael.");
  EXPECT_FALSE(write(folder_.string(), sample(3)));
  EXPECT_FALSE(RoutingWriter::create("", 4, 2));
}

TEST_F(Routing, TheKindIsToldByTheFirstBytes) {
  const auto kind = [&](const std::string& bytes) {
    put(path("t"), bytes);
    return *trace_file_kind(path("t"));
  };
  EXPECT_EQ(kind(kWhole), TraceFileKind::routing);
  EXPECT_EQ(kind(std::string("\xfd"
                             "7zXZ\0rest",
                             10)),
            TraceFileKind::routing);
  EXPECT_EQ(kind("RESIDTRC..."), TraceFileKind::chunks);
  EXPECT_EQ(kind("RESID"), TraceFileKind::unknown);
  EXPECT_EQ(kind(""), TraceFileKind::unknown);
  EXPECT_EQ(trace_file_kind(path("none")).error().status, Status::no_such_file);
}

}  // namespace
}  // namespace resid::trace_test

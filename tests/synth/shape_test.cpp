// Dimensions: what is chosen, what is refused, and what the refusal says.

#include "synth/shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace resid {
namespace {

using testing::HasSubstr;

Failure refused(const SynthRequest& request) {
  auto shape = resolve_shape(request);
  if (shape) {
    ADD_FAILURE() << "was accepted";
    return {};
  }
  EXPECT_EQ(shape.error().status, Status::usage);
  EXPECT_FALSE(shape.error().todo.empty());
  return shape.error();
}

TEST(Shape, DefaultsAreValid) {
  for (const SynthArch arch : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    SynthRequest r;
    r.arch = arch;
    auto s = resolve_shape(r);
    ASSERT_TRUE(s) << s.error().line();
    EXPECT_EQ(s->experts > 0, arch == SynthArch::qwen3moe);
  }
}

TEST(Shape, WhatIsGivenIsKept) {
  SynthRequest r;
  r.arch = SynthArch::qwen3moe;
  r.layers = 3;
  r.hidden = 96;
  r.ff = 160;
  r.heads = 6;
  r.kv_heads = 2;
  r.head_dim = 16;
  r.experts = 5;
  r.used = 3;
  r.vocab = 300;
  r.context = 64;
  auto s = resolve_shape(r);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->layers, 3U);
  EXPECT_EQ(s->hidden, 96U);
  EXPECT_EQ(s->ff, 160U);
  EXPECT_EQ(s->heads, 6U);
  EXPECT_EQ(s->kv_heads, 2U);
  EXPECT_EQ(s->head_dim, 16U);
  EXPECT_EQ(s->experts, 5U);
  EXPECT_EQ(s->used, 3U);
  EXPECT_EQ(s->vocab, 300U);
  EXPECT_EQ(s->context, 64U);
}

TEST(Shape, SizeIsHitForEveryArchitectureAndType) {
  const bool ok = rc::check("resolve_shape hits --size", [] {
    SynthRequest r;
    r.arch = *rc::gen::element(SynthArch::qwen3, SynthArch::qwen3moe);
    r.quant = *rc::gen::element(GgufType::q4_0, GgufType::q8_0, GgufType::f16);
    // 8 MiB to 64 GiB, evenly by magnitude.
    const auto magnitude = *rc::gen::inRange(0, 1300);
    r.size = static_cast<std::uint64_t>(8.0 * 1048576.0 * std::exp2(magnitude / 100.0));
    auto s = resolve_shape(r);
    RC_ASSERT(s.has_value());
    const double share = static_cast<double>(data_bytes(*s)) / static_cast<double>(*r.size);
    RC_ASSERT(share > 1 - kSizeTolerance && share < 1 + kSizeTolerance);
    // What was chosen would also be accepted if it were asked for.
    SynthRequest again;
    again.arch = s->arch;
    again.quant = s->quant;
    again.layers = s->layers;
    again.hidden = s->hidden;
    again.ff = s->ff;
    RC_ASSERT(resolve_shape(again).has_value());
  });
  EXPECT_TRUE(ok);
}

TEST(Shape, SizeKeepsTheDimensionsThatAreGiven) {
  SynthRequest r;
  r.size = 100 << 20;
  r.layers = 7;
  r.hidden = 512;
  auto s = resolve_shape(r);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->layers, 7U);
  EXPECT_EQ(s->hidden, 512U);
}

TEST(Shape, DataBytesAreThoseOfTheTensorTable) {
  for (const SynthArch arch : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    SynthRequest r;
    r.arch = arch;
    r.layers = 5;
    r.hidden = 96;
    auto s = resolve_shape(r);
    ASSERT_TRUE(s);
    GgufHeader header;
    add_tensors(header, *s);
    EXPECT_EQ(data_bytes(*s), header.data_bytes());
  }
}

TEST(Refusal, DimensionsOffTheGridNameTheNeighbours) {
  SynthRequest r;
  r.hidden = 100;
  Failure f = refused(r);
  EXPECT_EQ(f.what, "--hidden");
  EXPECT_THAT(f.why, HasSubstr("32"));
  EXPECT_EQ(f.todo, "give 96 or 128");
  r.hidden = 128;
  r.ff = 33;
  f = refused(r);
  EXPECT_EQ(f.what, "--ff");
  EXPECT_EQ(f.todo, "give 32 or 64");
}

TEST(Refusal, DimensionsOutOfRange) {
  SynthRequest r;
  r.layers = 0;
  EXPECT_EQ(refused(r).what, "--layers");
  r.layers = 513;
  EXPECT_EQ(refused(r).what, "--layers");
  r.layers = 1;
  r.hidden = 0;
  EXPECT_EQ(refused(r).what, "--hidden");
  r.hidden = 64;
  r.vocab = 10;
  EXPECT_EQ(refused(r).what, "--vocab");
  r.vocab = 512;
  r.context = 1;
  EXPECT_EQ(refused(r).what, "--context");
}

TEST(Refusal, HeadsThatDoNotFit) {
  SynthRequest r;
  r.heads = 4;
  r.kv_heads = 3;
  Failure f = refused(r);
  EXPECT_EQ(f.what, "--kv-heads");
  EXPECT_EQ(f.todo, "give 2");
  r.kv_heads = 0;
  EXPECT_EQ(refused(r).what, "--kv-heads");
  r.kv_heads.reset();
  r.heads = 3;
  r.head_dim = 24;
  EXPECT_EQ(refused(r).what, "--heads");
  r.head_dim = 7;
  EXPECT_EQ(refused(r).what, "--head-dim");
  r.head_dim = 12;
  EXPECT_EQ(refused(r).what, "--head-dim");
  r.heads = 0;
  r.head_dim.reset();
  EXPECT_EQ(refused(r).what, "--heads");
}

TEST(Refusal, Experts) {
  SynthRequest r;
  r.experts = 8;
  EXPECT_EQ(refused(r).what, "--experts");  // dense
  r.arch = SynthArch::qwen3moe;
  r.used = 9;
  Failure f = refused(r);
  EXPECT_EQ(f.what, "--used");
  EXPECT_EQ(f.todo, "give 1 to 8");
  r.used = 0;
  EXPECT_EQ(refused(r).what, "--used");
  r.used.reset();
  r.experts = 0;
  EXPECT_EQ(refused(r).what, "--experts");
  r.experts = 1025;
  EXPECT_EQ(refused(r).what, "--experts");
}

TEST(Refusal, SizeThatCannotBeReached) {
  SynthRequest r;
  r.size = 1000;
  EXPECT_EQ(refused(r).what, "--size");
  r.size = std::uint64_t{1} << 30;
  r.layers = 1;
  r.hidden = 64;
  r.ff = 64;
  EXPECT_EQ(refused(r).what, "--size");
  r.hidden = 65;
  EXPECT_EQ(refused(r).what, "--hidden");
  r.hidden.reset();
  r.kv_heads = 7;
  r.heads = 8;
  EXPECT_EQ(refused(r).what, "--kv-heads");
}

TEST(Refusal, UnknownNames) {
  auto arch = parse_arch("llama");
  ASSERT_FALSE(arch);
  EXPECT_EQ(arch.error().what, "--arch");
  auto quant = parse_quant("q5_k");
  ASSERT_FALSE(quant);
  EXPECT_EQ(quant.error().what, "--quant");
  EXPECT_FALSE(parse_quant("f32"));  // llama.cpp would load it, but nothing here asks for it
}

}  // namespace
}  // namespace resid

// Weights and vocabulary: what must hold for llama.cpp to make sense of them, and for two machines
// to write the same file.

#include "synth/weights.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <set>

#include "synth/tokenizer.hpp"

namespace resid {
namespace {

// The value of a binary16, straight from its definition.
double from_half(std::uint16_t h) {
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (h >> 10) & 0x1f;
  const int mantissa = h & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

std::uint16_t half_at(const std::vector<std::byte>& bytes, std::size_t at) {
  std::uint16_t h = 0;
  std::memcpy(&h, bytes.data() + at, 2);
  return h;
}

std::vector<double> decode(GgufType type, const std::vector<std::byte>& bytes) {
  std::vector<double> out;
  const GgufBlock block = block_of(type);
  for (std::size_t at = 0; at < bytes.size(); at += block.bytes) {
    if (type == GgufType::f32) {
      float f = 0;
      std::memcpy(&f, bytes.data() + at, 4);
      out.push_back(f);
    } else if (type == GgufType::f16) {
      out.push_back(from_half(half_at(bytes, at)));
    } else {
      const double scale = from_half(half_at(bytes, at));
      for (std::size_t i = 2; i < block.bytes; ++i) {
        const auto b = std::to_integer<int>(bytes[at + i]);
        if (type == GgufType::q4_0) {
          out.push_back(scale * ((b & 15) - 8));
          out.push_back(scale * ((b >> 4) - 8));
        } else {
          out.push_back(scale * static_cast<std::int8_t>(b));
        }
      }
    }
  }
  return out;
}

std::vector<std::byte> make_run(GgufType type, std::uint64_t seed, const char* tensor,
                                std::uint64_t run, double deviation = 0.02) {
  const RandomWeights weights(seed, tensor, type, deviation);
  std::vector<std::byte> bytes(weights.run_bytes(RandomWeights::kRunElements));
  weights.fill(run, bytes);
  return bytes;
}

std::uint64_t fnv(const std::vector<std::byte>& bytes) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const std::byte b : bytes)
    h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3ULL;
  return h;
}

constexpr GgufType kTypes[] = {GgufType::f32, GgufType::f16, GgufType::q4_0, GgufType::q8_0};

TEST(Half, EveryFiniteValueSurvivesTheRoundTrip) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const double value = from_half(static_cast<std::uint16_t>(h));
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_half(value), h);
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  const bool ok = rc::check("to_half picks the nearest", [](std::uint16_t raw, double where) {
    const auto low = static_cast<std::uint16_t>(raw & 0x7fff);
    RC_PRE(low < 0x7bff);  // so that the next one is finite too
    const double a = from_half(low);
    const double b = from_half(static_cast<std::uint16_t>(low + 1));
    const double fraction = std::fabs(where) - std::floor(std::fabs(where));
    const double value = a + (b - a) * fraction;
    const auto up = static_cast<std::uint16_t>(low + 1);
    const std::uint16_t expected =
        value - a < b - value ? low : (value - a > b - value ? up : ((low & 1) == 0 ? low : up));
    RC_ASSERT(to_half(value) == expected);
    RC_ASSERT(to_half(-value) == (expected | 0x8000));
  });
  EXPECT_TRUE(ok);
  for (std::uint16_t low = 0; low < 0x7bff; ++low) {
    const double middle =
        (from_half(low) + from_half(static_cast<std::uint16_t>(low + 1))) / 2;  // exact
    ASSERT_EQ(to_half(middle), (low & 1) == 0 ? low : low + 1);
  }
}

TEST(Half, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(to_half(65519.0), 0x7bff);
  EXPECT_EQ(to_half(65520.0), 0x7c00);
  EXPECT_EQ(to_half(-1e300), 0xfc00);
}

TEST(Weights, HaveMeanZeroAndTheDeviationAskedFor) {
  for (const GgufType type : kTypes) {
    const auto values = decode(type, make_run(type, 3, "t", 0));
    ASSERT_EQ(values.size(), RandomWeights::kRunElements);
    double sum = 0;
    double squares = 0;
    for (const double v : values) {
      ASSERT_TRUE(std::isfinite(v));
      sum += v;
      squares += v * v;
    }
    const double n = static_cast<double>(values.size());
    EXPECT_NEAR(sum / n, 0, 0.02 * 0.03) << static_cast<int>(type);
    EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 0.03) << static_cast<int>(type);
  }
}

TEST(Weights, BytesAreTheSameOnEveryMachine) {
  // Recorded once; a change here changes every synthetic model there is.
  EXPECT_EQ(fnv(make_run(GgufType::f32, 42, "blk.0.ffn_gate_inp.weight", 5)),
            4301330307333917507ULL);
  EXPECT_EQ(fnv(make_run(GgufType::f16, 42, "blk.0.ffn_up.weight", 5)), 12095092787938301794ULL);
  EXPECT_EQ(fnv(make_run(GgufType::q4_0, 42, "blk.0.ffn_up.weight", 5)), 9060965466811401009ULL);
  EXPECT_EQ(fnv(make_run(GgufType::q8_0, 42, "blk.0.ffn_up.weight", 5)), 17811733592957448647ULL);
}

TEST(Weights, DifferBySeedTensorAndRun) {
  for (const GgufType type : kTypes) {
    const std::set<std::uint64_t> hashes{
        fnv(make_run(type, 1, "a", 0)), fnv(make_run(type, 2, "a", 0)),
        fnv(make_run(type, 1, "b", 0)), fnv(make_run(type, 1, "a", 1))};
    EXPECT_EQ(hashes.size(), 4U) << static_cast<int>(type);
  }
}

TEST(Weights, Q8NeverHoldsTheByteThatQuantisersAvoid) {
  const auto bytes = make_run(GgufType::q8_0, 1, "t", 0);
  for (std::size_t at = 0; at < bytes.size(); at += 34) {
    for (std::size_t i = 2; i < 34; ++i)
      ASSERT_NE(bytes[at + i], std::byte{0x80});
  }
}

TEST(Vocabulary, EveryMergeMakesATokenOfTwoTokensAndNoneTwice) {
  for (const std::uint32_t size : {260U, 261U, 300U, 466U, 467U, 512U, 1024U, 20000U, 262144U}) {
    const auto v = SynthVocabulary::make(size);
    ASSERT_EQ(v.tokens.size(), size);
    ASSERT_EQ(v.types.size(), size);
    ASSERT_EQ(v.printable.size(), size);
    ASSERT_EQ(v.merges.size(), size - SynthVocabulary::kSmallest);
    const std::set<std::string> tokens(v.tokens.begin(), v.tokens.end());
    ASSERT_EQ(tokens.size(), size);
    std::set<std::string> made;
    for (const std::string& m : v.merges) {
      const auto blank = m.find(' ', 1);
      ASSERT_NE(blank, std::string::npos);
      const std::string left = m.substr(0, blank);
      const std::string right = m.substr(blank + 1);
      ASSERT_TRUE(tokens.count(left) == 1 && tokens.count(right) == 1) << m;
      ASSERT_TRUE(tokens.count(left + right) == 1) << m;
      ASSERT_TRUE(made.insert(left + right).second) << m;
    }
  }
}

TEST(Vocabulary, ControlTokensComeLastAndAreNotPrintable) {
  const auto v = SynthVocabulary::make(512);
  for (std::uint32_t i = 0; i < 512; ++i)
    EXPECT_EQ(v.types[i], i < 508 ? 1 : 3);
  EXPECT_EQ(v.tokens[v.end_of_text], "<|endoftext|>");
  EXPECT_FALSE(v.printable[v.end_of_text]);
  EXPECT_FALSE(v.printable[0x80]);
  EXPECT_TRUE(v.printable['a']);
  EXPECT_EQ(v.tokens['a'], "a");
  EXPECT_EQ(v.tokens[' '], "\u0120");
}

}  // namespace
}  // namespace resid

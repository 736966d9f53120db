#include "synth/weights.hpp"

#include <bit>
#include <cmath>

#include "base/hash.hpp"

namespace resid {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): one addition and a bijective mix a word; more than random
// enough for weights nobody will train.
class Random {
 public:
  explicit Random(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix(state_);
  }
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

template <class T>
void store(std::byte* out, T value) {
  for (unsigned i = 0; i < sizeof(T); ++i)
    out[i] = static_cast<std::byte>(value >> (8 * i));
}

constexpr std::uint32_t kHalfSteps = 4096;  // distinct values of an f16 weight
constexpr std::uint32_t kScales = 16;       // distinct scales of a quantised block

// Uniform on [-a, a] has deviation a / sqrt(3).
const double kUniform = std::sqrt(3.0);
// Root mean square of -8..7, and of -127..127 with -127 counted twice.
const double kNibble = std::sqrt(21.5);
const double kByte = std::sqrt((2.0 * 690880.0 + 127.0 * 127.0) / 256.0);

// Scales of both signs, 3/4 to 5/4 of the mean. Both signs, because nibbles run from -8 to 7: with
// one sign every weight would have a mean of -d/2, and that common direction would drown the rest
// in a wide model.
std::vector<std::uint16_t> block_scales(double scale) {
  // In 28ths, so that the sum of squares is an exact integer.
  std::uint32_t squares = 0;
  for (std::uint32_t part = 21; part <= 35; part += 2)
    squares += part * part;
  const double unit = scale / std::sqrt(squares / (kScales / 2.0));
  std::vector<std::uint16_t> scales;
  for (std::uint32_t part = 21; part <= 35; part += 2) {
    scales.push_back(to_half(unit * part));
    scales.push_back(to_half(-unit * part));
  }
  return scales;
}

}  // namespace

std::uint16_t to_half(double value) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 48) & 0x8000);
  const double magnitude = std::fabs(value);
  constexpr double kOverflow = 65520.0;  // rounds to infinity
  constexpr double kSmallestNormal = 6.103515625e-05;
  if (!(magnitude < kOverflow)) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < kSmallestNormal) {
    // Multiples of 2^-24. nearbyint rounds ties to even in the default mode; a result of 1024 is
    // the encoding of the smallest normal number.
    return static_cast<std::uint16_t>(
        sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));
  // mantissa is in [1024, 2048]; 2048 carries into the exponent by addition.
  const std::uint32_t encoded = (static_cast<std::uint32_t>(exponent + 14) << 10) + mantissa - 1024;
  return static_cast<std::uint16_t>(sign | encoded);
}

RandomWeights::RandomWeights(std::uint64_t seed, std::string_view tensor, GgufType type,
                             double deviation)
    // Tensors of one file must not share a stream.
    : key_(Random::mix(seed ^ Random::mix(fnv1a(tensor)))), type_(type) {
  switch (type) {
    case GgufType::f32:
      step_ = static_cast<float>(deviation * kUniform / 8388608.0);
      break;
    case GgufType::f16:
      for (std::uint32_t i = 0; i < kHalfSteps; ++i) {
        const double position = (2.0 * i + 1.0) / kHalfSteps - 1.0;  // exact
        halves_.push_back(to_half(position * (deviation * kUniform)));
      }
      break;
    case GgufType::q4_0:
      halves_ = block_scales(deviation / kNibble);
      break;
    case GgufType::q8_0:
      halves_ = block_scales(deviation / kByte);
      break;
  }
}

std::size_t RandomWeights::run_bytes(std::uint64_t elements) const {
  const GgufBlock block = block_of(type_);
  return elements / block.elements * block.bytes;
}

void RandomWeights::fill(std::uint64_t run, std::span<std::byte> out) const {
  Random random(key_ ^ Random::mix(run));
  std::byte* p = out.data();
  std::byte* const end = p + out.size();
  switch (type_) {
    case GgufType::f32:
      for (; p != end; p += 4) {
        const auto steps = static_cast<std::int32_t>(random.next() >> 40) - 8388608;
        store(p, std::bit_cast<std::uint32_t>(static_cast<float>(steps) * step_));
      }
      return;
    case GgufType::f16:
      while (p != end) {
        std::uint64_t word = random.next();
        for (int i = 0; i < 4 && p != end; ++i, p += 2, word >>= 16) {
          store(p, halves_[word % kHalfSteps]);
        }
      }
      return;
    case GgufType::q4_0:
      for (; p != end; p += 18) {
        store(p, halves_[random.next() >> 60]);
        store(p + 2, random.next());
        store(p + 10, random.next());
      }
      return;
    case GgufType::q8_0:
      for (; p != end; p += 34) {
        store(p, halves_[random.next() >> 60]);
        for (int i = 0; i < 4; ++i)
          store(p + 2 + 8 * i, random.next());
        // -128 is outside what a quantiser writes; kernels may rely on that.
        for (int i = 2; i < 34; ++i) {
          if (p[i] == std::byte{0x80}) p[i] = std::byte{0x81};
        }
      }
      return;
  }
}

}  // namespace resid

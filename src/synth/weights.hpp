#pragma once
// Random weights, block by block, the same on every machine.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "synth/gguf_writer.hpp"

namespace resid {

// The weights of one tensor: independent, mean zero, of the given standard deviation. Any run of
// weights can be made on its own; the bytes depend on (seed, tensor name, type, deviation) alone.
// Integer arithmetic, correctly rounded IEEE operations and no fused ones, so no machine differs.
class RandomWeights {
 public:
  // Weights are made in runs of this many; the last of a tensor may be shorter.
  static constexpr std::uint64_t kRunElements = 32768;

  RandomWeights(std::uint64_t seed, std::string_view tensor, GgufType type, double deviation);

  // Bytes of a run of `elements` weights.
  std::size_t run_bytes(std::uint64_t elements) const;
  // Fills `out` with run number `run`; out.size() = run_bytes(elements of that run).
  void fill(std::uint64_t run, std::span<std::byte> out) const;

 private:
  std::uint64_t key_;
  GgufType type_;
  float step_ = 0;                     // f32: value of one step
  std::vector<std::uint16_t> halves_;  // f16: the values; q4_0, q8_0: the block scales
};

// IEEE binary16 nearest to `value`, ties to even.
std::uint16_t to_half(double value);

}  // namespace resid

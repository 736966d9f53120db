#pragma once
// The dimensions of a synthetic model: what the caller fixed, what is chosen for it, and whether
// llama.cpp would accept the whole.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.hpp"
#include "synth/gguf_writer.hpp"

namespace resid {

enum class SynthArch : std::uint8_t { qwen3, qwen3moe };

std::string_view name(SynthArch arch);
std::string_view name(GgufType quant);
Result<SynthArch> parse_arch(std::string_view text);
Result<GgufType> parse_quant(std::string_view text);

// A complete and valid set of dimensions; made by resolve_shape().
struct SynthShape {
  SynthArch arch = SynthArch::qwen3;
  GgufType quant = GgufType::q4_0;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t ff = 0;  // of the whole layer, or of one expert
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t experts = 0;
  std::uint32_t used = 0;
  std::uint32_t vocab = 0;
  std::uint32_t context = 0;
};

// What was asked for; empty fields are chosen.
struct SynthRequest {
  SynthArch arch = SynthArch::qwen3;
  GgufType quant = GgufType::q4_0;
  std::optional<std::uint64_t> size;  // bytes of the whole file, hit within kSizeTolerance
  std::optional<std::uint32_t> layers, hidden, ff, heads, kv_heads, head_dim, experts, used, vocab,
      context;
};

inline constexpr double kSizeTolerance = 0.05;

// Fills in and checks. Failures are Status::usage; `what` is the option at fault and `todo` a value
// that would do.
Result<SynthShape> resolve_shape(const SynthRequest& request);

// Bytes of the tensor data of a model of this shape, without the header.
std::uint64_t data_bytes(const SynthShape& shape);

// Adds the tensors of `shape`, in the order in which llama.cpp's converters and its quantiser write
// them: output and embedding, then layer by layer, by name inside a layer.
void add_tensors(GgufHeader& header, const SynthShape& shape);

}  // namespace resid

#include "synth/synth.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "synth/gguf_writer.hpp"
#include "synth/output_file.hpp"
#include "synth/tokenizer.hpp"
#include "synth/weights.hpp"

namespace resid {
namespace {

// llama.cpp's number for the file's main type.
std::uint32_t file_type(GgufType quant) {
  switch (quant) {
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q8_0:
      return 7;
    case GgufType::f32:
      return 0;
  }
  return 0;
}

GgufHeader make_header(const SynthShape& s, const SynthVocabulary& vocabulary, std::uint64_t seed) {
  GgufHeader h;
  const std::string arch(name(s.arch));
  const auto key = [&](const char* suffix) { return arch + "." + suffix; };
  h.add_string("general.architecture", arch);
  h.add_string("general.type", "model");
  h.add_string("general.name", fmt::format("synth-{}-{}", arch, name(s.quant)));
  h.add_string("general.description",
               fmt::format("Random weights made by residctl synth, seed {}. The text it writes "
                           "means nothing.",
                           seed));
  h.add_u32("general.file_type", file_type(s.quant));
  h.add_u32("general.quantization_version", 2);
  h.add_u32(key("block_count"), s.layers);
  h.add_u32(key("context_length"), s.context);
  h.add_u32(key("embedding_length"), s.hidden);
  h.add_u32(key("feed_forward_length"), s.arch == SynthArch::qwen3moe ? s.ff * s.used : s.ff);
  h.add_u32(key("attention.head_count"), s.heads);
  h.add_u32(key("attention.head_count_kv"), s.kv_heads);
  h.add_u32(key("attention.key_length"), s.head_dim);
  h.add_u32(key("attention.value_length"), s.head_dim);
  h.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-6F);
  h.add_f32(key("rope.freq_base"), 10000.0F);
  h.add_u32(key("vocab_size"), s.vocab);
  if (s.arch == SynthArch::qwen3moe) {
    h.add_u32(key("expert_count"), s.experts);
    h.add_u32(key("expert_used_count"), s.used);
    h.add_u32(key("expert_feed_forward_length"), s.ff);
  }
  h.add_string("tokenizer.ggml.model", "gpt2");
  h.add_string("tokenizer.ggml.pre", "gpt-2");
  h.add_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  h.add_i32s("tokenizer.ggml.token_type", vocabulary.types);
  h.add_strings("tokenizer.ggml.merges", vocabulary.merges);
  h.add_u32("tokenizer.ggml.bos_token_id", vocabulary.end_of_text);
  h.add_u32("tokenizer.ggml.eos_token_id", vocabulary.end_of_text);
  h.add_u32("tokenizer.ggml.padding_token_id", vocabulary.padding);
  h.add_bool("tokenizer.ggml.add_bos_token", false);
  add_tensors(h, s);
  return h;
}

// Standard deviation that keeps activations near one. The norms are ones, so every matrix sees
// inputs of unit size and 1/sqrt(inputs) gives outputs of unit size. The embedding is looked up,
// not multiplied: its rows are the residual stream's start and are of unit size themselves.
double deviation(const GgufTensor& tensor) {
  if (tensor.name == "token_embd.weight") return 1.0;
  double gain = 1.0;
  // What attention adds is an average, and smaller than its terms; with this the context weighs
  // about as much as the last token.
  if (tensor.name.ends_with("attn_output.weight")) gain = 3.0;
  // Logits a few units apart, so that sampling has a preference.
  if (tensor.name == "output.weight") gain = 3.0;
  return gain / std::sqrt(static_cast<double>(tensor.dims[0]));
}

// Norms are ones, but for that of the queries: with ones there, attention to random keys is nearly
// uniform, the average over the context hardly changes from token to token, and greedy decoding
// soon repeats one token. Sharper attention picks other tokens at every position.
float norm_weight(const GgufTensor& tensor) {
  return tensor.name.ends_with("attn_q_norm.weight") ? 8.0F : 1.0F;
}

class Writer {
 public:
  Writer(OutputFile& file, const SynthOptions& options, std::uint64_t total)
      : file_(file), options_(options), total_(total) {}

  Result<void> header(const std::string& bytes) { return file_.append(bytes_of(bytes)); }

  // `mute`: rows of zeros instead of weights; may be empty.
  Result<void> tensor(const GgufTensor& t, std::uint64_t padded, const std::vector<bool>& mute) {
    std::uint64_t left = 1;
    for (const std::uint64_t d : t.dims)
      left *= d;
    const bool norm = t.dims.size() == 1;
    const RandomWeights weights(options_.seed, t.name, t.type, deviation(t));
    for (std::uint64_t run = 0; left > 0; ++run) {
      const std::uint64_t n = std::min(left, RandomWeights::kRunElements);
      auto out = file_.room(weights.run_bytes(n));
      if (!out) return tl::unexpected(out.error());
      if (norm) {
        constant(*out, norm_weight(t));
      } else {
        weights.fill(run, *out);
        if (!mute.empty()) zero_rows(t, run, *out, mute);
      }
      left -= n;
      if (auto ok = tick(); !ok) return ok;
    }
    auto out = file_.room(padded - t.bytes);
    if (!out) return tl::unexpected(out.error());
    std::fill(out->begin(), out->end(), std::byte{0});
    return {};
  }

 private:
  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  }

  static void constant(std::span<std::byte> out, float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::byte>(bits >> (8 * (i % 4)));  // little endian
    }
  }

  // A block of zero bytes is a block of zero weights in every type used here.
  static void zero_rows(const GgufTensor& t, std::uint64_t run, std::span<std::byte> out,
                        const std::vector<bool>& mute) {
    const GgufBlock block = block_of(t.type);
    std::uint64_t element = run * RandomWeights::kRunElements;
    for (std::size_t at = 0; at < out.size(); at += block.bytes, element += block.elements) {
      if (!mute[element / t.dims[0]]) continue;
      std::memset(out.data() + at, 0, block.bytes);
    }
  }

  Result<void> tick() {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
      return fail(Status::write_failed, "synth", "interrupted", "nothing was written; start again");
    }
    constexpr std::uint64_t kStep = std::uint64_t{16} << 20;
    if (options_.progress && file_.written() >= next_report_) {
      options_.progress(file_.written(), total_);
      next_report_ = file_.written() + kStep;
    }
    return {};
  }

  OutputFile& file_;
  const SynthOptions& options_;
  std::uint64_t total_;
  std::uint64_t next_report_ = 0;
};

}  // namespace

Result<SynthReport> write_synth(const SynthShape& shape, const std::string& path,
                                const SynthOptions& options) {
  const SynthVocabulary vocabulary = SynthVocabulary::make(shape.vocab);
  const GgufHeader header = make_header(shape, vocabulary, options.seed);
  const std::string head = header.bytes();

  SynthReport report;
  report.header_bytes = head.size();
  report.file_bytes = head.size() + header.data_bytes();
  report.tensors = static_cast<std::uint32_t>(header.tensors().size());

  // Tokens that are no plain text never win the greedy choice: their logit is exactly zero, and the
  // largest of the others is not below that. So a run is never cut short by an end-of-text token,
  // and its output is readable.
  std::vector<bool> mute = vocabulary.printable;
  mute.flip();

  auto file = OutputFile::create(path, report.file_bytes, options.replace);
  if (!file) return tl::unexpected(file.error());
  Writer writer(*file, options, report.file_bytes);
  if (auto ok = writer.header(head); !ok) return tl::unexpected(ok.error());
  for (const GgufTensor& t : header.tensors()) {
    std::uint64_t elements = 1;
    for (const std::uint64_t d : t.dims)
      elements *= d;
    report.parameters += elements;
    const bool output = t.name == "output.weight";
    if (auto ok = writer.tensor(t, header.padded(t.bytes), output ? mute : std::vector<bool>{});
        !ok) {
      return tl::unexpected(ok.error());
    }
  }
  if (auto ok = file->finish(); !ok) return tl::unexpected(ok.error());
  if (options.progress) options.progress(report.file_bytes, report.file_bytes);
  return report;
}

}  // namespace resid

#include "synth/shape.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/units.hpp"
#include "synth/tokenizer.hpp"

namespace resid {
namespace {

// Every quantised row is a whole number of blocks; f16 models keep to the same grid so that one
// shape can be had in every quantisation.
constexpr std::uint32_t kGrid = 32;
// Limits of llama.cpp (LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS), and of sense.
constexpr std::uint32_t kMaxLayers = 512;
constexpr std::uint32_t kMaxExperts = 1024;
constexpr std::uint32_t kMaxHidden = 65536;
constexpr std::uint32_t kMaxFf = 1048576;
constexpr std::uint32_t kMaxContext = 1048576;

constexpr std::uint32_t kDefaultLayers = 4;
constexpr std::uint32_t kDefaultHidden = 256;
constexpr std::uint32_t kDefaultVocab = 1024;
constexpr std::uint32_t kDefaultExperts = 32;
// The cache of keys and values takes memory in proportion; enough for a test's prompt and answer.
constexpr std::uint32_t kDefaultContext = 2048;

constexpr std::array<std::uint32_t, 17> kWidths{
    64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288};

tl::unexpected<Failure> wrong(std::string_view option, std::string why, std::string todo) {
  return fail(Status::usage, std::string(option), std::move(why), std::move(todo));
}

std::uint32_t grid_down(std::uint32_t n) {
  return std::max(kGrid, n / kGrid * kGrid);
}

Result<void> check_range(std::string_view option, std::uint32_t value, std::uint32_t low,
                         std::uint32_t high) {
  if (value >= low && value <= high) return {};
  return wrong(option, fmt::format("{} is out of range", value),
               fmt::format("give {} to {}", low, high));
}

Result<void> check_grid(std::string_view option, std::uint32_t value, std::uint32_t high) {
  if (auto ok = check_range(option, value, kGrid, high); !ok) return ok;
  if (value % kGrid == 0) return {};
  const std::uint32_t below = grid_down(value);
  return wrong(option,
               fmt::format("{} is not a multiple of {}, the quantisation block", value, kGrid),
               fmt::format("give {} or {}", below, below + kGrid));
}

// The largest divisor of `n` that is at most `limit`.
std::uint32_t divisor(std::uint32_t n, std::uint32_t limit) {
  for (std::uint32_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

std::uint32_t default_head_dim(std::uint32_t hidden) {
  if (hidden >= 1024 && hidden % 128 == 0) return 128;
  return hidden % 64 == 0 ? 64 : 32;
}

std::uint32_t default_ff(SynthArch arch, std::uint32_t hidden) {
  // The proportions of the published models of these architectures.
  return arch == SynthArch::qwen3 ? 3 * hidden : grid_down(hidden * 3 / 8);
}

// Fills what is not fixed, without judging it.
SynthShape fill(const SynthRequest& r, std::uint32_t layers, std::uint32_t hidden) {
  SynthShape s;
  s.arch = r.arch;
  s.quant = r.quant;
  s.layers = layers;
  s.hidden = hidden;
  s.ff = r.ff.value_or(default_ff(r.arch, hidden));
  if (r.head_dim) {
    s.head_dim = *r.head_dim;
  } else if (r.heads && *r.heads != 0 && hidden % *r.heads == 0) {
    s.head_dim = hidden / *r.heads;
  } else {
    s.head_dim = default_head_dim(hidden);
  }
  s.heads = r.heads.value_or(s.head_dim == 0 ? 1 : std::max(1U, hidden / s.head_dim));
  s.kv_heads = r.kv_heads.value_or(divisor(s.heads, std::max(1U, s.heads / 4)));
  if (r.arch == SynthArch::qwen3moe) {
    s.experts = r.experts.value_or(kDefaultExperts);
    s.used = r.used.value_or(std::clamp(s.experts / 8, 1U, 8U));
  }
  s.vocab = r.vocab.value_or(kDefaultVocab);
  s.context = r.context.value_or(kDefaultContext);
  return s;
}

Result<void> check(const SynthShape& s) {
  if (auto ok = check_range("--layers", s.layers, 1, kMaxLayers); !ok) return ok;
  if (auto ok = check_grid("--hidden", s.hidden, kMaxHidden); !ok) return ok;
  if (auto ok = check_grid("--ff", s.ff, kMaxFf); !ok) return ok;
  if (auto ok = check_range("--heads", s.heads, 1, 1024); !ok) return ok;
  if (auto ok = check_range("--head-dim", s.head_dim, 8, 1024); !ok) return ok;
  if (s.head_dim % 8 != 0) {
    return wrong("--head-dim", fmt::format("{} is not a multiple of 8", s.head_dim),
                 fmt::format("give {} or {}", s.head_dim / 8 * 8, s.head_dim / 8 * 8 + 8));
  }
  const std::uint64_t query = std::uint64_t{s.heads} * s.head_dim;
  if (query % kGrid != 0 || query > kMaxHidden) {
    return wrong(
        "--heads",
        fmt::format("{} heads of {} make {} columns, which must be a multiple of {} and at "
                    "most {}",
                    s.heads, s.head_dim, query, kGrid, kMaxHidden),
        "give --head-dim 32, 64 or 128");
  }
  if (s.kv_heads == 0 || s.kv_heads > s.heads || s.heads % s.kv_heads != 0) {
    return wrong("--kv-heads", fmt::format("{} does not divide --heads {}", s.kv_heads, s.heads),
                 fmt::format("give {}", divisor(s.heads, std::max(1U, s.kv_heads))));
  }
  if (s.arch == SynthArch::qwen3moe) {
    if (auto ok = check_range("--experts", s.experts, 1, kMaxExperts); !ok) return ok;
    if (s.used == 0 || s.used > s.experts) {
      return wrong("--used", fmt::format("{} of {} experts cannot be used", s.used, s.experts),
                   fmt::format("give 1 to {}", s.experts));
    }
  }
  if (auto ok =
          check_range("--vocab", s.vocab, SynthVocabulary::kSmallest, SynthVocabulary::kLargest);
      !ok) {
    return ok;
  }
  return check_range("--context", s.context, 32, kMaxContext);
}

// Names, types and dimensions, one after another.
template <class Visit>
void each_tensor(const SynthShape& s, Visit&& visit) {
  using Dims = std::vector<std::uint64_t>;
  const std::uint64_t query = std::uint64_t{s.heads} * s.head_dim;
  const std::uint64_t key = std::uint64_t{s.kv_heads} * s.head_dim;
  visit("output.weight", s.quant, Dims{s.hidden, s.vocab});
  visit("output_norm.weight", GgufType::f32, Dims{s.hidden});
  visit("token_embd.weight", s.quant, Dims{s.hidden, s.vocab});
  for (std::uint32_t i = 0; i < s.layers; ++i) {
    const auto put = [&](const char* part, GgufType type, Dims dims) {
      visit(fmt::format("blk.{}.{}.weight", i, part), type, std::move(dims));
    };
    put("attn_k", s.quant, {s.hidden, key});
    put("attn_k_norm", GgufType::f32, {s.head_dim});
    put("attn_norm", GgufType::f32, {s.hidden});
    put("attn_output", s.quant, {query, s.hidden});
    put("attn_q", s.quant, {s.hidden, query});
    put("attn_q_norm", GgufType::f32, {s.head_dim});
    put("attn_v", s.quant, {s.hidden, key});
    if (s.arch == SynthArch::qwen3moe) {
      put("ffn_down_exps", s.quant, {s.ff, s.hidden, s.experts});
      put("ffn_gate_exps", s.quant, {s.hidden, s.ff, s.experts});
      put("ffn_gate_inp", GgufType::f32, {s.hidden, s.experts});
      put("ffn_norm", GgufType::f32, {s.hidden});
      put("ffn_up_exps", s.quant, {s.hidden, s.ff, s.experts});
    } else {
      put("ffn_down", s.quant, {s.ff, s.hidden});
      put("ffn_gate", s.quant, {s.hidden, s.ff});
      put("ffn_norm", GgufType::f32, {s.hidden});
      put("ffn_up", s.quant, {s.hidden, s.ff});
    }
  }
}

// The header's share: tokens and merges dominate it, at about this many bytes a token, and every
// layer's tensor table. An estimate; the tolerance covers the rest.
std::uint64_t file_estimate(const SynthShape& s) {
  return data_bytes(s) + std::uint64_t{s.vocab} * 31 + std::uint64_t{s.layers} * 12 * 70 + 2048;
}

double distance(std::uint64_t have, std::uint64_t want) {
  return std::fabs(static_cast<double>(have) / static_cast<double>(want) - 1.0);
}

// Bytes that one more step of kGrid in --ff adds to the file.
std::uint64_t ff_step(const SynthShape& s) {
  const GgufBlock block = block_of(s.quant);
  const std::uint64_t weights =
      std::uint64_t{3} * kGrid * s.hidden * std::max(1U, s.experts) * s.layers;
  return weights / block.elements * block.bytes;
}

// Layers for one width that come nearest to `want` with --ff as it is.
std::uint32_t fit_layers(const SynthRequest& r, std::uint32_t hidden, std::uint64_t want) {
  const std::uint64_t one = file_estimate(fill(r, 1, hidden));
  const std::uint64_t per_layer = file_estimate(fill(r, 2, hidden)) - one;
  const std::uint64_t rest = want > one ? want - one : 0;
  return 1 + static_cast<std::uint32_t>(
                 std::min<std::uint64_t>((rest + per_layer / 2) / per_layer, kMaxLayers - 1));
}

// Stretches --ff to what is still missing.
SynthShape fit_ff(const SynthRequest& r, std::uint32_t layers, std::uint32_t hidden,
                  std::uint64_t want) {
  SynthShape s = fill(r, layers, hidden);
  if (r.ff) return s;
  const auto step = static_cast<double>(ff_step(s));
  const double missing = static_cast<double>(want) - static_cast<double>(file_estimate(s));
  const double steps = std::nearbyint(missing / step) + s.ff / kGrid;
  s.ff = static_cast<std::uint32_t>(std::clamp(steps, 1.0, double{kMaxFf} / kGrid)) * kGrid;
  return s;
}

// The depth that published models of this width have, roughly.
double usual_layers(std::uint32_t hidden) {
  return 6.0 + hidden / 128.0;
}

// How far a shape is from what was asked for and from the usual proportions. A depth or width that
// is off by a factor of e weighs as much as a size that is off by half of the tolerance; a size
// near the edge of the tolerance or beyond is taken only when there is no other.
double score_of(const SynthRequest& r, const SynthShape& s, std::uint64_t want) {
  const double miss = distance(file_estimate(s), want) / kSizeTolerance;
  double score = 2.0 * miss + (miss > 0.8 ? 1000.0 : 0.0);
  if (!r.ff) score += std::fabs(std::log(1.0 * s.ff / default_ff(s.arch, s.hidden)));
  if (!r.layers) score += std::fabs(std::log(s.layers / usual_layers(s.hidden)));
  return score;
}

Result<SynthShape> fit_size(const SynthRequest& r) {
  const std::uint64_t want = *r.size;
  std::vector<std::uint32_t> widths(kWidths.begin(), kWidths.end());
  if (r.hidden) widths = {*r.hidden};
  SynthShape best;
  double best_score = -1;
  for (const std::uint32_t hidden : widths) {
    // Experts make --ff a coarse measure; a few layers more or fewer often fit better.
    constexpr std::uint32_t kAround = 8;
    const std::uint32_t middle = r.layers ? *r.layers : fit_layers(r, hidden, want);
    const std::uint32_t around = r.layers ? 0 : kAround;
    const std::uint32_t low = middle > around ? middle - around : std::min(middle, 1U);
    const std::uint32_t high = std::min(middle + around, std::max(middle, kMaxLayers));
    for (std::uint32_t layers = low; layers <= high; ++layers) {
      const SynthShape s = fit_ff(r, layers, hidden, want);
      if (auto ok = check(s); !ok) {
        if (r.hidden) return tl::unexpected(ok.error());
        continue;
      }
      const double score = score_of(r, s, want);
      if (best_score >= 0 && score >= best_score) continue;
      best_score = score;
      best = s;
    }
  }
  if (best_score < 0) {
    // No width suits what was fixed: say why for the most ordinary one.
    return tl::unexpected(check(fit_ff(r, r.layers.value_or(1), kDefaultHidden, want)).error());
  }
  if (distance(file_estimate(best), want) > kSizeTolerance) {
    return wrong("--size",
                 fmt::format("{} cannot be reached; the nearest is {}", format_bytes(want),
                             format_bytes(file_estimate(best))),
                 "leave --layers, --hidden or --ff open, or choose another --vocab");
  }
  return best;
}

}  // namespace

std::string_view name(SynthArch arch) {
  return arch == SynthArch::qwen3 ? "qwen3" : "qwen3moe";
}

std::string_view name(GgufType quant) {
  switch (quant) {
    case GgufType::f32:
      return "f32";
    case GgufType::f16:
      return "f16";
    case GgufType::q4_0:
      return "q4_0";
    case GgufType::q8_0:
      return "q8_0";
  }
  return "?";
}

Result<SynthArch> parse_arch(std::string_view text) {
  for (const SynthArch a : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    if (text == name(a)) return a;
  }
  return wrong("--arch", fmt::format("'{}' is not known", text), "give qwen3 or qwen3moe");
}

Result<GgufType> parse_quant(std::string_view text) {
  for (const GgufType q : {GgufType::q4_0, GgufType::q8_0, GgufType::f16}) {
    if (text == name(q)) return q;
  }
  return wrong("--quant", fmt::format("'{}' is not known", text), "give q4_0, q8_0 or f16");
}

Result<SynthShape> resolve_shape(const SynthRequest& request) {
  if (request.arch == SynthArch::qwen3 && (request.experts || request.used)) {
    return wrong(request.experts ? "--experts" : "--used", "qwen3 has no experts",
                 "add --arch qwen3moe, or leave it out");
  }
  if (request.size) return fit_size(request);
  SynthShape s = fill(request, request.layers.value_or(kDefaultLayers),
                      request.hidden.value_or(kDefaultHidden));
  if (auto ok = check(s); !ok) return tl::unexpected(ok.error());
  return s;
}

std::uint64_t data_bytes(const SynthShape& shape) {
  GgufHeader header;
  SynthShape one = shape;
  one.layers = 1;
  add_tensors(header, one);
  const std::uint64_t with_one = header.data_bytes();
  const std::uint64_t layer = with_one - header.tensors()[3].offset;
  return with_one + (shape.layers - 1) * layer;
}

void add_tensors(GgufHeader& header, const SynthShape& shape) {
  each_tensor(shape, [&](std::string tensor, GgufType type, std::vector<std::uint64_t> dims) {
    header.add_tensor(std::move(tensor), type, std::move(dims));
  });
}

}  // namespace resid

#include "synth/synth.hpp"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/progress.hpp"

namespace resid::cli {
namespace {

struct Options {
  std::string arch = "qwen3";
  std::string quant = "q4_0";
  std::optional<std::string> size;
  std::optional<std::uint32_t> layers, hidden, ff, heads, kv_heads, head_dim, experts, used, vocab,
      context;
  std::uint64_t seed = 0;
  bool force = false;
  std::string out;
};

Result<SynthShape> shape_of(const Options& o) {
  SynthRequest request;
  auto arch = parse_arch(o.arch);
  if (!arch) return tl::unexpected(arch.error());
  auto quant = parse_quant(o.quant);
  if (!quant) return tl::unexpected(quant.error());
  request.arch = *arch;
  request.quant = *quant;
  if (o.size) {
    auto bytes = parse_bytes(*o.size, "--size");
    if (!bytes) return tl::unexpected(bytes.error());
    request.size = *bytes;
  }
  request.layers = o.layers;
  request.hidden = o.hidden;
  request.ff = o.ff;
  request.heads = o.heads;
  request.kv_heads = o.kv_heads;
  request.head_dim = o.head_dim;
  request.experts = o.experts;
  request.used = o.used;
  request.vocab = o.vocab;
  request.context = o.context;
  return resolve_shape(request);
}

void print_json(const Options& o, const SynthShape& s, const SynthReport& r, double seconds) {
  nlohmann::ordered_json out{{"schema", 1},
                             {"path", o.out},
                             {"arch", name(s.arch)},
                             {"quant", name(s.quant)},
                             {"seed", o.seed},
                             {"layers", s.layers},
                             {"hidden", s.hidden},
                             {"ff", s.ff},
                             {"heads", s.heads},
                             {"kv_heads", s.kv_heads},
                             {"head_dim", s.head_dim},
                             {"experts", s.experts},
                             {"used", s.used},
                             {"vocab", s.vocab},
                             {"context", s.context},
                             {"parameters", r.parameters},
                             {"tensors", r.tensors},
                             {"header_bytes", r.header_bytes},
                             {"bytes", r.file_bytes},
                             {"wall_s", seconds}};
  fmt::print("{}\n", out.dump(2));
}

void print_text(const Options& o, const SynthShape& s, const SynthReport& r, double seconds) {
  fmt::print("{}: {} {}, {}, {:.1f} million parameters, written in {:.1f} s\n", o.out, name(s.arch),
             name(s.quant), format_bytes(r.file_bytes), static_cast<double>(r.parameters) / 1e6,
             seconds);
  fmt::print("  layers {}, hidden {}, ff {}, heads {} ({} for keys and values) of {}, vocab {}\n",
             s.layers, s.hidden, s.ff, s.heads, s.kv_heads, s.head_dim, s.vocab);
  if (s.experts > 0) fmt::print("  experts {}, of which {} are used\n", s.experts, s.used);
}

Result<int> act(const Options& o, const Context& context) {
  auto shape = shape_of(o);
  if (!shape) return tl::unexpected(shape.error());
  const std::uint64_t start = now_ns();
  StopSignals signals;
  Progress progress(o.out);
  SynthOptions options;
  options.seed = o.seed;
  options.replace = o.force;
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  options.stop = &signals.flag();
  auto report = write_synth(*shape, o.out, options);
  if (!report) {
    signals.resume_default();
    return tl::unexpected(report.error());
  }
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  context.json ? print_json(o, *shape, *report, seconds) : print_text(o, *shape, *report, seconds);
  return 0;
}

}  // namespace

void add_synth(Frame& frame) {
  auto o = std::make_shared<Options>();
  Verb& verb = frame.add("synth", "Write a random-weight GGUF model that llama.cpp loads");
  CLI::App& app = verb.app();
  app.add_option("OUT", o->out, "File to write")->required();
  app.add_option("--arch", o->arch, "Architecture: dense or mixture of experts")
      ->type_name("{qwen3,qwen3moe}")
      ->capture_default_str();
  app.add_option("--quant", o->quant, "Type of the weights")
      ->type_name("{q4_0,q8_0,f16}")
      ->capture_default_str();
  app.add_option("--size", o->size, "Choose the open dimensions so that the file has this size")
      ->type_name("SIZE");
  app.add_option("--layers", o->layers, "Layers")->type_name("N");
  app.add_option("--hidden", o->hidden, "Width of the residual stream")->type_name("N");
  app.add_option("--ff", o->ff, "Width of the feed-forward part (of one expert)")->type_name("N");
  app.add_option("--heads", o->heads, "Attention heads")->type_name("N");
  app.add_option("--kv-heads", o->kv_heads, "Heads of keys and values")->type_name("N");
  app.add_option("--head-dim", o->head_dim, "Width of a head")->type_name("N");
  app.add_option("--experts", o->experts, "Experts a layer (qwen3moe)")->type_name("N");
  app.add_option("--used", o->used, "Experts used for a token (qwen3moe)")->type_name("N");
  app.add_option("--vocab", o->vocab, "Tokens in the vocabulary")->type_name("N");
  app.add_option("--context", o->context, "Context length the model claims")->type_name("N");
  app.add_option("--seed", o->seed, "Same seed and dimensions, same bytes")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--force", o->force, "Replace OUT if it exists");
  verb.example("residctl synth --size 1GiB big.gguf", "a dense model of about 1 GiB in q4_0");
  verb.example(
      "residctl synth --arch qwen3moe --layers 8 --hidden 1024 --ff 384 --experts 64 --used 8 "
      "--seed 7 moe.gguf",
      "a mixture of experts of exactly these dimensions");
  verb.action([o](const Context& context) { return act(*o, context); });
}

}  // namespace resid::cli

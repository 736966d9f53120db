#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/cli.hpp"
#include "cli/expert_usage.hpp"
#include "cli/model_summary.hpp"

namespace resid::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name(Format format) {
  switch (format) {
    case Format::gguf:
      return "gguf";
    case Format::safetensors:
      return "safetensors";
    case Format::raw:
      return "raw";
  }
  return "raw";
}

Json json_of(const Share& s) {
  return {{"tensors", s.tensors}, {"bytes", s.bytes}, {"chunks", s.chunks}};
}

Json json_of(const FileSummary& f) {
  return {{"bytes", f.bytes},
          {"metadata_bytes", f.metadata_bytes},
          {"tensor_bytes", f.tensor_bytes},
          {"padding_bytes", f.padding_bytes},
          {"tensors", f.tensors},
          {"chunks", f.chunks}};
}

Json tensors_json(const Model& model) {
  Json out = Json::array();
  for (std::size_t file = 0; file < model.files.size(); ++file) {
    for (const Tensor& t : model.files[file].tensors) {
      out.push_back({{"name", t.name},
                     {"file", file},
                     {"type", t.type},
                     {"dims", t.dims},
                     {"offset", t.offset},
                     {"bytes", t.bytes},
                     {"layer", t.layer == kNoLayer ? Json(nullptr) : Json(t.layer)},
                     {"role", resid::name(t.role)},
                     {"experts", t.experts}});
    }
  }
  return out;
}

void print_json(const Model& model, const ModelSummary& s, bool list, const FoundUsage* usage) {
  const ModelFile& first = model.files.front();
  Json out{{"schema", 1},
           {"format", name(first.format)},
           {"version", first.version},
           {"architecture", first.architecture},
           {"name", first.model_name},
           {"layers", first.layers},
           {"experts", first.experts},
           {"experts_used", first.experts_used},
           {"alignment", first.alignment},
           {"totals", json_of(s.total)},
           {"chunks",
            {{"count", s.total.chunks},
             {"chunk_max", s.chunk_max},
             {"largest", s.largest_chunk},
             {"seams", s.seams}}}};
  for (const FileSummary& f : s.files) {
    Json file{{"path", f.path}};
    file.update(json_of(f));
    out["files"].push_back(std::move(file));
  }
  for (const auto& [type, share] : s.types) {
    out["quantisation"][type] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
  }
  for (const auto& [role, share] : s.roles) {
    out["roles"][std::string(resid::name(role))] = json_of(share);
  }
  out["by_layer"] = Json::array();
  for (const auto& [layer, share] : s.layers) {
    Json entry{{"layer", layer == kNoLayer ? Json(nullptr) : Json(layer)}};
    entry.update(json_of(share));
    entry["expert_bytes"] = share.expert_bytes;
    entry["bytes_per_expert"] = share.bytes_per_expert;
    out["by_layer"].push_back(std::move(entry));
  }
  if (list) out["tensors"] = tensors_json(model);
  if (usage != nullptr) out["usage"] = usage_json(*usage);
  fmt::print("{}\n", out.dump(2));
}

void print_row(std::string_view label, std::uint64_t tensors, std::uint64_t bytes,
               std::uint64_t chunks, std::uint64_t total, const std::string& note = {}) {
  fmt::print("  {:<16}{:>8}{:>14}{:>7.1f} %{:>8}{}{}\n", label, tensors, format_bytes(bytes),
             total == 0 ? 0.0 : 100.0 * static_cast<double>(bytes) / static_cast<double>(total),
             chunks, note.empty() ? "" : "  ", note);
}

void print_heading(std::string_view label) {
  fmt::print("\n  {:<16}{:>8}{:>14}{:>9}{:>8}\n", label, "tensors", "bytes", "share", "chunks");
}

void print_layers(const ModelSummary& s) {
  print_heading("layer");
  for (const auto& [layer, share] : s.layers) {
    std::string note;
    if (share.expert_bytes > 0) {
      note = fmt::format("experts {}, one {}", format_bytes(share.expert_bytes),
                         format_bytes(share.bytes_per_expert));
    }
    print_row(layer == kNoLayer ? std::string("(none)") : std::to_string(layer), share.tensors,
              share.bytes, share.chunks, s.total.bytes, note);
  }
}

void print_tensors(const Model& model) {
  fmt::print("\n  {:<14}{:>14}  {:<8}{:<16}{}\n", "offset", "bytes", "type", "role", "tensor");
  for (const ModelFile& file : model.files) {
    for (const Tensor& t : file.tensors) {
      fmt::print("  {:<14}{:>14}  {:<8}{:<16}{} [{}]\n", t.offset, t.bytes, t.type,
                 resid::name(t.role), t.name, fmt::join(t.dims, " x "));
    }
  }
}

void print_text(const Model& model, const ModelSummary& s, bool list) {
  const ModelFile& first = model.files.front();
  fmt::print("{}\n", first.path);
  fmt::print("  {}{} {}, {}, {} in {} file{}\n", name(first.format),
             first.version == 0 ? "" : fmt::format(" version {}", first.version),
             first.architecture.empty() ? "(architecture not named)" : first.architecture,
             first.model_name.empty() ? "(no name)" : first.model_name, format_bytes(s.total.bytes),
             model.files.size(), model.files.size() == 1 ? "" : "s");
  fmt::print("  {} layers", first.layers);
  if (first.experts > 0) {
    fmt::print(", {} experts of which {} are used", first.experts, first.experts_used);
  }
  fmt::print("\n  {} chunks of at most {} (largest {}), {} of them seams\n", s.total.chunks,
             format_bytes(s.chunk_max), format_bytes(s.largest_chunk), s.seams);

  fmt::print("\n  {:<16}{:>8}{:>14}{:>9}\n", "quantisation", "tensors", "bytes", "share");
  for (const auto& [type, share] : s.types) {
    fmt::print("  {:<16}{:>8}{:>14}{:>7.1f} %\n", type, share.tensors, format_bytes(share.bytes),
               100.0 * static_cast<double>(share.bytes) / static_cast<double>(s.total.bytes));
  }

  print_heading("role");
  for (const auto& [role, share] : s.roles) {
    if (role == Role::header) continue;
    print_row(resid::name(role), share.tensors, share.bytes, share.chunks, s.total.bytes);
  }
  const auto header = s.roles.find(Role::header);
  print_row("metadata", 0, s.total.metadata_bytes,
            header == s.roles.end() ? 0 : header->second.chunks, s.total.bytes);
  print_row("padding", 0, s.total.padding_bytes, 0, s.total.bytes);
  print_row("total", s.total.tensors, s.total.bytes, s.total.chunks, s.total.bytes);

  print_layers(s);
  if (list) print_tensors(model);
}

}  // namespace

void add_inspect(Frame& frame) {
  struct Options {
    std::string model;
    bool tensors = false;
    bool experts = false;
  };
  auto o = std::make_shared<Options>();
  Verb& verb = frame.add("inspect", "Show a model's layers, experts, tensors and chunks");
  verb.app()
      .add_option("MODEL", o->model, "GGUF or safetensors file; any part of a split one")
      ->required();
  verb.app().add_flag("--tensors", o->tensors, "List every tensor");
  verb.app().add_flag("--experts", o->experts, "Show which experts earlier runs used most");
  const Setting& history = history_setting(verb);
  const Setting& chunk_max =
      verb.setting("chunk-max", bytes_value(), "2MiB", "Largest chunk that tensors are cut into");
  verb.example("residctl inspect big.gguf", "sizes by role and by layer");
  verb.example("residctl inspect big.gguf --json | jq .totals", "the same for scripts");
  verb.action([o, &chunk_max, &history](const Context& context) -> Result<int> {
    auto bytes = parse_bytes(chunk_max.value, chunk_max.origin);
    if (!bytes) return tl::unexpected(bytes.error());
    auto model = open_model(o->model);
    if (!model) return tl::unexpected(model.error());
    auto summary = summarise(*model, *bytes);
    if (!summary) return tl::unexpected(summary.error());
    std::optional<FoundUsage> usage;
    if (o->experts) {
      auto found = find_usage(*model, history.value);
      if (!found) return tl::unexpected(found.error());
      usage = std::move(*found);
    }
    if (context.json) {
      print_json(*model, *summary, o->tensors, usage ? &*usage : nullptr);
      return 0;
    }
    print_text(*model, *summary, o->tensors);
    if (usage) fmt::print("{}", usage_text(*usage));
    return 0;
  });
}

}  // namespace resid::cli

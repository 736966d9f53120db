#include "cli/expert_usage.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "expert/usage_file.hpp"

namespace resid::cli {
namespace {

constexpr std::size_t kShown = 8;

std::vector<std::uint32_t> by_heat(const ExpertUsage& usage, std::size_t layer) {
  std::vector<std::uint32_t> experts(usage.experts);
  std::iota(experts.begin(), experts.end(), 0U);
  const auto uses = usage.of(layer);
  std::stable_sort(experts.begin(), experts.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return uses[a] > uses[b]; });
  return experts;
}

// Of the layer's tokens, those that chose the expert.
double share(const ExpertUsage& usage, std::size_t layer, std::uint32_t expert) {
  return usage.tokens[layer] > 0
             ? static_cast<double>(usage.of(layer)[expert]) / usage.tokens[layer]
             : 0;
}

}  // namespace

const Setting& history_setting(Verb& verb) {
  return verb.setting("history", text_value("auto|off|FILE"), "auto",
                      "Where the use of experts is remembered over runs; auto: "
                      "$XDG_STATE_HOME/residctl/experts/, one file a model");
}

Result<FoundUsage> find_usage(const Model& model, const std::string& place) {
  auto shape = UsageHistory::of(model);
  if (!shape) return tl::unexpected(shape.error());
  FoundUsage found{{}, std::move(*shape)};
  if (place == "off" || found.history.usage.empty()) return found;
  found.path = place;
  if (place == "auto") {
    auto folder = usage_folder();
    if (!folder) return tl::unexpected(folder.error());
    found.path = *folder + usage_file_name(found.history.model);
  }
  auto read = read_usage(found.path);
  if (!read && read.error().status == Status::no_such_file) return found;
  if (!read) return tl::unexpected(read.error());
  if (read->model != found.history.model || !read->same_shape(found.history)) {
    return fail(Status::usage, found.path, "is the usage history of another model",
                "name this model's, or leave --history out");
  }
  found.history = std::move(*read);
  return found;
}

nlohmann::ordered_json usage_json(const FoundUsage& found) {
  using Json = nlohmann::ordered_json;
  const ExpertUsage& usage = found.history.usage;
  Json out;
  out["file"] = found.path.empty() ? Json(nullptr) : Json(found.path);
  out["tokens"] = usage.empty() ? 0 : usage.tokens.front();
  out["layers"] = Json::array();
  for (std::size_t i = 0; i < usage.layers.size(); ++i) {
    Json hottest = Json::array();
    for (const std::uint32_t expert : by_heat(usage, i))
      hottest.push_back({{"expert", expert}, {"share", share(usage, i, expert)}});
    out["layers"].push_back(
        {{"layer", usage.layers[i]}, {"tokens", usage.tokens[i]}, {"hottest", std::move(hottest)}});
  }
  return out;
}

std::string usage_text(const FoundUsage& found) {
  const ExpertUsage& usage = found.history.usage;
  if (usage.empty()) return "\n  usage history: the model has no experts\n";
  if (found.path.empty()) return "\n  usage history: off\n";
  if (usage.tokens.front() <= 0) {
    return fmt::format("\n  usage history: none yet ({})\n", found.path);
  }
  std::string out = fmt::format("\n  usage history: worth {:.0f} tokens ({})\n",
                                usage.tokens.front(), found.path);
  out += fmt::format("  {:<8}experts, and the share of tokens that used them\n", "layer");
  for (std::size_t i = 0; i < usage.layers.size(); ++i) {
    out += fmt::format("  {:<8}", usage.layers[i]);
    const auto experts = by_heat(usage, i);
    for (std::size_t n = 0; n < std::min(kShown, experts.size()); ++n)
      out += fmt::format("{:>4} {:>4.1f} %", experts[n], 100 * share(usage, i, experts[n]));
    out += '\n';
  }
  return out;
}

}  // namespace resid::cli

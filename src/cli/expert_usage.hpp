#pragma once
// The history of a model's experts, as settings name it and as `inspect --experts` shows it.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"
#include "cli/cli.hpp"
#include "expert/usage_history.hpp"
#include "model/model.hpp"

namespace resid::cli {

// --history auto|off|FILE
const Setting& history_setting(Verb& verb);

struct FoundUsage {
  std::string path;      // where it is, or would be; empty: histories are off
  UsageHistory history;  // usage empty: the model has no experts; no tokens: nothing is known
};
// What the history at `place`, a value of the setting, says of the model. A file that is not this
// model's history is a failure.
Result<FoundUsage> find_usage(const Model& model, const std::string& place);

// The experts of each layer, the most used first: all of them in JSON, the first ones in text.
nlohmann::ordered_json usage_json(const FoundUsage& found);
std::string usage_text(const FoundUsage& found);

}  // namespace resid::cli

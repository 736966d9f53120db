#include "policy/policy.hpp"

#include <array>
#include <string>

#include "policy/policies.hpp"

namespace resid {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

constexpr std::array<Entry, 7> kPolicies{{
    {"lru", make_lru},
    {"layer_order_learned", make_layer_order_learned},
    {"layer_order_declared", make_layer_order_declared},
    {"layer_order_spread", make_layer_order_spread},
    {"expert_lru", make_expert_lru},
    {"expert_lfru", make_expert_lfru},
    {"expert_foresight", make_expert_foresight},
}};

constexpr std::array<std::string_view, kPolicies.size()> kNames = [] {
  std::array<std::string_view, kPolicies.size()> names{};
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = kPolicies[i].name;
  return names;
}();

}  // namespace

std::string_view name(OrderReport::Mode mode) {
  switch (mode) {
    case OrderReport::Mode::none:
      return "none";
    case OrderReport::Mode::learning:
      return "learning";
    case OrderReport::Mode::cyclic:
      return "cyclic";
    case OrderReport::Mode::recency:
      return "recency";
  }
  return "none";
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make();
  }
  std::string known;
  for (const std::string_view each : kNames) {
    if (!known.empty()) known += ", ";
    known += each;
  }
  return fail(Status::usage, "policy '" + std::string(name) + "'",
              "there is no policy of that name", "choose one of " + known);
}

std::span<const std::string_view> policy_names() {
  return kNames;
}

}  // namespace resid

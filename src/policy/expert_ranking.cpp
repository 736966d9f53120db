#include "policy/expert_ranking.hpp"

#include <array>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace resid {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<ExpertRanking> (*make)(const ExpertShape&);
};

constexpr std::array<Entry, 3> kRankings = {{
    {"lru", make_expert_lru},
    {"lfru", make_expert_lfru},
    {"foresight", make_expert_foresight},
}};

constexpr std::array<std::string_view, kRankings.size()> kNames = [] {
  std::array<std::string_view, kRankings.size()> names{};
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = kRankings[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> expert_ranking_names() {
  return kNames;
}

Result<std::unique_ptr<ExpertRanking>> make_expert_ranking(std::string_view name,
                                                           const ExpertShape& shape) try {
  for (const Entry& entry : kRankings) {
    if (entry.name == name) return entry.make(shape);
  }
  return fail(Status::usage, "policy", fmt::format("'{}' ranks no experts", name),
              fmt::format("choose among {}", fmt::join(kNames, ", ")));
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "policy", "no memory to rank experts");
}

}  // namespace resid

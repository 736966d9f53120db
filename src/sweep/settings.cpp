#include "sweep/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.hpp"

namespace resid::sweep {
namespace {

constexpr std::size_t kMostRatios = 64;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (;;) {
    const std::size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    while (!word.empty() && word.front() == ' ')
      word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ')
      word.remove_suffix(1);
    out.emplace_back(word);
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

// splitmix64. Not std::shuffle: its result differs between standard libraries.
class Order {
 public:
  explicit Order(std::uint64_t seed) : state_(seed) {}

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<std::size_t>(next() % i)]);
    }
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

bool only_order(std::string_view key) {
  return key == "--arms" || key == "--ratios" || key == "--repeats" || key == "--seed";
}

}  // namespace

std::string_view name(Mode mode) {
  return mode == Mode::replay ? "replay" : "program";
}

const std::vector<Arm>& arms_of(Mode mode) {
  static const std::vector<Arm> replay{
      {"A", "kernel mmap", "plain mmap in a control group of the budget; the kernel decides"},
      {"B", "mmap + advice", "A with the kernel told in advance what is needed and what is not"},
      {"C", "pager + lru", "the pager, least recently used goes first, no prefetch"},
      {"D", "pager + declared order", "the pager, furthest next use goes first, no prefetch"},
      {"E", "D + prefetch", "D, and what comes next is read ahead"},
      {"OPT", "Belady's optimum", "computed offline from the reference trace; cannot be beaten"},
  };
  static const std::vector<Arm> program{
      {"R", "all resident", "plain mmap, the whole model in the page cache: the control"},
      {"A", "kernel mmap", "plain mmap in a control group of budget + the program's own need"},
      {"C", "pager + lru", "residctl run, least recently used goes first, no prefetch"},
      {"D", "pager + declared order",
       "residctl run, furthest next use in the layers' order goes first, no prefetch"},
      {"E", "D + prefetch", "D, and what comes next is read ahead"},
  };
  return mode == Mode::replay ? replay : program;
}

const Arm* find_arm(Mode mode, std::string_view name) {
  for (const Arm& arm : arms_of(mode)) {
    if (arm.name == name) return &arm;
  }
  return nullptr;
}

Result<std::vector<std::string>> parse_arms(std::string_view text, Mode mode) {
  std::vector<std::string> known;
  for (const Arm& arm : arms_of(mode))
    known.emplace_back(arm.name);
  std::vector<std::string> arms = split(text);
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (find_arm(mode, arms[i]) == nullptr) {
      return fail(Status::usage, "--arms",
                  fmt::format("'{}' is no arm of a {} sweep", arms[i], name(mode)),
                  fmt::format("give some of {}", fmt::join(known, ",")));
    }
    if (std::find(arms.begin(), arms.begin() + static_cast<std::ptrdiff_t>(i), arms[i]) !=
        arms.begin() + static_cast<std::ptrdiff_t>(i)) {
      return fail(Status::usage, "--arms", fmt::format("'{}' is given twice", arms[i]),
                  "give each arm once; --repeats repeats them");
    }
  }
  return arms;
}

Result<std::vector<double>> parse_ratios(std::string_view text) {
  std::vector<double> ratios;
  for (const std::string& word : split(text)) {
    double value = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc{} || stop != end || word.empty() || !std::isfinite(value) ||
        value <= 0 || value > 1) {
      return fail(Status::usage, "--ratios", fmt::format("'{}' is no number in (0, 1]", word),
                  "give shares of the store, as 0.25,0.5,0.75");
    }
    ratios.push_back(value);
  }
  std::sort(ratios.begin(), ratios.end());
  if (std::adjacent_find(ratios.begin(), ratios.end()) != ratios.end()) {
    return fail(Status::usage, "--ratios", "a ratio is given twice",
                "give each ratio once; --repeats repeats them");
  }
  if (ratios.size() > kMostRatios) {
    return fail(Status::usage, "--ratios", fmt::format("more than {} of them", kMostRatios),
                "give fewer");
  }
  return ratios;
}

std::string ratio_text(double ratio) {
  return fmt::format("{}", ratio);
}

std::vector<Cell> plan_cells(const SweepSettings& settings) {
  const bool resident =
      std::find(settings.arms.begin(), settings.arms.end(), kResident) != settings.arms.end();
  std::vector<Cell> cells;
  for (std::uint32_t repeat = 1; repeat <= settings.repeats; ++repeat) {
    Order order(settings.seed + repeat * 0x100000001b3ULL);
    std::vector<std::vector<Cell>> groups;
    for (const double ratio : settings.ratios) {
      std::vector<Cell>& group = groups.emplace_back();
      for (const std::string& arm : settings.arms) {
        if (arm != kResident) group.push_back({arm, ratio, repeat});
      }
      order.shuffle(group);
    }
    // With everything resident there is no budget to vary.
    if (resident) groups.push_back({{std::string(kResident), 1.0, repeat}});
    order.shuffle(groups);
    for (const auto& group : groups)
      cells.insert(cells.end(), group.begin(), group.end());
  }
  return cells;
}

Identity identity(const SweepSettings& s, const Identity& surroundings) {
  std::vector<std::string> ratios;
  for (const double ratio : s.ratios)
    ratios.push_back(ratio_text(ratio));
  Identity out{{"mode", std::string(name(s.mode))},
               {"--arms", fmt::format("{}", fmt::join(s.arms, ","))},
               {"--ratios", fmt::format("{}", fmt::join(ratios, ","))},
               {"--repeats", fmt::format("{}", s.repeats)},
               {"--seed", fmt::format("{}", s.seed)}};
  if (s.size) out.emplace_back("--size", fmt::format("{}", *s.size));
  if (!s.model.empty()) out.emplace_back("--model", s.model);
  if (s.mode == Mode::replay) {
    out.emplace_back("--chunk", fmt::format("{}", s.chunk));
    out.emplace_back("--passes", fmt::format("{}", s.passes));
    out.emplace_back("--threads", fmt::format("{}", s.threads));
    out.emplace_back("--compute-ns-per-mib", fmt::format("{}", s.compute_ns_per_mib));
    for (const auto& [key, value] : s.passed)
      out.emplace_back(key, value.empty() ? "given" : value);
  } else {
    // Words apart, as they are: a blank inside one is not a blank between two.
    std::string command;
    for (const std::string& word : s.program)
      command += fmt::format("{}{}", command.empty() ? "" : "\x1f", word);
    out.emplace_back("program", command);
  }
  out.insert(out.end(), surroundings.begin(), surroundings.end());
  return out;
}

std::string text_hash(std::string_view text) {
  return fmt::format("{:016x}", fnv1a(text));
}

std::string cell_hash(const Identity& identity, const Cell& cell) {
  std::string text = fmt::format("arm={}\nratio={}\n", cell.arm, ratio_text(cell.ratio));
  for (const auto& [key, value] : identity) {
    if (!only_order(key)) text += fmt::format("{}={}\n", key, value);
  }
  return text_hash(text);
}

}  // namespace resid::sweep

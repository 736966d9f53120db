#pragma once
// Cells that need no machine: settings, and a runner that answers by a formula.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sweep/sweep.hpp"

namespace resid::sweep {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "sweep-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_all(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline SweepSettings fake_settings() {
  SweepSettings s;
  s.arms = {"A", "C", "D", "OPT"};
  s.ratios = {0.25, 0.5, 0.75};
  s.repeats = 3;
  s.size = 1 << 30;
  return s;
}

// Figures as replay would print them, whole and possible. Repetitions differ a little.
inline nlohmann::ordered_json fake_figures(const Cell& cell) {
  const double store = 1 << 30;
  const double passes = 5;
  const double floor = store + (passes - 1) * store * (1 - cell.ratio);
  const double share = cell.arm == "C" ? passes * store / floor : cell.arm == "A" ? 1.4 : 1.0;
  const double wobble = 1 + 0.01 * static_cast<double>(cell.repeat);
  const double read = cell.arm == "OPT" || cell.arm == "D" ? floor * share : floor * share * wobble;
  nlohmann::ordered_json j{
      {"schema", 1},          {"arm", cell.arm},
      {"ratio", cell.ratio},  {"store_bytes", store},
      {"passes", passes},     {"bytes_read", read},
      {"opt_bytes", floor},   {"opt_exact", true},
      {"floor_bytes", floor}, {"roofline_bytes_per_s", 1e9 / (1 - cell.ratio)},
      {"mismatches", 0},      {"budget_kept", nullptr},
      {"censored", false},    {"config_hash", cell.arm + ratio_text(cell.ratio)}};
  if (cell.arm == "OPT") {
    j["wall_s"] = nullptr;
    return j;
  }
  j["wall_s"] = read / 1e9;
  j["achieved_bytes_per_s"] = passes * store / (read / 1e9);
  if (cell.arm != "A") {
    j["latency_us"] = {{"fault_p50", 1500.0 * wobble}, {"fault_p99", 9000.0 * wobble}};
  }
  return j;
}

inline Outcome fake_outcome(const Cell& cell) {
  return {State::done, {}, fake_figures(cell)};
}

inline nlohmann::ordered_json fake_manifest(const Identity& identity) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const auto& [key, value] : identity)
    settings[key] = value;
  return {{"schema", 1}, {"date", "2025-01-01T00:00:00Z"}, {"settings", settings}};
}

}  // namespace resid::sweep

#include "report/expert_report.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace resid {
namespace {

std::uint64_t load(const Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

// Plain numbers of one layer, or of all.
struct Sums {
  struct Pair {
    std::uint64_t slices = 0;
    std::uint64_t bytes = 0;
    void add(const ExpertBoard::Tally& tally) {
      slices += load(tally.slices);
      bytes += load(tally.bytes);
    }
  };
  Pair asked, pinned, cached, prefetched, missed;
  std::uint64_t read_bytes = 0;
  std::uint64_t wait_ns = 0;

  void add(const ExpertBoard::Layer& layer) {
    asked.add(layer.asked);
    pinned.add(layer.pinned);
    cached.add(layer.cached);
    prefetched.add(layer.prefetched);
    missed.add(layer.missed);
    read_bytes += load(layer.read_bytes);
    wait_ns += load(layer.wait_ns);
  }
  double wait_s() const { return static_cast<double>(wait_ns) / 1e9; }
  double share(const Pair& of) const {
    return 100 * static_cast<double>(of.bytes) / static_cast<double>(std::max(asked.bytes, 1UL));
  }
};

nlohmann::json json_of(const Sums& s) {
  return {{"asked", s.asked.slices},           {"asked_bytes", s.asked.bytes},
          {"pinned", s.pinned.slices},         {"pinned_bytes", s.pinned.bytes},
          {"cached", s.cached.slices},         {"cached_bytes", s.cached.bytes},
          {"prefetched", s.prefetched.slices}, {"prefetched_bytes", s.prefetched.bytes},
          {"missed", s.missed.slices},         {"missed_bytes", s.missed.bytes},
          {"read_bytes", s.read_bytes},        {"wait_s", s.wait_s()}};
}

struct All {
  Sums sums;
  std::uint64_t tokens = 0;
  double read_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(sums.read_bytes) / static_cast<double>(tokens);
  }
};

All sum(const ExpertBoard& board) {
  All all;
  bool first = true;
  for (const ExpertBoard::Layer& layer : board.layers) {
    if (layer.experts.load(std::memory_order_relaxed) == 0) continue;
    if (first) all.tokens = load(layer.tokens);
    first = false;
    all.sums.add(layer);
  }
  return all;
}

}  // namespace

nlohmann::json expert_report(const ExpertBoard& board) {
  nlohmann::json out;
  out["layers"] = nlohmann::json::array();
  for (std::size_t i = 0; i < board.layers.size(); ++i) {
    if (board.layers[i].experts.load(std::memory_order_relaxed) == 0) continue;
    Sums sums;
    sums.add(board.layers[i]);
    nlohmann::json layer = json_of(sums);
    layer["layer"] = i;
    out["layers"].push_back(std::move(layer));
  }
  const All all = sum(board);
  out["total"] = json_of(all.sums);
  out["tokens"] = all.tokens;
  out["read_bytes_per_token"] = all.read_per_token();
  return out;
}

std::string expert_summary(const ExpertBoard& board, double wall_s) {
  const All all = sum(board);
  const Sums& s = all.sums;
  if (s.asked.slices == 0) return {};
  return fmt::format(
      "residctl: experts: {:.0f} % cached, {:.0f} % prefetched, {:.0f} % pinned, {:.0f} % missed "
      "of "
      "{} asked for; {} read a token ({} tokens); waited for them {:.0f} % of the time\n",
      s.share(s.cached), s.share(s.prefetched), s.share(s.pinned), s.share(s.missed),
      format_bytes(s.asked.bytes), format_bytes(static_cast<std::uint64_t>(all.read_per_token())),
      all.tokens, wall_s > 0 ? 100 * s.wait_s() / wall_s : 0.0);
}

}  // namespace resid

// The loop over the cells.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "sweep/machine.hpp"
#include "sweep/sweep.hpp"

namespace resid::sweep {
namespace {

std::string own_hash(const Outcome& outcome) {
  const auto& figures = outcome.figures;
  if (!figures.is_object() || !figures.contains("config_hash")) return {};
  return figures["config_hash"].is_string() ? figures["config_hash"].get<std::string>() : "";
}

// Two repetitions of a cell that did not do the same are not repetitions.
void refuse_other_config(const std::vector<Record>& records, const Cell& cell, Outcome& outcome) {
  const std::string hash = own_hash(outcome);
  if (outcome.state != State::done || hash.empty()) return;
  for (const Record& r : records) {
    if (r.outcome.state != State::done || r.cell.arm != cell.arm || r.cell.ratio != cell.ratio ||
        r.cell.repeat == cell.repeat) {
      continue;
    }
    const std::string other = own_hash(r.outcome);
    if (other.empty() || other == hash) continue;
    outcome.state = State::failed;
    outcome.reason = fmt::format(
        "its configuration ({}) is not that of repetition {} ({}): was residctl.toml changed?",
        hash, r.cell.repeat, other);
    return;
  }
}

class Loop {
 public:
  Loop(const SweepFolder& folder, const std::vector<Cell>& cells) : total_(cells.size()) {
    for (const Cell& cell : cells) {
      const Record* record = find(folder.records(), cell);
      if (record == nullptr || record->outcome.state == State::failed) open_.push_back(cell);
    }
  }

  const std::vector<Cell>& open() const { return open_; }
  void advance() { open_.erase(open_.begin()); }

  Progress progress(const SweepFolder& folder, const Cell* running) const {
    Progress p;
    p.total = total_;
    p.done = total_ - open_.size();
    for (const Record& r : folder.records()) {
      if (r.outcome.state == State::censored) ++p.censored;
      const bool again = std::find(open_.begin(), open_.end(), r.cell) != open_.end();
      if (r.outcome.state == State::failed && !again) ++p.failed;
    }
    p.running = running;
    p.left_s = estimate_left_s(folder.records(), open_);
    return p;
  }

 private:
  static const Record* find(const std::vector<Record>& records, const Cell& cell) {
    for (const Record& r : records) {
      if (r.cell == cell) return &r;
    }
    return nullptr;
  }
  std::vector<Cell> open_;  // in order
  std::size_t total_;
};

}  // namespace

double estimate_left_s(const std::vector<Record>& finished, const std::vector<Cell>& open) {
  const auto mean = [&](auto&& fits) {
    double sum = 0;
    std::size_t n = 0;
    for (const Record& r : finished) {
      if (r.outcome.state != State::done || !fits(r.cell)) continue;
      sum += r.elapsed_s;
      ++n;
    }
    return n == 0 ? -1 : sum / static_cast<double>(n);
  };
  double left = 0;
  for (const Cell& cell : open) {
    double one = mean([&](const Cell& c) { return c.arm == cell.arm && c.ratio == cell.ratio; });
    if (one < 0) one = mean([&](const Cell& c) { return c.arm == cell.arm; });
    if (one < 0) one = mean([](const Cell&) { return true; });
    if (one < 0) return -1;
    left += one;
  }
  return left;
}

Result<LoopEnd> run_cells(SweepFolder& folder, const std::vector<Cell>& cells,
                          const Identity& identity, const CellRunner& run,
                          const std::function<void(const Progress&)>& show,
                          const std::atomic<bool>* stop) {
  Loop loop(folder, cells);
  LoopEnd end;
  const auto tell = [&](const Cell* running) {
    if (show) show(loop.progress(folder, running));
  };
  while (!loop.open().empty()) {
    if (stop != nullptr && stop->load()) {
      end.stopped = true;
      break;
    }
    Record record;
    record.cell = loop.open().front();
    record.config_hash = cell_hash(identity, record.cell);
    record.load = load_average();
    tell(&record.cell);
    const std::uint64_t began = now_ns();
    record.outcome = run(record.cell);
    record.elapsed_s = static_cast<double>(now_ns() - began) / 1e9;
    if (record.outcome.state == State::stopped) {
      end.stopped = true;
      break;
    }
    refuse_other_config(folder.records(), record.cell, record.outcome);
    if (auto ok = folder.append(record); !ok) return tl::unexpected(ok.error());
    ++end.ran;
    loop.advance();
  }
  tell(nullptr);
  return end;
}

}  // namespace resid::sweep

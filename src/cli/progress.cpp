#include "cli/progress.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"

namespace resid::cli {
namespace {

constexpr std::uint64_t kTerminalIntervalNs = 100'000'000;
constexpr std::uint64_t kPlainIntervalNs = 5'000'000'000;

std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> previous;

extern "C" void on_stop(int signal) {
  stop_signal.store(signal);
  stop_requested.store(true);
}

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) != 0), started_ns_(now_ns()) {
  shown_ns_ = started_ns_;
}

Progress::~Progress() {
  if (open_) fmt::print(stderr, "\n");
}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  const std::uint64_t now = now_ns();
  const bool last = done == total;
  // Short work elsewhere than on a terminal says nothing but its result.
  if (now - shown_ns_ < (terminal_ ? kTerminalIntervalNs : kPlainIntervalNs)) {
    if (!last || !open_) return;
  }
  shown_ns_ = now;
  const double seconds = static_cast<double>(now - started_ns_) / 1e9;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string line = fmt::format(
      "{}: {} of {} ({:.0f} %), {}/s", what_, format_bytes(done), format_bytes(total),
      total == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(total),
      format_bytes(static_cast<std::uint64_t>(rate)));
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", line);
    open_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

StopSignals::StopSignals() {
  stop_requested = false;
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_stop;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &previous[i]);
    // Whoever started us with the signal ignored (nohup, a background job) meant it.
    if (previous[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &previous[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &previous[i], nullptr);
  }
}

const std::atomic<bool>& StopSignals::flag() const {
  return stop_requested;
}

void StopSignals::resume_default() {
  const int signal = stop_signal.load();
  if (signal == 0) return;
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace resid::cli

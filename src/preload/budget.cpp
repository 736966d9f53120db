#include "preload/budget.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "base/units.hpp"

namespace resid::preload {
namespace {

// Whether the process runs code any more. kill(pid, 0) succeeds on a zombie, whose memory is gone.
bool alive(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  const Fd stat(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!stat) return true;
  std::array<char, 256> text{};
  const ssize_t n = ::read(stat.get(), text.data(), text.size() - 1);
  if (n <= 0) return true;
  // The command name stands in parentheses and may hold any character: the state follows the last.
  const char* close = std::strrchr(text.data(), ')');
  if (close == nullptr || close[1] == '\0') return true;
  return close[2] != 'Z' && close[2] != 'X';
}

}  // namespace

Result<std::uint64_t> resolve_budget(const RunConfig& config, std::uint64_t model_bytes,
                                     std::uint64_t largest) {
  Size size;
  if (config.ram_is_percent != 0) {
    size.kind = Size::Kind::percent_of_model;
    size.percent = config.ram_percent;
  } else {
    size.bytes = config.ram_bytes;
  }
  const std::uint64_t budget = page_down(size.resolve(model_bytes));
  if (budget < 2 * largest) {
    return fail(Status::budget_too_small, fmt::format("--ram {}", size.text()),
                fmt::format("{} is less than two chunks of {}", format_bytes(budget),
                            format_bytes(largest)));
  }
  return budget;
}

Result<void> claim_budget(RunPage& page, pid_t self) {
  const auto mine = static_cast<std::uint32_t>(self);
  std::uint32_t holder = page.budget_holder.load();
  do {
    if (holder != 0 && holder != mine && alive(static_cast<pid_t>(holder))) {
      return fail(Status::budget_taken, "budget",
                  fmt::format("process {} already pages under this run's budget", holder));
    }
  } while (!page.budget_holder.compare_exchange_weak(holder, mine));
  page.stats.resident_bytes.store(0);
  page.mapped_bytes.store(0);
  return {};
}

}  // namespace resid::preload

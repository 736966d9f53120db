#include "run/verdict.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace resid::run {

namespace {

// The page carries a failure as its line (Failure::line()): `residctl: what : why : what to do`.
Failure from_line(Status status, std::string_view line) {
  constexpr std::string_view kPrefix = "residctl: ";
  constexpr std::string_view kBetween = " : ";
  if (line.starts_with(kPrefix)) line.remove_prefix(kPrefix.size());
  const std::size_t first = line.find(kBetween);
  const std::size_t last = line.rfind(kBetween);
  if (first == std::string_view::npos || first == last) {
    return {status, "the program", std::string(line), {}};
  }
  const std::size_t why = first + kBetween.size();
  return {status, std::string(line.substr(0, first)), std::string(line.substr(why, last - why)),
          std::string(line.substr(last + kBetween.size()))};
}

}  // namespace

Verdict judge(const RunPage& page, const Ending& ending) {
  Verdict verdict;
  verdict.exit_code = ending.shell_code();
  const auto status = static_cast<Status>(page.last_status.load());
  if (status != Status::ok) {
    verdict.failure = from_line(status, page.last_error);
    if (status == Status::budget_too_small || status == Status::infeasible) {
      verdict.exit_code = exit_code(status);
    } else if (ending.shell_code() == 0) {
      verdict.exit_code = std::max(1, exit_code(status));
    }
    return verdict;
  }
  const auto phase = static_cast<RunPhase>(page.phase.load());
  if (phase == RunPhase::started) {
    verdict.failure = Failure{
        Status::nothing_mapped, "the program", "it never loaded the preload library",
        "do not clean the environment (env -i, sudo) between residctl and the program, and run it "
        "as the same user"};
  } else if (phase == RunPhase::preloaded) {
    verdict.failure = Failure{Status::nothing_mapped, "the program", "it mapped no model", {}};
  }
  if (verdict.failure && ending.shell_code() == 0) {
    verdict.exit_code = exit_code(Status::nothing_mapped);
  }
  return verdict;
}

std::uint32_t bypassed_mib(std::uint64_t chars_read, std::uint64_t bytes_fetched,
                           std::uint64_t model_bytes) {
  constexpr std::uint64_t kMib = 1024 * 1024;
  constexpr std::uint64_t kUnremarkable = 64 * kMib;  // libraries, tokenizer data, prompts
  const std::uint64_t others = chars_read > bytes_fetched ? chars_read - bytes_fetched : 0;
  if (others <= std::max(kUnremarkable, model_bytes / 4)) return 0;
  return static_cast<std::uint32_t>(others / kMib);
}

}  // namespace resid::run

#include "run/verdict.hpp"

#include <algorithm>
#include <string>

namespace resid::run {

Verdict judge(const RunPage& page, const Ending& ending) {
  Verdict verdict;
  verdict.exit_code = ending.shell_code();
  const auto status = static_cast<Status>(page.last_status.load());
  if (status != Status::ok) {
    // The line was made by Failure::line() or in its form: what : why : what to do.
    verdict.failure = Failure{status, std::string(name(status)), page.last_error, {}};
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

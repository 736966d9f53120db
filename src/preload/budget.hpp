#pragma once
// What the budget is, and who may spend it.

#include <sys/types.h>

#include <cstdint>

#include "control/run_page.hpp"

namespace resid::preload {

// The budget for a model of `model_bytes` whose largest chunk has `largest` bytes. budget_too_small
// below two such chunks: one being read and one being filled is the least that makes progress.
Result<std::uint64_t> resolve_budget(const RunConfig& config, std::uint64_t model_bytes,
                                     std::uint64_t largest);

// Claims the run's budget for this process. One process pages at a time: two would each believe to
// own the whole. A holder that is gone, or a zombie, is succeeded; its figures of what is resident
// are void. budget_taken names the living holder.
Result<void> claim_budget(RunPage& page, pid_t self);

}  // namespace resid::preload

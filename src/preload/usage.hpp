#pragma once
// Which model's experts this run uses, said to `residctl run`, which keeps the history of them; and
// what that history says.

#include "control/expert_area.hpp"
#include "model/model.hpp"
#include "policy/expert_usage.hpp"

namespace resid::preload {

// Empty where the model has no experts, the run keeps no history, or there is none of use:
// `residctl run` says why when it adds to it. `file`: any part of the model, under its own name.
ExpertUsage remembered_usage(ExpertArea& area, const ModelFile& file);

}  // namespace resid::preload

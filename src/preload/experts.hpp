#pragma once
// Routing on its way to the pager, whichever sensor has seen it.

#include "control/run_page.hpp"
#include "ggml/backend/routed.h"

namespace resid::preload {

// What one layer's router has chosen for each token of a batch. Dropped where this sensor is not
// the one that is listened to. Any thread; returns when the reads are queued.
void routed(const resid_routed& call, ExpertSensor by);

}  // namespace resid::preload

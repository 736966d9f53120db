#pragma once
// The two figures that a run is held against: the disk's rate, and the time of a pass with
// everything resident.

#include "base/status.hpp"
#include "replay/driver.hpp"
#include "storage/bandwidth.hpp"

namespace resid {

struct Calibration {
  Bandwidth bandwidth;
  double compute_s_per_pass = 0;
};

// Reads the store for a second at most, and consumes a part of it (at most 128 MiB) from plain
// memory with the same threads and loop.
Result<Calibration> calibrate(const Workload& workload, const DriveConfig& config);

}  // namespace resid

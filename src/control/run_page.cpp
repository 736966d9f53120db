#include "control/run_page.hpp"

#include <algorithm>
#include <cstring>

namespace resid {

std::string_view name(ExpertSensor sensor) {
  switch (sensor) {
    case ExpertSensor::automatic:
      return "auto";
    case ExpertSensor::ggml_backend:
      return "ggml_backend";
    case ExpertSensor::eval_callback:
      return "eval_callback";
    case ExpertSensor::faults:
      break;
  }
  return "faults";
}

void record_failure(RunPage& page, Status status, const char* line) {
  if (status == Status::ok) status = Status::internal;
  std::uint32_t none = 0;
  // Who wins this owns last_error alone; the page was zeroed, so it ends in a zero at every moment.
  if (!page.last_status.compare_exchange_strong(none, static_cast<std::uint32_t>(status),
                                                std::memory_order_acq_rel)) {
    return;
  }
  if (line == nullptr) return;
  const std::size_t n = std::min(std::strlen(line), sizeof(page.last_error) - 1);
  std::memcpy(page.last_error, line, n);
}

}  // namespace resid

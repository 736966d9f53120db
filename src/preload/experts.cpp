// The preload library's end of the ggml backend (ggml/backend/routed.h), and the way on from there:
// which experts a layer's router chose for each token of a batch goes to the pager.

#include "preload/experts.hpp"

#include <cstring>
#include <vector>

#include "preload/export.hpp"
#include "preload/session.hpp"

namespace resid::preload {

void routed(const resid_routed& call, ExpertSensor by) {
  Pager* pager = Session::pager();
  if (pager == nullptr || Session::get()->expert_sensor() != by) return;
  // The limit of an engine's batch; what is larger comes by its faults.
  constexpr std::uint64_t kMost = 1U << 22;
  const std::uint64_t ids = std::uint64_t{call.used} * call.tokens;
  if (call.experts > kExpertsMost || ids == 0 || ids > kMost) return;
  const Inside inside;
  std::vector<ExpertId> chosen;
  chosen.reserve(ids);
  const auto* rows = static_cast<const char*>(call.ids);
  for (std::uint32_t t = 0; t < call.tokens; ++t) {
    for (std::uint32_t u = 0; u < call.used; ++u) {
      std::int32_t id = 0;
      std::memcpy(&id, rows + t * call.token_stride + u * call.used_stride, sizeof id);
      if (id < 0 || static_cast<std::uint32_t>(id) >= call.experts) return;  // no routing of ours
      chosen.push_back(static_cast<ExpertId>(id));
    }
  }
  Session* session = Session::get();
  session->page().expert_sensor.store(by);
  if (pager->use_experts(call.stack, chosen, call.used) && call.state != nullptr) {
    pager->look_ahead(call.stack, chosen, call.used,
                      {call.state, call.state_stride, call.state_width, call.tokens});
  }
  RoutingSpool* spool = session->routing_spool();
  if (spool == nullptr) return;
  const std::int32_t layer = pager->stack_at(call.stack).layer;
  if (layer == kNoLayer || spool->append(call, layer)) return;
  session->notice(Notice::routing_lost,
                  "the routing cannot be recorded any further: is the disk full?");
}

}  // namespace resid::preload

RESID_EXPORT int resid_ggml_attach() {
  using resid::preload::Session;
  Session* session = Session::get();
  if (session == nullptr || session->detached()) return 0;
  return session->expect_routing(resid::ExpertSensor::ggml_backend) ? 1 : 0;
}

RESID_EXPORT int resid_ggml_controls(const void* address) {
  using resid::preload::Session;
  const resid::Pager* pager = Session::pager();
  if (pager == nullptr || Session::get()->expert_sensor() != resid::ExpertSensor::ggml_backend) {
    return 0;
  }
  return pager->in_view(address, 1) ? 1 : 0;
}

RESID_EXPORT void resid_ggml_routed(const resid_routed* call) {
  resid::preload::routed(*call, resid::ExpertSensor::ggml_backend);
}

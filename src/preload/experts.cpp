// The preload library's end of the ggml backend (ggml/backend/routed.h): which experts a layer's
// router chose, once for all tokens of a batch, goes to the pager.

#include <algorithm>
#include <array>
#include <cstring>

#include "ggml/backend/routed.h"
#include "preload/export.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

// More than any model has; a layer with more is served by its faults.
constexpr std::uint32_t kMostExperts = 4096;

void routed(const resid_routed& call) {
  Pager* pager = Session::pager();
  if (pager == nullptr || call.experts > kMostExperts) return;
  const Inside inside;
  // A prompt names an expert many times; it is read once.
  std::array<std::uint64_t, kMostExperts / 64> seen{};
  std::array<std::uint32_t, kMostExperts> distinct;
  std::uint32_t count = 0;
  const auto* rows = static_cast<const char*>(call.ids);
  for (std::uint32_t t = 0; t < call.tokens; ++t) {
    for (std::uint32_t u = 0; u < call.used; ++u) {
      std::int32_t id = 0;
      std::memcpy(&id, rows + t * call.token_stride + u * call.used_stride, sizeof id);
      if (id < 0 || static_cast<std::uint32_t>(id) >= call.experts) continue;
      const auto expert = static_cast<std::uint32_t>(id);
      std::uint64_t& word = seen[expert / 64];
      const std::uint64_t bit = std::uint64_t{1} << expert % 64;
      if ((word & bit) != 0) continue;
      word |= bit;
      distinct[count++] = expert;
    }
  }
  pager->use_experts(call.stack, std::span(distinct).first(count));
  Session* session = Session::get();
  RoutingSpool* spool = session->routing_spool();
  if (spool == nullptr) return;
  const std::int32_t layer = pager->layer_of_stack(call.stack);
  if (layer == kNoLayer || spool->append(call, layer)) return;
  session->notice(Notice::routing_lost,
                  "the routing cannot be recorded any further: is the disk full?");
}

}  // namespace
}  // namespace resid::preload

RESID_EXPORT int resid_ggml_attach() {
  using resid::preload::Session;
  Session* session = Session::get();
  if (session == nullptr || session->detached()) return 0;
  session->expect_routing();
  return 1;
}

RESID_EXPORT int resid_ggml_controls(const void* address) {
  const resid::Pager* pager = resid::preload::Session::pager();
  return pager != nullptr && pager->in_view(address, 1) ? 1 : 0;
}

RESID_EXPORT void resid_ggml_routed(const resid_routed* call) {
  resid::preload::routed(*call);
}

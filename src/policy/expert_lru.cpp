// `expert_lru`: of a mixture-of-experts model, the expert's slice that was used longest ago goes
// first; what every token reads goes only when no slice is left, by its next use in the declared
// order.
//
// A use is what the engine says of its routing (on_access), not only a fault: without that the most
// used expert, which never faults, would be the oldest.

#include "policy/declared_policy.hpp"
#include "policy/policies.hpp"

namespace resid {

namespace {

class ExpertLru final : public DeclaredPolicy {
 public:
  std::string_view name() const override { return "expert_lru"; }
  bool ranks_experts() const override { return true; }
};

}  // namespace

std::unique_ptr<Policy> make_expert_lru() {
  return std::make_unique<ExpertLru>();
}

}  // namespace resid

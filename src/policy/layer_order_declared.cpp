// `layer_order_declared`: furthest next use in the order that a forward pass reads the weights in.

#include "policy/declared_policy.hpp"
#include "policy/policies.hpp"

namespace resid {

namespace {

class LayerOrderDeclared final : public DeclaredPolicy {
 public:
  std::string_view name() const override { return "layer_order_declared"; }
};

}  // namespace

std::unique_ptr<Policy> make_layer_order_declared() {
  return std::make_unique<LayerOrderDeclared>();
}

}  // namespace resid

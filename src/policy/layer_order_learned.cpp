// `layer_order_learned`: furthest next use in an order inferred from demand faults alone. It reads
// no access signal, no declaration and no signal mode: a fault comes before the use. It measures
// what declared knowledge is worth.
//
// The order is the order of first faults. A chunk that faults for the first time goes in after the
// chunk reached last; one that is known only moves the position. A known chunk is never moved: from
// the second pass on only missing chunks fault, so the chunk that faults after A is usually not A's
// successor but the next one that happens to be missing, and to believe it would cut the resident
// ones in between out of the order.
//
// What it can learn: any workload that repeats one order, from the first pass on, whatever is
// resident or prefetched later; chunks that join later, at the place where they first faulted.
//
// What it cannot: an order that changes (the first one stays); a chunk's second place in the cycle;
// the place of a chunk that is prefetched or pinned before it ever faults (it counts as outside
// until it faults); the exact place of a late joiner when its neighbours are resident, since those
// do not fault; where the workload is while it touches only resident chunks. In an MoE model the
// experts chosen first fix a place each, and later choices scatter around them. Declare the order
// where it is known.

#include "policy/learned_order.hpp"
#include "policy/order_policy.hpp"
#include "policy/policies.hpp"

namespace resid {

namespace {

class LayerOrderLearned final : public OrderPolicy<LearnedOrder> {
 public:
  std::string_view name() const override { return "layer_order_learned"; }
  void declare_sequence(std::span<const ChunkId> /*sequence*/) override {}
  void set_signal_mode(SignalMode /*mode*/) override {}

  void on_fault(ChunkId chunk) override {
    if (!known(chunk)) return;
    ages_.touch(chunk);
    const bool joins = !order_.contains(chunk);
    order_.reach(chunk, kStepBack);
    if (joins && ages_.contains(chunk)) {
      ages_.erase(chunk);
      order_.insert(chunk, mode_);
    }
  }
  void on_access(ChunkId /*chunk*/) override {}
};

}  // namespace

std::unique_ptr<Policy> make_layer_order_learned() {
  return std::make_unique<LayerOrderLearned>();
}

}  // namespace resid

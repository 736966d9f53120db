#pragma once
// Routing by ggml's evaluation callback: how the pager learns of it where the backend of
// ggml/backend cannot be.
//
// A ggml scheduler asks a callback of every node whether its data is wanted (`ask`), computes up to
// each wanted node, and calls once more. llama.cpp names the node that holds a layer's chosen
// experts `ffn_moe_topk-LAYER`; that one is wanted, and is computed before a product touches a
// weight of the layer. Each wanted node is a stop, which is why the backend goes first.
//
//   C-1  The program's own callback sees the calls that it would see without us, in their order,
//        and its answers have the effect that they would have: it gets a second call for just the
//        nodes that it asked for, and when it ends a computation, that ends.
//   C-2  Nothing is told of another model's routing. Whose graph it is, is told by where the
//        graph's own weights lie, not by the number of a layer.
//   C-3  Where the node is computed by a GPU no stop is made: ggml computes a router there in one
//        fused operation, and a stop inside would round otherwise. Its data is read when the
//        product that needs it comes up on another device, which is after the scheduler has waited
//        for the GPU. A product on the same device needs nothing of ours.
//   C-4  No layout of ggml's structures is known here, and nothing of ggml is linked.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ggml/backend/routed.h"

namespace resid::ggml {

// ggml_backend_sched_eval_callback
using EvalCallback = bool (*)(void* tensor, bool ask, void* user_data);

// What is used of ggml; each is the exported function of that name.
struct EvalFunctions {
  void (*set_eval_callback)(void* sched, EvalCallback callback, void* user_data);
  void* (*sched_get_tensor_backend)(void* sched, void* tensor);
  void* (*get_device)(void* backend);
  int (*dev_type)(void* device);
  void (*tensor_get)(const void* tensor, void* data, std::size_t offset, std::size_t size);
  void* (*graph_get_tensor)(const void* graph, const char* name);
  const char* (*get_name)(const void* tensor);
  void* (*get_data)(const void* tensor);
  const char* (*op_desc)(const void* tensor);
  std::size_t (*nbytes)(const void* tensor);
  std::size_t (*element_size)(const void* tensor);
  std::int64_t (*nelements)(const void* tensor);
  std::int64_t (*nrows)(const void* tensor);
  bool (*is_contiguous_rows)(const void* tensor);

  // Those of the ggml that holds `address`, or that its library depends on; false when one is
  // missing.
  bool find(const void* address);
};

// A layer's stacked expert tensor, in the mapping of a model.
struct Stack {
  std::int32_t layer = -1;
  std::uint32_t experts = 0;
  const void* address = nullptr;
};

// Whoever wants to know.
class RoutingListener {
 public:
  // The names of the first stacked tensor of every layer of the models under control.
  virtual std::vector<std::string> stack_names() = 0;
  // The stack that begins at this address; layer -1 when none does that is under control.
  virtual Stack stack_at(const void* address) = 0;
  virtual void routed(const resid_routed& call) noexcept = 0;

 protected:
  ~RoutingListener() = default;
};

// One ggml, and its schedulers. A call that names a scheduler comes from the thread that uses it;
// different schedulers may be used by different threads.
class EvalRouting {
 public:
  EvalRouting(const EvalFunctions& functions, RoutingListener& listener)
      : ggml_(functions), listener_(listener) {}
  EvalRouting(const EvalRouting&) = delete;
  EvalRouting& operator=(const EvalRouting&) = delete;

  // The program has given the scheduler this callback, which may be null, and it is in place.
  void program_has_set(void* sched, EvalCallback callback, void* user_data);
  // The scheduler is about to compute this graph. Where it reads experts under control, the
  // program's callback is put behind ours.
  void graph_is_ready(void* sched, const void* graph);
  // The scheduler is no more.
  void forget(void* sched);

 private:
  struct Watched {
    EvalRouting* owner = nullptr;
    void* sched = nullptr;
    EvalCallback callback = nullptr;  // the program's
    void* user_data = nullptr;
    std::vector<Stack> stacks;      // that the graph reads
    bool program_wants = false;     // the node that was asked for last
    const void* stopped = nullptr;  // the node that we want, until it is computed
    void* on_a_gpu = nullptr;       // chosen experts that a product is still to come for (C-3)
    std::vector<char> ids;
  };
  static bool answer(void* tensor, bool ask, void* watched);
  bool asked(Watched& w, void* tensor);
  bool computed(Watched& w, void* tensor);
  void product_comes_up(Watched& w, void* tensor);
  void tell(Watched& w, const void* chosen);
  bool on_a_cpu(Watched& w, void* tensor) const;
  Watched* find(void* sched);

  const EvalFunctions ggml_;
  RoutingListener& listener_;
  std::mutex mutex_;  // guards the map, not what is in it
  std::map<void*, std::unique_ptr<Watched>> watched_;
};

}  // namespace resid::ggml

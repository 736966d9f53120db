// ggml's registry and scheduler: where a sensor for routing gets in.
//
// The registry. llama.cpp asks how many backends there are (ggml_backend_reg_count) when it is
// initialised and again before it loads a model, in whatever way it was called. It loads plug-ins,
// and so reads GGML_BACKEND_PATH, only when the answer is none: not where the CPU's code is linked
// in, and not where the program has loaded it by itself. So when there is a CPU to compute on and
// our backend is still missing, it is loaded here. The functions that load a model cannot be
// interposed themselves: their parameters are a structure, passed by value.
//
// The scheduler. Where the backend cannot be, the evaluation callback tells
// (ggml/eval_routing.hpp). That is settled here too, because the policy is chosen when the model is
// mapped.
//
// What is missing in the program's ggml is done without.

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "ggml/eval_routing.hpp"
#include "ggml/next.hpp"
#include "preload/experts.hpp"
#include "preload/export.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

using ggml::EvalCallback;
using ggml::EvalFunctions;
using ggml::EvalRouting;

// ---- The backend

struct Registry {
  const char* (*version)() = nullptr;
  void* (*dev_by_type)(int type) = nullptr;
  void* (*reg_by_name)(const char* name) = nullptr;
  void* (*load)(const char* path) = nullptr;

  bool find(const void* address) {
    return ggml::find_beside(address, "ggml_version", version) &&
           ggml::find_beside(address, "ggml_backend_dev_by_type", dev_by_type) &&
           ggml::find_beside(address, "ggml_backend_reg_by_name", reg_by_name) &&
           ggml::find_beside(address, "ggml_backend_load", load);
  }
};
constexpr int kCpuDevice = 0;  // enum ggml_backend_dev_type

void load_backend(const Registry& registry, const char* path) {
  if (*path == '\0' || std::strcmp(registry.version(), RESID_GGML_VERSION) != 0) return;
  if (registry.reg_by_name(RESID_GGML_NAME) == nullptr) registry.load(path);
}

// `count`: ggml_backend_reg_count of a ggml that has backends. Once there is a CPU among them, the
// first sensor that can be is settled. ggml's registry has no lock of its own: this is where
// llama.cpp has it filled, too.
void settle_sensor(const void* count) {
  static std::mutex mutex;
  static bool settled = false;
  Session* session = Session::get();
  if (session == nullptr || session->detached()) return;
  const std::lock_guard guard(mutex);
  Registry registry;
  if (settled || !registry.find(count) || registry.dev_by_type(kCpuDevice) == nullptr) return;
  settled = true;
  load_backend(registry, session->page().ggml_backend);
  // It has spoken up by now, unless it has no device to offer: beside a GPU, say.
  if (session->expert_sensor() != ExpertSensor::faults) return;
  if (EvalFunctions functions{}; functions.find(count)) {
    session->expect_routing(ExpertSensor::eval_callback);
  }
}

// ---- The evaluation callback

class Listener final : public ggml::RoutingListener {
 public:
  std::vector<std::string> stack_names() override {
    Pager* pager = Session::pager();
    return pager == nullptr ? std::vector<std::string>{} : pager->stack_names();
  }
  ggml::Stack stack_at(const void* address) override {
    Pager* pager = Session::pager();
    if (pager == nullptr) return {};
    const Pager::ExpertStack found = pager->stack_at(address);
    return {found.layer, found.experts, address};
  }
  void routed(const resid_routed& call) noexcept override {
    try {
      preload::routed(call, ExpertSensor::eval_callback);
    } catch (...) {
      return;  // out of memory: slices come by their faults
    }
  }
};

// That of the ggml whose ggml_backend_sched_set_eval_callback this is; null when the callback is
// not the sensor. Never destroyed, as nothing here is: a graph may be computed until the end.
EvalRouting* eval_routing(const void* real) {
  Session* session = Session::get();
  if (session == nullptr || session->detached() ||
      session->expert_sensor() != ExpertSensor::eval_callback) {
    return nullptr;
  }
  static std::mutex mutex;
  static auto& known = *new std::map<const void*, std::unique_ptr<EvalRouting>>;
  static auto& listener = *new Listener;
  const std::lock_guard guard(mutex);
  auto& routing = known[real];
  if (routing == nullptr) {
    EvalFunctions functions{};
    if (!functions.find(real)) return nullptr;
    routing = std::make_unique<EvalRouting>(functions, listener);
  }
  return routing.get();
}

// The scheduler's functions are of one library: each finds the others from where it is.
EvalRouting* eval_routing_beside(const void* real) {
  return eval_routing(ggml::function_beside(real, "ggml_backend_sched_set_eval_callback"));
}

// What fails for want of memory goes on without the sensor.
template <class F>
void watch(F&& f) {
  try {
    const Inside inside;
    f();
  } catch (...) {
    return;
  }
}

template <class F>
F* next(ggml::Next& symbol, const void* caller) {
  return reinterpret_cast<F*>(symbol.behind(caller));
}

}  // namespace
}  // namespace resid::preload

using namespace resid;
using namespace resid::preload;

RESID_EXPORT std::size_t ggml_backend_reg_count() {
  static ggml::Next symbol("ggml_backend_reg_count",
                           reinterpret_cast<const void*>(ggml_backend_reg_count));
  auto* real = next<std::size_t()>(symbol, __builtin_return_address(0));
  if (real == nullptr) return 0;
  // Plug-ins that are still to be loaded come first: ggml names ours among them, and last. Looking
  // for ours, the registry counts as well.
  if (!Inside::active() && real() != 0)
    watch([&] { settle_sensor(reinterpret_cast<const void*>(real)); });
  return real();
}

RESID_EXPORT void ggml_backend_sched_set_eval_callback(void* sched, EvalCallback callback,
                                                       void* user_data) {
  static ggml::Next symbol("ggml_backend_sched_set_eval_callback",
                           reinterpret_cast<const void*>(ggml_backend_sched_set_eval_callback));
  auto* real = next<void(void*, EvalCallback, void*)>(symbol, __builtin_return_address(0));
  if (real == nullptr) return;
  real(sched, callback, user_data);
  watch([&] {
    EvalRouting* routing = eval_routing(reinterpret_cast<const void*>(real));
    if (routing != nullptr) routing->program_has_set(sched, callback, user_data);
  });
}

RESID_EXPORT bool ggml_backend_sched_alloc_graph(void* sched, void* graph) {
  static ggml::Next symbol("ggml_backend_sched_alloc_graph",
                           reinterpret_cast<const void*>(ggml_backend_sched_alloc_graph));
  auto* real = next<bool(void*, void*)>(symbol, __builtin_return_address(0));
  if (real == nullptr || !real(sched, graph)) return false;
  watch([&] {
    EvalRouting* routing = eval_routing_beside(reinterpret_cast<const void*>(real));
    if (routing != nullptr) routing->graph_is_ready(sched, graph);
  });
  return true;
}

RESID_EXPORT void ggml_backend_sched_free(void* sched) {
  static ggml::Next symbol("ggml_backend_sched_free",
                           reinterpret_cast<const void*>(ggml_backend_sched_free));
  auto* real = next<void(void*)>(symbol, __builtin_return_address(0));
  if (real == nullptr) return;
  watch([&] {
    EvalRouting* routing = eval_routing_beside(reinterpret_cast<const void*>(real));
    if (routing != nullptr) routing->forget(sched);
  });
  real(sched);
}

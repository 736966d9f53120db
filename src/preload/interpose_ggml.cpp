// ggml's registry: where a sensor for routing gets in.
//
// The registry. llama.cpp asks how many backends there are (ggml_backend_reg_count) when it is
// initialised and again before it loads a model, in whatever way it was called. It loads plug-ins,
// and so reads GGML_BACKEND_PATH, only when the answer is none: not where the CPU's code is linked
// in, and not where the program has loaded it by itself. So when there is a CPU to compute on and
// our backend is still missing, it is loaded here. The functions that load a model cannot be
// interposed themselves: their parameters are a structure, passed by value.
//
// What is missing in the program's ggml is done without.

#include <cstring>
#include <mutex>

#include "ggml/backend/routed.h"
#include "ggml/next.hpp"
#include "preload/export.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

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
// backend is loaded unless it is there. ggml's registry has no lock of its own: this is where
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

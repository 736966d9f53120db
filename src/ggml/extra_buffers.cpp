#include "ggml/extra_buffers.hpp"

#include <atomic>
#include <cstring>

#include "ggml/next.hpp"

namespace resid::ggml {
namespace {

using GetProcAddress = void* (*)(void* registry, const char* name);

std::atomic<void (*)()> g_told{nullptr};

}  // namespace

void deny_extra_buffers(void (*told)()) {
  g_told.store(told, std::memory_order_release);
}

}  // namespace resid::ggml

extern "C" __attribute__((visibility("default"))) void* ggml_backend_reg_get_proc_address(
    void* registry, const char* name) {
  using namespace resid::ggml;
  const auto told = g_told.load(std::memory_order_acquire);
  if (told != nullptr && name != nullptr &&
      std::strcmp(name, "ggml_backend_dev_get_extra_bufts") == 0) {
    told();
    return nullptr;
  }
  static Next next("ggml_backend_reg_get_proc_address",
                   reinterpret_cast<const void*>(ggml_backend_reg_get_proc_address));
  const auto real = reinterpret_cast<GetProcAddress>(next.behind(__builtin_return_address(0)));
  return real == nullptr ? nullptr : real(registry, name);
}

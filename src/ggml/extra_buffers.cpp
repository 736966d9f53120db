#include "ggml/extra_buffers.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace resid::ggml {
namespace {

using GetProcAddress = void* (*)(void* registry, const char* name);
constexpr const char* kSymbol = "ggml_backend_reg_get_proc_address";

std::atomic<void (*)()> g_told{nullptr};
std::atomic<GetProcAddress> g_real{nullptr};

// ggml's own definition. A libllama opened with RTLD_LOCAL (Python's ctypes does) has its ggml
// outside the global search order, where RTLD_NEXT does not look: then it is found among the
// dependencies of the library that called.
GetProcAddress find_real(void* caller, GetProcAddress ours) {
  if (const GetProcAddress known = g_real.load(std::memory_order_acquire)) return known;
  void* found = ::dlsym(RTLD_NEXT, kSymbol);
  Dl_info info{};
  if (found == nullptr && ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr) {
    // Stays open: it was loaded already, and its ggml must outlive the pointer kept here.
    if (void* library = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      found = ::dlsym(library, kSymbol);
    }
  }
  const auto real = reinterpret_cast<GetProcAddress>(found);
  if (real == nullptr || real == ours) return nullptr;
  g_real.store(real, std::memory_order_release);
  return real;
}

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
  const GetProcAddress real =
      find_real(__builtin_return_address(0), ggml_backend_reg_get_proc_address);
  return real == nullptr ? nullptr : real(registry, name);
}

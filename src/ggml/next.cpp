#include "ggml/next.hpp"

#include <dlfcn.h>

namespace resid::ggml {

void* function_beside(const void* address, const char* symbol) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  // It is loaded, and stays open: what is found in it must not outlive it.
  void* library = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, symbol);
}

void* Next::behind(const void* caller) {
  void* found = global_.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = ::dlsym(RTLD_NEXT, symbol_);
  if (found != nullptr) {
    global_.store(found, std::memory_order_release);
    return found;
  }
  found = function_beside(caller, symbol_);
  return found == ours_ ? nullptr : found;
}

}  // namespace resid::ggml

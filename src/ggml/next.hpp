#pragma once
// What an exported function of ggml or llama.cpp would be without us: the definition that the
// caller of an interposed one would have reached.

#include <atomic>

namespace resid::ggml {

// One interposed function. A static object; it has no destructor.
class Next {
 public:
  // `ours`: the definition that takes its place.
  constexpr Next(const char* symbol, const void* ours) : symbol_(symbol), ours_(ours) {}
  // Null when there is none. `caller`: an address inside whoever called ours. A library that was
  // opened with RTLD_LOCAL (Python's ctypes does) has its ggml outside the global search order, and
  // two of them may have one each.
  void* behind(const void* caller);

 private:
  const char* symbol_;
  const void* ours_;
  std::atomic<void*> global_{nullptr};
};

// A function of the library that holds `address`, or of what that library depends on; null when
// there is none.
void* function_beside(const void* address, const char* symbol);

template <class F>
bool find_beside(const void* address, const char* symbol, F& into) {
  into = reinterpret_cast<F>(function_beside(address, symbol));
  return into != nullptr;
}

}  // namespace resid::ggml

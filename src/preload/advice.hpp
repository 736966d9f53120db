#pragma once
// What becomes of advice that a program gives about an app view or about a model file.

namespace resid::preload {

struct AdviceVerdict {
  int error = 0;  // 0: accepted, as a hint that changes nothing
};

// madvise(2) on an app view. Hints never reach the kernel: those that fill memory would defeat the
// budget, and those that set a flag on part of a mapping split the VMA, across which one CONTINUE
// cannot reach. What would discard or alter content fails as it does on a read-only file mapping.
AdviceVerdict advice_on_view(int advice);

// True for posix_fadvise advice that fills the page cache or widens its read-ahead: pointless for a
// file whose pages are kept by us.
bool advice_fills_cache(int advice);

}  // namespace resid::preload

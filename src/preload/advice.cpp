#include "preload/advice.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

namespace resid::preload {
namespace {

// Not in Debian 12's headers (asm-generic/mman-common.h; COLLAPSE is of kernel 6.1, GUARD of 6.13).
constexpr int kMadvSoftOffline = 101;
constexpr int kMadvCollapse = 25;
constexpr int kMadvGuardInstall = 102;
constexpr int kMadvGuardRemove = 103;

}  // namespace

AdviceVerdict advice_on_view(int advice) {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTNEED:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_POPULATE_READ:
      return {};
    case MADV_REMOVE:
      return {EACCES};  // needs a writable mapping (madvise(2))
    case MADV_HWPOISON:
    case kMadvSoftOffline:
      return {EPERM};
    case MADV_FREE:        // anonymous memory only
    case MADV_WIPEONFORK:  // private anonymous memory only
    case MADV_KEEPONFORK:
    case MADV_POPULATE_WRITE:  // not writable
    case kMadvCollapse:        // I-9
    case kMadvGuardInstall:    // would replace pages that we account for
    case kMadvGuardRemove:
    default:
      return {EINVAL};
  }
}

bool advice_fills_cache(int advice) {
  return advice == POSIX_FADV_WILLNEED || advice == POSIX_FADV_SEQUENTIAL;
}

}  // namespace resid::preload

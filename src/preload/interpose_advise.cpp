// Advice and locks: what would fill memory behind the budget's back becomes a hint or a pin.

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "preload/advice.hpp"
#include "preload/export.hpp"
#include "preload/real.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

// Applies `on_view` to the whole range when it touches a view and `on_rest` to each part of it that
// is none. Both return 0 or an errno value; the first error is the answer.
template <class View, class Rest>
int split(const void* address, std::size_t bytes, View&& on_view, Rest&& on_rest) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  try {
    if (const int error = on_view(Range{begin, begin + bytes})) return error;
    for (const Piece& piece : Session::get()->pieces({begin, begin + bytes})) {
      if (piece.is_view) continue;
      if (const int error =
              on_rest(reinterpret_cast<void*>(piece.range.begin), piece.range.bytes())) {
        return error;
      }
    }
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}

int as_error(int result) {
  return result == 0 ? 0 : errno;
}
int as_result(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// mlock works on whole pages, whatever address it is given (mlock(2)).
Range pages_of(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {page_down(begin), page_up(begin + bytes)};
}

template <class Rest>
int lock(const void* address, std::size_t bytes, Rest&& on_rest) {
  const Range pages = pages_of(address, bytes);
  return as_result(split(
      reinterpret_cast<const void*>(pages.begin), pages.bytes(),
      [](Range range) { return Session::get()->lock(range); }, on_rest));
}

int fadvise(int fd, off_t offset, off_t bytes, int advice) {
  Session* session = Session::get();
  if (session != nullptr && !Inside::active() && advice_fills_cache(advice)) {
    try {
      const Inside inside;
      if (session->is_model(fd)) return 0;
    } catch (...) {
      return ENOMEM;
    }
  }
  return real.posix_fadvise(fd, offset, bytes, advice);
}

}  // namespace
}  // namespace resid::preload

using namespace resid;
using namespace resid::preload;

RESID_EXPORT int madvise(void* address, std::size_t bytes, int advice) noexcept {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % kPage != 0 ||
      Session::pager_of(address, bytes) == nullptr) {
    return real.madvise(address, bytes, advice);
  }
  return as_result(split(
      address, page_up(bytes), [&](Range) { return advice_on_view(advice).error; },
      [&](void* at, std::size_t n) { return as_error(real.madvise(at, n, advice)); }));
}

RESID_EXPORT int posix_madvise(void* address, std::size_t bytes, int advice) noexcept {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % kPage != 0 ||
      Session::pager_of(address, bytes) == nullptr) {
    return real.posix_madvise(address, bytes, advice);
  }
  return split(
      address, page_up(bytes), [&](Range) { return advice_on_view(advice).error; },
      [&](void* at, std::size_t n) { return real.posix_madvise(at, n, advice); });
}

RESID_EXPORT int mlock(const void* address, std::size_t bytes) noexcept {
  if (bytes == 0 || Session::pager_of(address, bytes) == nullptr) return real.mlock(address, bytes);
  return lock(address, bytes, [](void* at, std::size_t n) { return as_error(real.mlock(at, n)); });
}

RESID_EXPORT int mlock2(const void* address, std::size_t bytes, unsigned flags) noexcept {
  if (bytes == 0 || Session::pager_of(address, bytes) == nullptr) {
    return real.mlock2(address, bytes, flags);
  }
  if ((flags & ~static_cast<unsigned>(MLOCK_ONFAULT)) != 0) {
    errno = EINVAL;
    return -1;
  }
  // MLOCK_ONFAULT asks for less than a pin gives; what it promises is kept.
  return lock(address, bytes,
              [flags](void* at, std::size_t n) { return as_error(real.mlock2(at, n, flags)); });
}

RESID_EXPORT int munlock(const void* address, std::size_t bytes) noexcept {
  if (bytes == 0 || Session::pager_of(address, bytes) == nullptr) {
    return real.munlock(address, bytes);
  }
  const Range pages = pages_of(address, bytes);
  return as_result(split(
      reinterpret_cast<const void*>(pages.begin), pages.bytes(),
      [](Range range) {
        Session::get()->unlock(range);
        return 0;
      },
      [](void* at, std::size_t n) { return as_error(real.munlock(at, n)); }));
}

RESID_EXPORT int mlockall(int flags) noexcept {
  Session* session = Session::get();
  if (session == nullptr || session->detached() || Inside::active()) return real.mlockall(flags);
  // Would make every present or future view resident at once.
  session->notice(Notice::lock_all,
                  "mlockall is ignored: it would read the whole model past the budget (--ram)");
  return 0;
}

RESID_EXPORT int munlockall() noexcept {
  if (Session::pager() != nullptr && !Inside::active()) {
    try {
      Session::get()->unlock_all();
    } catch (...) {
      errno = ENOMEM;
      return -1;
    }
  }
  return real.munlockall();
}

RESID_EXPORT int posix_fadvise(int fd, off_t offset, off_t bytes, int advice) noexcept {
  return fadvise(fd, offset, bytes, advice);
}
RESID_EXPORT int posix_fadvise64(int fd, off64_t offset, off64_t bytes, int advice) noexcept {
  return fadvise(fd, offset, bytes, advice);
}

RESID_EXPORT ssize_t readahead(int fd, off64_t offset, std::size_t bytes) noexcept {
  Session* session = Session::get();
  if (session != nullptr && !Inside::active()) {
    try {
      const Inside inside;
      if (session->is_model(fd)) return 0;
    } catch (...) {
      errno = ENOMEM;
      return -1;
    }
  }
  return real.readahead(fd, offset, bytes);
}

// mmap, munmap, mremap and mprotect as the program sees them.
//
// Compiled without _FILE_OFFSET_BITS, which would make the headers rename mmap to mmap64: both
// names are defined here.

#include <sys/mman.h>

#include <cerrno>
#include <cstdarg>

#include "preload/export.hpp"
#include "preload/real.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

Range range_of(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + page_up(bytes)};
}

// Whether [address, address + bytes) is a range at all.
bool sane(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return begin % kPage == 0 && bytes != 0 && page_up(bytes) >= bytes &&
         begin + page_up(bytes) > begin;
}

void* map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  Session* session = Session::get();
  if (session == nullptr || Inside::active()) {
    return real.mmap(address, bytes, protection, flags, fd, offset);
  }
  const bool file = fd >= 0 && (flags & MAP_ANONYMOUS) == 0;
  if (file) {
    try {
      const MapAnswer answer = session->map(address, bytes, protection, flags, fd, offset);
      if (answer.kind == MapAnswer::Kind::mapped) return answer.address;
      if (answer.kind == MapAnswer::Kind::refused) {
        errno = answer.error;
        return MAP_FAILED;
      }
    } catch (...) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
  }
  if ((flags & MAP_FIXED) != 0 && sane(address, bytes) &&
      Session::pager_of(address, bytes) != nullptr) {
    // The program maps something else over a view. It is given up first; the kernel offers no way
    // to replace the mapping and tell the pager in one step.
    try {
      (void)session->unmap(range_of(address, bytes));
    } catch (...) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
  }
  return real.mmap(address, bytes, protection, flags, fd, offset);
}

}  // namespace
}  // namespace resid::preload

using namespace resid;
using namespace resid::preload;

RESID_EXPORT void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
                        off_t offset) noexcept {
  return map(address, bytes, protection, flags, fd, offset);
}
RESID_EXPORT void* mmap64(void* address, std::size_t bytes, int protection, int flags, int fd,
                          off64_t offset) noexcept {
  return map(address, bytes, protection, flags, fd, offset);
}

RESID_EXPORT int munmap(void* address, std::size_t bytes) noexcept {
  if (!sane(address, bytes) || Session::pager_of(address, bytes) == nullptr) {
    return real.munmap(address, bytes);
  }
  int error = ENOMEM;
  try {
    error = Session::get()->unmap(range_of(address, bytes));
  } catch (...) {
  }
  if (error == 0) return 0;
  errno = error;
  return -1;
}

RESID_EXPORT void* mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags,
                          ...) noexcept {
  void* wanted = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list rest;
    va_start(rest, flags);
    wanted = va_arg(rest, void*);
    va_end(rest);
  }
  const std::size_t probe = old_bytes == 0 ? 1 : old_bytes;
  const bool from_view = Session::pager_of(old, probe) != nullptr;
  const bool onto_view = (flags & MREMAP_FIXED) != 0 && sane(wanted, bytes) &&
                         Session::pager_of(wanted, bytes) != nullptr;
  try {
    if (from_view) {
      const MapAnswer answer =
          Session::get()->remap(range_of(old, old_bytes), bytes, flags, wanted);
      if (answer.kind == MapAnswer::Kind::mapped) return answer.address;
      errno = answer.error;
      return MAP_FAILED;
    }
    if (onto_view) (void)Session::get()->unmap(range_of(wanted, bytes));
  } catch (...) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return real.mremap(old, old_bytes, bytes, flags, wanted);
}

RESID_EXPORT int mprotect(void* address, std::size_t bytes, int protection) noexcept {
  if (sane(address, bytes) && Session::pager_of(address, bytes) != nullptr) {
    if ((protection & PROT_WRITE) != 0) {
      // The memory file below is writable; the model file the program believes to have mapped is
      // not, and its open mode decides (mprotect(2)).
      errno = EACCES;
      return -1;
    }
    // Nothing changes, and a call would be free to split the mapping.
    if (protection == PROT_READ) {
      bool all_view = true;
      try {
        for (const Piece& piece : Session::get()->pieces(range_of(address, bytes))) {
          all_view = all_view && piece.is_view;
        }
      } catch (...) {
        all_view = false;
      }
      if (all_view && !Session::get()->reprotected()) return 0;
    } else {
      Session::get()->note_reprotected();
    }
  }
  return real.mprotect(address, bytes, protection);
}

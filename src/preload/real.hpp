#pragma once
// The libc functions behind the ones this library interposes.
//
// Every entry starts as a bare system call and is replaced by the next definition in the search
// order (dlsym RTLD_NEXT) when the library is initialised. So calls made by other libraries'
// constructors before ours has run work, and another interposer that comes after us stays in
// effect afterwards.

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdio>

namespace resid::preload {

static_assert(sizeof(off_t) == 8, "mmap and mmap64 are taken to be one function");

struct Real {
  void* (*mmap)(void*, std::size_t, int, int, int, off_t);
  int (*munmap)(void*, std::size_t);
  void* (*mremap)(void*, std::size_t, std::size_t, int, void*);
  int (*mprotect)(void*, std::size_t, int);
  int (*madvise)(void*, std::size_t, int);
  int (*posix_madvise)(void*, std::size_t, int);  // returns the error
  int (*mlock)(const void*, std::size_t);
  int (*mlock2)(const void*, std::size_t, unsigned);
  int (*munlock)(const void*, std::size_t);
  int (*mlockall)(int);
  int (*munlockall)();
  int (*posix_fadvise)(int, off_t, off_t, int);  // returns the error
  ssize_t (*readahead)(int, off_t, std::size_t);
  ssize_t (*write)(int, const void*, std::size_t);
  ssize_t (*pwrite)(int, const void*, std::size_t, off_t);
  ssize_t (*writev)(int, const iovec*, int);
  ssize_t (*pwritev)(int, const iovec*, int, off_t);
  ssize_t (*send)(int, const void*, std::size_t, int);
  ssize_t (*sendto)(int, const void*, std::size_t, int, const sockaddr*, socklen_t);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  std::size_t (*fwrite)(const void*, std::size_t, std::size_t, std::FILE*);
  std::size_t (*fwrite_unlocked)(const void*, std::size_t, std::size_t, std::FILE*);
};

extern Real real;

// Looks every entry up once. Called by the library's constructor, before the program has threads
// of its own in all but exotic cases; the pointers are valid before and after.
void resolve_real();

}  // namespace resid::preload

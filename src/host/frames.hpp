#pragma once
// Where resident bytes live: a file of memory per region, on a memory file system of our own where
// the kernel lets us mount one, else a memfd.
//
// The difference is the size of its folios. The kernel's own mount, which memfd uses, has no large
// ones unless the administrator says so (shmem_enabled, `never` by default); a mount of our own has
// what its option says. On one machine, for a chunk of 2 MiB: writing it took 0.75 ms in 4 KiB
// pages and 0.10 in one folio, giving it back 0.32 and 0.012. At 3 GB/s of disk, where a chunk
// comes every 0.7 ms, that is the difference between a disk that waits and one that does not.
//
//   F-1  A large folio belongs to one chunk wholly, so that giving up a chunk never splits one and
//        what the kernel counts is what we count (I-7). The kernel takes a large folio for any
//        write(2) at all, however small (6.18, huge=always). So only chunks that are whole and
//        aligned large pages are filled by write(2); every other one is filled through the fill
//        view, whose faults take small pages because it is marked MADV_NOHUGEPAGE (I-9).
//   F-2  Both halves of F-1 are tried on a scratch file before a mount is used; where either does
//        not hold, a memfd serves.

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid::host {

class FrameSource {
 public:
  // `large`: try to have large folios. `noswap`: only a mount that is never swapped will do, else
  // swap_unsafe; without it a memfd is always there.
  static Result<FrameSource> open(bool large, bool noswap = false);

  // A sparse file of `bytes`, whose name appears as `label` in /proc/PID/maps.
  Result<Fd> make(const std::string& label, std::uint64_t bytes) const;

  bool large() const { return large_; }
  // The kernel never swaps these files (tmpfs noswap, kernel 6.4; not in a user namespace).
  bool noswap() const { return noswap_; }

 private:
  Fd mount_;  // empty: memfds
  bool large_ = false;
  bool noswap_ = false;
};

}  // namespace resid::host

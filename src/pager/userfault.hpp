#pragma once
// userfaultfd(2): opening it, and the few requests the pager makes.
//
// Constants are our own: Debian 12's headers (6.1) know neither POISON nor EXACT_ADDRESS
// everywhere, and what counts is what the running kernel says in the handshake, not what it was
// built with.

#include <cstdint>
#include <string_view>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid {

// How the descriptor was had, best first.
enum class UffdRoute : std::uint8_t {
  device,          // /dev/userfaultfd, kernel 6.1: decided by the file's permissions
  syscall,         // CAP_SYS_PTRACE or vm.unprivileged_userfaultfd = 1
  user_mode_only,  // any user since 5.11; faults taken inside system calls give EFAULT instead
};
std::string_view name(UffdRoute route);

// One fault as the pager needs it.
struct FaultMessage {
  std::uint64_t address = 0;
  bool minor = false;
  std::uint32_t thread = 0;  // who sleeps on it; 0: the kernel does not say (before 4.14)
};

// How a fill request ended.
enum class FillResult : std::uint8_t {
  done,      // every page of the range is mapped and its waiters are awake
  unmapped,  // (part of) the range is no longer registered: the program unmapped it
  absent,    // a page is not in the memfd: it was evicted meanwhile
  failed,    // anything else; errno tells
};

// What happened on the way, for the counters.
struct FillEvents {
  std::uint32_t partial = 0;
  std::uint32_t exists = 0;
  std::uint32_t again = 0;
};

class Userfault {
 public:
  // Tries the routes in order and checks by handshake that shmem MISSING and MINOR faults exist
  // (kernel 5.14). `only` restricts to one route, for tests.
  static Result<Userfault> open();
  static Result<Userfault> open(UffdRoute only);

  int fd() const { return fd_.get(); }
  UffdRoute route() const { return route_; }
  bool exact_address() const { return exact_address_; }  // kernel 5.18
  bool can_poison() const { return can_poison_; }        // kernel 6.6

  // Registers [address, address + bytes) for missing and minor faults; 0 or errno.
  int add_range(std::uint64_t address, std::uint64_t bytes) const;

  // Reads up to `capacity` messages without blocking; 0 when the queue is empty (I-2: only EAGAIN
  // says so). Events other than page faults are not requested and are skipped. Negative errno on
  // failure.
  int read(FaultMessage* messages, int capacity) const;

  // Maps the pages of the range that the memfd holds, and wakes (I-5). Pages that are mapped
  // already are skipped and woken.
  FillResult map(std::uint64_t address, std::uint64_t bytes, FillEvents& events) const;
  // As map(), but stops at the first page that is mapped already: for chunks of which only a few
  // pages are unmapped.
  FillResult map_until_present(std::uint64_t address, std::uint64_t bytes,
                               FillEvents& events) const;
  // Maps whole large pages that the memfd holds, each by one entry of the page table, and
  // wakes: 1.6 us for what map() takes 125 for. False when the kernel would not
  // (MADV_COLLAPSE: 6.1, and the mapping must be aligned like the file): map() does it then.
  bool map_large(std::uint64_t address, std::uint64_t bytes) const;
  void wake(std::uint64_t address, std::uint64_t bytes) const;
  // Makes touches of the range fail with SIGBUS, for good. False when the kernel cannot.
  bool poison(std::uint64_t address, std::uint64_t bytes) const;

 private:
  FillResult fill(std::uint64_t address, std::uint64_t bytes, bool stop_at_present,
                  FillEvents& events) const;
  Fd fd_;
  UffdRoute route_ = UffdRoute::device;
  bool exact_address_ = false;
  bool can_poison_ = false;
};

}  // namespace resid

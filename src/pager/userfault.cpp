#include "pager/userfault.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid {
namespace {

// include/uapi/linux/userfaultfd.h of Linux 6.18; ABI, so they hold for every kernel.
constexpr std::uint64_t kFeatureMissingShmem = 1ULL << 5;
constexpr std::uint64_t kFeatureThreadId = 1ULL << 8;
constexpr std::uint64_t kFeatureMinorShmem = 1ULL << 10;
constexpr std::uint64_t kFeatureExactAddress = 1ULL << 11;
constexpr std::uint64_t kFeaturePoison = 1ULL << 14;
constexpr int kUserModeOnly = 1;
constexpr unsigned long kDeviceNew = 0xAA00;  // USERFAULTFD_IOC_NEW
constexpr std::uint64_t kRegisterMissing = 1ULL << 0;
constexpr std::uint64_t kRegisterMinor = 1ULL << 2;
constexpr std::uint64_t kFlagMinor = 1ULL << 2;  // UFFD_PAGEFAULT_FLAG_MINOR
constexpr unsigned kNrContinue = 0x07;
constexpr unsigned kNrPoison = 0x08;

struct Continue {
  uffdio_range range;
  std::uint64_t mode;
  std::int64_t mapped;
};
struct Poison {
  uffdio_range range;
  std::uint64_t mode;
  std::int64_t updated;
};
constexpr unsigned long kContinue = _IOWR(UFFDIO, kNrContinue, Continue);
constexpr unsigned long kPoison = _IOWR(UFFDIO, kNrPoison, Poison);

int open_route(UffdRoute route) {
  const int flags = O_CLOEXEC | O_NONBLOCK;  // I-2
  switch (route) {
    case UffdRoute::device: {
      const Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
      return device ? ::ioctl(device.get(), kDeviceNew, flags) : -1;
    }
    case UffdRoute::syscall:
      return static_cast<int>(::syscall(SYS_userfaultfd, flags));
    case UffdRoute::user_mode_only:
      return static_cast<int>(::syscall(SYS_userfaultfd, flags | kUserModeOnly));
  }
  errno = EINVAL;
  return -1;
}

// The handshake: a descriptor accepts UFFDIO_API once, so the question and the answer need one
// each.
bool handshake(int fd, std::uint64_t wanted, std::uint64_t& offered) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = wanted;
  if (::ioctl(fd, UFFDIO_API, &api) != 0) return false;
  offered = api.features;
  return true;
}

}  // namespace

std::string_view name(UffdRoute route) {
  switch (route) {
    case UffdRoute::device:
      return "/dev/userfaultfd";
    case UffdRoute::syscall:
      return "userfaultfd";
    case UffdRoute::user_mode_only:
      return "user-mode-only";
  }
  return "?";
}

Result<Userfault> Userfault::open() {
  Result<Userfault> last = fail(Status::no_userfaultfd, "userfaultfd", "no route tried");
  std::string reasons;
  for (const UffdRoute route : {UffdRoute::device, UffdRoute::syscall, UffdRoute::user_mode_only}) {
    last = open(route);
    if (last || last.error().status == Status::kernel_too_old) return last;
    reasons += (reasons.empty() ? "" : "; ") + last.error().why;
  }
  return fail(Status::no_userfaultfd, "userfaultfd", reasons);
}

Result<Userfault> Userfault::open(UffdRoute route) {
  const Fd question(open_route(route));
  if (!question) {
    return fail(Status::no_userfaultfd, "userfaultfd",
                fmt::format("{}: {}", name(route), std::generic_category().message(errno)));
  }
  std::uint64_t offered = 0;
  constexpr std::uint64_t kNeeded = kFeatureMissingShmem | kFeatureMinorShmem;
  if (!handshake(question.get(), 0, offered) || (offered & kNeeded) != kNeeded) {
    return fail(Status::kernel_too_old, "userfaultfd",
                fmt::format("the kernel offers features {:#x}, without minor faults on shared "
                            "memory",
                            offered));
  }
  Userfault uffd;
  uffd.route_ = route;
  uffd.exact_address_ = (offered & kFeatureExactAddress) != 0;
  uffd.can_poison_ = (offered & kFeaturePoison) != 0;
  uffd.fd_.reset(open_route(route));
  if (!uffd.fd_) return fail_errno(Status::no_userfaultfd, "userfaultfd", errno);
  // Bits that the kernel does not offer would make it refuse the handshake.
  const std::uint64_t wanted =
      kNeeded | (offered & (kFeatureExactAddress | kFeaturePoison | kFeatureThreadId));
  if (!handshake(uffd.fd_.get(), wanted, offered)) {
    return fail_errno(Status::kernel_too_old, "userfaultfd", errno);
  }
  return uffd;
}

int Userfault::add_range(std::uint64_t address, std::uint64_t bytes) const {
  uffdio_register request{};
  request.range = {address, bytes};
  request.mode = kRegisterMissing | kRegisterMinor;
  if (::ioctl(fd_.get(), UFFDIO_REGISTER, &request) != 0) return errno;
  return (request.ioctls & (1ULL << kNrContinue)) != 0 ? 0 : EOPNOTSUPP;
}

int Userfault::read(FaultMessage* messages, int capacity) const {
  std::array<uffd_msg, 64> raw;
  const int room =
      capacity < static_cast<int>(raw.size()) ? capacity : static_cast<int>(raw.size());
  ssize_t n = 0;
  do {
    n = ::read(fd_.get(), raw.data(), sizeof(uffd_msg) * static_cast<std::size_t>(room));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN ? 0 : -errno;
  int count = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n) / sizeof(uffd_msg); ++i) {
    if (raw[i].event != UFFD_EVENT_PAGEFAULT) continue;
    messages[count].address = raw[i].arg.pagefault.address;
    messages[count].minor = (raw[i].arg.pagefault.flags & kFlagMinor) != 0;
    messages[count].thread = raw[i].arg.pagefault.feat.ptid;
    ++count;
  }
  // Only foreign events: not an empty queue, so the caller must read again.
  return count == 0 && n > 0 ? read(messages, capacity) : count;
}

FillResult Userfault::fill(std::uint64_t address, std::uint64_t bytes, bool stop_at_present,
                           FillEvents& events) const {
  while (bytes != 0) {
    Continue request{{address, bytes}, 0, 0};
    if (::ioctl(fd_.get(), kContinue, &request) == 0) {
      if (request.mapped == static_cast<std::int64_t>(bytes)) return FillResult::done;
      errno = EAGAIN;  // success with less than all: not documented, treated as progress
    }
    const int error = errno;
    // Partial progress is reported as EAGAIN with the bytes done; the cause of the stop comes with
    // the next request, which starts at it (mm/userfaultfd.c).
    if (request.mapped > 0) {
      ++events.partial;
      address += static_cast<std::uint64_t>(request.mapped);
      bytes -= static_cast<std::uint64_t>(request.mapped);
      continue;
    }
    switch (error) {
      case EEXIST:  // I-5: progress, but nobody has woken the sleepers of this page
        ++events.exists;
        wake(address, stop_at_present ? bytes : kPage);
        if (stop_at_present) return FillResult::done;
        address += kPage;
        bytes -= kPage;
        break;
      case EAGAIN:
        // The mappings are changing under us. We request no events that could need draining, so
        // giving up the processor is enough.
        ++events.again;
        ::sched_yield();
        break;
      case ENOENT:
      case EINVAL:
        return FillResult::unmapped;
      case EFAULT:
        return FillResult::absent;
      case ESRCH:  // the address space is being torn down
        return FillResult::unmapped;
      default:
        errno = error;
        return FillResult::failed;
    }
  }
  return FillResult::done;
}

FillResult Userfault::map(std::uint64_t address, std::uint64_t bytes, FillEvents& events) const {
  return fill(address, bytes, false, events);
}

FillResult Userfault::map_until_present(std::uint64_t address, std::uint64_t bytes,
                                        FillEvents& events) const {
  return fill(address, bytes, true, events);
}

bool Userfault::map_large(std::uint64_t address, std::uint64_t bytes) const {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  if (address % kLargePage != 0 ||
      sys::madvise(reinterpret_cast<void*>(address), bytes, kCollapse) != 0) {
    return false;
  }
  wake(address, bytes);
  return true;
}

void Userfault::wake(std::uint64_t address, std::uint64_t bytes) const {
  uffdio_range range{address, bytes};
  ::ioctl(fd_.get(), UFFDIO_WAKE, &range);
}

bool Userfault::poison(std::uint64_t address, std::uint64_t bytes) const {
  if (!can_poison_) return false;
  while (bytes != 0) {
    Poison request{{address, bytes}, 0, 0};
    if (::ioctl(fd_.get(), kPoison, &request) == 0) return true;
    if (request.updated > 0) {
      address += static_cast<std::uint64_t>(request.updated);
      bytes -= static_cast<std::uint64_t>(request.updated);
    } else if (errno == EAGAIN) {
      ::sched_yield();
    } else if (errno == EEXIST) {  // a page that is mapped keeps its (right) data
      wake(address, kPage);
      address += kPage;
      bytes -= kPage;
    } else {
      return errno == ENOENT || errno == EINVAL;  // unmapped meanwhile: nobody can touch it
    }
  }
  return true;
}

}  // namespace resid

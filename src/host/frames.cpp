#include "host/frames.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid::host {
namespace {

// fsopen(2) and its relatives: kernel 5.2; the values are ABI (include/uapi/linux/mount.h).
constexpr unsigned kFsopenCloexec = 1;
constexpr unsigned kFsconfigFlag = 0;
constexpr unsigned kFsconfigString = 1;
constexpr unsigned kFsconfigCreate = 6;
constexpr unsigned kFsmountCloexec = 1;
constexpr unsigned kMountNosuidNodev = 0x2 | 0x4;
constexpr unsigned kMfdCloexec = 1;

bool set(int context, unsigned command, const char* key, const char* value) {
  return ::syscall(SYS_fsconfig, context, command, key, value, 0) == 0;
}

// A mount that nobody else sees: it is attached nowhere and goes with its descriptor.
Fd mount_memory(bool large, bool& noswap) {
  const Fd context(static_cast<int>(::syscall(SYS_fsopen, "tmpfs", kFsopenCloexec)));
  if (!context) return {};
  // No limit but the control group's: the budget is ours to keep.
  if (!set(context.get(), kFsconfigString, "huge", large ? "always" : "never") ||
      !set(context.get(), kFsconfigString, "size", "0") ||
      !set(context.get(), kFsconfigString, "nr_inodes", "0")) {
    return {};
  }
  noswap = set(context.get(), kFsconfigFlag, "noswap", nullptr);
  if (!set(context.get(), kFsconfigCreate, nullptr, nullptr)) return {};
  return Fd(
      static_cast<int>(::syscall(SYS_fsmount, context.get(), kFsmountCloexec, kMountNosuidNodev)));
}

Fd make_in(int mount, const std::string& label) {
  Fd file(::openat(mount, label.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (file) ::unlinkat(mount, label.c_str(), 0);
  return file;
}

std::uint64_t held(int file) {
  struct stat st {};
  return ::fstat(file, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

// F-2: a large page written whole takes just itself, and a page touched through a view that asks
// for small ones takes a small one.
bool keeps_promises(int mount) {
  const Fd file = make_in(mount, "residctl:probe");
  if (!file || ::ftruncate(file.get(), 4 * static_cast<off_t>(kLargePage)) != 0) return false;
  constexpr std::uint64_t kViewBytes = kLargePage;
  void* source = sys::mmap(nullptr, kLargePage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (source == MAP_FAILED) return false;
  const auto written = sys::pwrite(file.get(), source, kLargePage, 0);
  sys::munmap(source, kLargePage);
  if (written != static_cast<ssize_t>(kLargePage) || held(file.get()) != kLargePage) return false;
  void* view =
      sys::mmap(nullptr, kViewBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), kLargePage);
  if (view == MAP_FAILED) return false;
  sys::madvise(view, kViewBytes, MADV_NOHUGEPAGE);
  *static_cast<volatile char*>(view) = 1;
  const bool small = held(file.get()) == kLargePage + kPage;
  sys::munmap(view, kViewBytes);
  return small;
}

}  // namespace

Result<FrameSource> FrameSource::open(bool large, bool noswap) {
  FrameSource source;
  if (large) {
    source.mount_ = mount_memory(true, source.noswap_);
    source.large_ = source.mount_ && keeps_promises(source.mount_.get());
    if (source.large_ && (source.noswap_ || !noswap)) return source;
  }
  source = {};
  if (!noswap) return source;
  source.mount_ = mount_memory(false, source.noswap_);
  if (source.mount_ && source.noswap_) return source;
  return fail(Status::swap_unsafe, "a mount of memory that is never swapped",
              "the kernel refused it (tmpfs noswap: Linux 6.4, CAP_SYS_ADMIN)");
}

Result<Fd> FrameSource::make(const std::string& label, std::uint64_t bytes) const {
  Fd file = mount_ ? make_in(mount_.get(), label)
                   : Fd(static_cast<int>(::syscall(SYS_memfd_create, label.c_str(), kMfdCloexec)));
  if (!file) return fail_errno(Status::system, "a file of memory for " + label, errno);
  // Sparse: nothing is resident until it is fetched.
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(Status::system, "the size of " + label, errno);
  }
  return file;
}

}  // namespace resid::host

#include "pager/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "base/sys.hpp"

namespace resid {
namespace {

constexpr unsigned kMlockOnFault = 0x1U;  // MLOCK_ONFAULT, kernel 4.4
constexpr int kPopulateWrite = 23;        // MADV_POPULATE_WRITE, kernel 5.14

}  // namespace

Result<std::unique_ptr<Region>> Region::open(int fd, const std::string& path, ModelFile file,
                                             ChunkPlan plan, const host::FrameSource& frames,
                                             bool lock_pages) {
  auto store = Store::open(fd, path);
  if (!store) return tl::unexpected(store.error());
  if (store->bytes() != plan.file_bytes()) {
    return fail(Status::store_changed, path,
                fmt::format("it has {} bytes now and had {} when it was read", store->bytes(),
                            plan.file_bytes()));
  }
  std::unique_ptr<Region> region(new Region(std::move(*store), std::move(file), std::move(plan)));
  const std::uint64_t bytes = region->plan_.mapped_bytes();

  // Seen in /proc/PID/maps; the kernel cuts names at 249 bytes and refuses longer ones.
  const std::string label = "residctl:" + path.substr(path.find_last_of('/') + 1).substr(0, 200);
  auto memory = frames.make(label, bytes);
  if (!memory) return tl::unexpected(memory.error());
  region->memfd_ = std::move(*memory);
  region->large_ = frames.large();
  // Before 6.4, which brought noswap too, khugepaged would fill the holes of a registered view.
  region->may_map_large_ = frames.noswap();
  region->locked_ = lock_pages;
  void* fill =
      sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->memfd_.get(), 0);
  if (fill == MAP_FAILED) return fail_errno(Status::out_of_memory, "mapping " + path, errno);
  region->fill_ = static_cast<std::uint8_t*>(fill);
  sys::madvise(fill, bytes, MADV_NOHUGEPAGE);  // F-1; fails where there are no huge pages at all
  sys::madvise(fill, bytes, MADV_DONTFORK);    // I-15
  sys::madvise(fill, bytes, MADV_DONTDUMP);    // a core dump would read every hole in
  if (lock_pages && sys::mlock2(fill, bytes, kMlockOnFault) != 0) {
    return fail(Status::swap_unsafe, path,
                fmt::format("mlock of {} address space: {}", format_bytes(bytes),
                            std::generic_category().message(errno)));
  }
  region->chunks_ = std::make_unique<ChunkState[]>(region->plan_.size());
  return region;
}

Region::~Region() {
  if (fill_ != nullptr) sys::munmap(fill_, plan_.mapped_bytes());
}

void Region::forbid_large(std::uint8_t* view, std::uint64_t offset, std::uint64_t bytes) const {
  // Every change of advice is a mapping more; a process has some 65,000 (vm.max_map_count).
  constexpr std::uint32_t kMost = 8192;
  const std::uint64_t end = offset + bytes;
  std::uint32_t changes = 0;
  if (large_ && may_map_large_ &&
      reinterpret_cast<std::uint64_t>(view - offset) % kLargePage == 0) {
    for (ChunkIndex i = 1; i < plan_.size(); ++i)
      changes += large(i) != large(i - 1) ? 1U : 0U;
  } else {
    changes = kMost;
  }
  if (changes >= kMost) {
    sys::madvise(view, bytes, MADV_NOHUGEPAGE);
    return;
  }
  std::uint64_t from = offset;
  const auto forbid = [&](std::uint64_t to) {
    if (to > from) sys::madvise(view + (from - offset), to - from, MADV_NOHUGEPAGE);
  };
  for (ChunkIndex i = 0; i < plan_.size(); ++i) {
    const Chunk& c = plan_[i];
    if (!large(i) || c.offset < offset || c.offset + c.bytes > end) continue;
    forbid(c.offset);
    from = c.offset + c.bytes;
  }
  forbid(end);
}

int Region::fill(ChunkIndex i, const std::uint8_t* bytes) const {
  const Chunk& c = plan_[i];
  if (locked_ || (large_ && !large(i))) return fill_small(c, bytes);  // F-1
  for (std::uint64_t done = 0; done < c.bytes;) {
    const ssize_t n = sys::pwrite(memfd_.get(), bytes + done, c.bytes - done, c.offset + done);
    // RLIMIT_FSIZE of the program, which counts for files of memory too, but not for mappings.
    if (n < 0 && errno == EFBIG) return fill_small(c, bytes);
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) done += static_cast<std::uint64_t>(n);
  }
  return 0;
}

int Region::fill_small(const Chunk& c, const std::uint8_t* bytes) const {
  // Not left to the page faults of the copy: where memory cannot be had they are a SIGBUS.
  if (sys::madvise(fill_ + c.offset, c.bytes, kPopulateWrite) != 0) return errno;
  std::memcpy(fill_ + c.offset, bytes, c.bytes);
  return 0;
}

std::int64_t Region::kernel_bytes() const {
  struct stat st {};
  if (::fstat(memfd_.get(), &st) != 0) return -errno;
  return static_cast<std::int64_t>(st.st_blocks) * 512;
}

int Region::punch(std::uint64_t offset, std::uint64_t bytes) const {
  for (;;) {
    if (::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
      return 0;
    }
    // A pending signal interrupts it; the hole is then partly made and making it again is harmless.
    if (errno != EINTR) return errno;
  }
}

}  // namespace resid

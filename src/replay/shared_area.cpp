#include "replay/shared_area.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace resid {

Result<SharedArea> SharedArea::make(std::uint64_t accesses, std::uint32_t passes) {
  const std::uint64_t bytes =
      sizeof(ReplayPage) + accesses * sizeof(TraceRecord) + passes * sizeof(std::uint64_t);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail_errno(Status::out_of_memory, "memory shared with the arm", errno);
  }
  auto* page = new (memory) ReplayPage;
  auto* rest = static_cast<std::uint8_t*>(memory) + sizeof(ReplayPage);
  page->drive.references = reinterpret_cast<TraceRecord*>(rest);
  page->drive.read_by_pass =
      reinterpret_cast<std::uint64_t*>(rest + accesses * sizeof(TraceRecord));
  return SharedArea(page, bytes);
}

SharedArea::SharedArea(SharedArea&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)), bytes_(other.bytes_) {}

SharedArea::~SharedArea() {
  if (page_ != nullptr) ::munmap(page_, bytes_);
}

void end_on_failure(void* context, Status status, const char* line) {
  auto* page = static_cast<ReplayPage*>(context);
  std::uint32_t none = 0;
  if (page->status.compare_exchange_strong(none, static_cast<std::uint32_t>(status))) {
    std::strncpy(page->error, line, sizeof page->error - 1);
    ::_exit(1);
  }
  // Another thread is writing its words and ends the process in a moment.
  for (;;)
    ::pause();
}

}  // namespace resid

#include "preload/bounce.hpp"

#include <sys/mman.h>

#include <climits>
#include <cstring>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid::preload {

Bounce::Bounce(std::size_t bytes) {
  void* memory = sys::mmap(nullptr, page_up(bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<char*>(memory);
  bytes_ = bytes;
}

Bounce::~Bounce() {
  if (data_ != nullptr) sys::munmap(data_, page_up(bytes_));
}

std::size_t Gather::take(char* into, std::size_t room) {
  std::size_t taken = 0;
  while (taken < room && at_ < count_) {
    const iovec& part = parts_[at_];
    const std::size_t n = std::min(room - taken, part.iov_len - within_);
    if (n != 0) std::memcpy(into + taken, static_cast<const char*>(part.iov_base) + within_, n);
    taken += n;
    within_ += n;
    if (within_ == part.iov_len) {
      ++at_;
      within_ = 0;
    }
  }
  return taken;
}

bool total_of(const iovec* parts, int count, std::size_t& total) {
  total = 0;
  if (count < 0 || count > IOV_MAX) return false;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - total) return false;
    total += parts[i].iov_len;
  }
  return true;
}

}  // namespace resid::preload

#include "preload/routing_spool.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/sys.hpp"
#include "control/routing_spool.hpp"

namespace resid::preload {

void RoutingSpool::open(const std::string& run_page_path) {
  Fd fd(::open(routing_spool_path(run_page_path).c_str(),
               O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  struct stat st {};
  // The path comes from the environment: only a file of this user's is written to.
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != ::geteuid()) {
    return;
  }
  fd_ = std::move(fd);
}

bool RoutingSpool::append(const resid_routed& routed, std::int32_t layer) {
  RoutingSpoolHead head;
  head.layer = layer;
  head.experts = routed.experts;
  head.used = routed.used;
  head.tokens = routed.tokens;
  const std::size_t ids = std::size_t{routed.used} * routed.tokens;
  std::vector<char> record(sizeof head + ids * sizeof(std::int32_t));
  std::memcpy(record.data(), &head, sizeof head);
  const auto* rows = static_cast<const char*>(routed.ids);
  char* out = record.data() + sizeof head;
  for (std::uint32_t t = 0; t < routed.tokens; ++t) {
    for (std::uint32_t u = 0; u < routed.used; ++u, out += sizeof(std::int32_t)) {
      std::memcpy(out, rows + t * routed.token_stride + u * routed.used_stride,
                  sizeof(std::int32_t));
    }
  }
  const auto written = sys::write(fd_.get(), record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return true;
  broken_.store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace resid::preload

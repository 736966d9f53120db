#pragma once
// Memory that the parent of a replay shares with the child that runs the arm (P-3).

#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "pager/stats.hpp"
#include "replay/driver.hpp"
#include "trace/ring.hpp"

namespace resid {

enum class ReplayPhase : std::uint32_t {
  started,
  ready,  // set up; waits for its limit
  go,     // set by the parent
  done,
};

struct ReplayPage {
  std::atomic<ReplayPhase> phase{ReplayPhase::started};
  std::atomic<std::uint32_t> status{0};  // Status of the first failure
  char error[1024] = {};                 // its line; written before the child ends
  char uffd_route[64] = {};
  std::atomic<std::uint64_t> bytes_read{0};
  std::atomic<bool> kernel_counts{false};
  std::atomic<std::uint64_t> kernel_read_bytes{0};  // if it does
  PagerStats stats;
  DriveRecord drive;
  TraceRing ring;
};

// Anonymous shared memory, touched by its maker, so that it is charged to the maker's control group
// and not to the child's.
class SharedArea {
 public:
  static Result<SharedArea> make(std::uint64_t accesses, std::uint32_t passes);
  SharedArea(SharedArea&& other) noexcept;
  SharedArea& operator=(SharedArea&&) = delete;
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;
  ~SharedArea();

  ReplayPage& page() const { return *page_; }

 private:
  SharedArea(ReplayPage* page, std::uint64_t bytes) : page_(page), bytes_(bytes) {}
  ReplayPage* page_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// The pager's FailureHook in the child: notes the failure and ends the process, since nothing that
// is measured after it would mean anything. `context` is the ReplayPage.
void end_on_failure(void* context, Status status, const char* line);

}  // namespace resid

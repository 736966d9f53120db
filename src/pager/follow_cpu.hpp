#pragma once
// Keeps the fault thread on the processor of the thread that faults.
//
// Whoever faults goes to sleep at once, so its processor is free and its caches are warm. Left to
// itself the kernel wakes the fault thread while the other one still runs, finds no idle processor
// and queues it behind whatever works elsewhere, a fetch worker inside a system call, say; the
// processor that falls idle a moment later does not fetch it from there (sched_migration_cost_ns,
// 0.5 ms). On two cores that wait was 30 to 70 us for a fault that takes 8, and a model at 75 % of
// its size made 5.2 to 5.8 tokens a second with it and 7.0 to 8.3 without.
//
// Only the fault thread's own affinity is changed, and never to what it was not given.

#include <sched.h>
#include <sys/types.h>

#include <cstdint>

namespace resid {

class FollowCpu {
 public:
  // On the thread that is to follow.
  void start();
  // `thread` of this process has just faulted; 0: not known. Looks at most every 20 ms. Lets go
  // when others fault instead: who is followed may be spinning by then, and for good if it is a
  // real-time thread, which is never followed.
  void follow(pid_t thread, std::uint64_t now_ns);

 private:
  cpu_set_t given_{};
  bool may_ = false;
  void let_go();
  int at_ = -1;
  pid_t followed_ = 0;
  int others_ = 0;
  std::uint64_t looked_ns_ = 0;
};

}  // namespace resid

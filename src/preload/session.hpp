#pragma once
// The library's state in one process: the page shared with `residctl run`, the pager once a model
// has been mapped, the regions and their views.
//
// States of a process:
//   off       no run page: every interposed call goes straight through
//   ready     page open, nothing mapped yet: only mmap and the file hints look closer
//   paging    the pager runs
//   detached  a forked child of a paging process: the pager's threads do not exist here, views have
//             become plain file mappings, every call goes straight through
//
// The session is made by the library's constructor and never destroyed: threads of the program may
// touch weights until the last instant of the process, after every static destructor has run.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/expert_area.hpp"
#include "control/run_page.hpp"
#include "control/trace_area.hpp"
#include "pager/pager.hpp"
#include "preload/lock_table.hpp"
#include "preload/recognise.hpp"
#include "preload/routing_spool.hpp"
#include "preload/view_table.hpp"
#include "storage/store.hpp"

namespace resid::preload {

// Marks that this thread is inside the library: calls it makes through interposed symbols (malloc
// growing, say) go straight through. Also holds off cancellation, which would unwind through
// functions that libc declares as not throwing.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool active();

 private:
  int cancel_state_ = 0;
};

// One line per kind and process, on stderr, none when quiet.
enum class Notice : std::uint32_t {
  writable_mapping,
  unreadable_model,
  unusual_mapping,
  map_failed,
  lock_infeasible,
  lock_all,
  forked_child,
  repack_off,
  stands_aside,
  routing_lost,
};

// The answer to an mmap of the program.
struct MapAnswer {
  enum class Kind : std::uint8_t { pass, mapped, refused } kind = Kind::pass;
  void* address = nullptr;
  int error = 0;
};

class Session {
 public:
  // Opens the page named in the environment; nullptr (the state `off`) when there is none.
  static void start();
  // nullptr when off.
  static Session* get() { return instance_.load(std::memory_order_acquire); }
  // The pager of this process while it is paging, else nullptr. One load: the hot path of every
  // interposed call.
  static Pager* pager() { return pager_.load(std::memory_order_acquire); }
  // The pager when the range touches an app view and the caller is the program, else nullptr.
  static Pager* pager_of(const void* address, std::size_t bytes) {
    Pager* pager = Session::pager();
    if (pager == nullptr || !pager->in_view(address, bytes) || Inside::active()) return nullptr;
    return pager;
  }

  MapAnswer map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset);
  // As munmap, for a range that touches views: these are forgotten, the rest goes to the kernel.
  // Returns 0 or an errno value.
  int unmap(Range range);
  // As mremap, for an old range that touches a view.
  MapAnswer remap(Range old, std::size_t bytes, int flags, void* wanted);

  // Pins the view parts of the range until unlock() or unmap(); 0 or an errno value.
  int lock(Range range);
  void unlock(Range range);
  void unlock_all();

  std::vector<Piece> pieces(Range range);
  // True when the file behind `fd` is one we would put under control.
  bool is_model(int fd) const;

  bool detached() const { return detached_; }
  // An engine will say by this sensor which experts it is about to read. False when the run is to
  // use another one; then it need not say it. Told before the model is mapped, it decides the
  // policy.
  bool expect_routing(ExpertSensor by);
  // Which sensor is listened to.
  ExpertSensor expert_sensor() const { return expert_sensor_.load(); }
  // Where the run records what routers chose; nullptr when it does not.
  RoutingSpool* routing_spool() { return spool_.is_open() ? &spool_ : nullptr; }
  // Whether the program has changed the protection of a part of a view, so that a change back has
  // work to do.
  bool reprotected() const { return reprotected_.load(); }
  void note_reprotected() { reprotected_.store(true); }
  RunPage& page() { return *page_; }
  void notice(Notice kind, std::string_view text);

  // Around fork (I-15). `child` may only do what is safe between fork and exec in a threaded
  // program.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Region {
    StoreIdentity identity;
    RegionId id = 0;          // also the position in regions_: this is the pager's only client
    std::uint64_t bytes = 0;  // whole pages
    int plain_fd = -1;        // the plain file, for a forked child
    int memfd = -1;
  };

  Session(RunPage* page, TraceArea* trace, ExpertArea* experts);
  // A model file that is mapped for the first time.
  struct Opened {
    ModelFile file;
    ChunkPlan plan;
    WholeModel whole;       // unless the pager runs already
    bool in_place = false;  // its path still names it
  };
  Result<Opened> open(int fd, const StoreIdentity& identity) const;
  bool is_aside(const StoreIdentity& identity) const;
  // Whether the budget holds this file, and the model it is a part of, beside what is mapped
  // plainly already. Then it is: the page cache is as good, and nothing is in the program's way.
  bool stand_aside(const StoreIdentity& identity, const Opened& model);
  const Region* region_of(const StoreIdentity& identity) const;
  Result<RegionId> add_region(int fd, const StoreIdentity& identity, Opened model);
  Result<void> start_pager(const Opened& model);
  Result<void*> map_view(RegionId region, void* address, std::uint64_t bytes, int flags,
                         std::uint64_t offset);
  void forget(const Piece& piece);
  // Tells the trace area, where there is one, which file the pager's newest chunks belong to.
  void trace_region(int fd, const std::string& path, std::uint64_t bytes, std::uint32_t chunks);
  std::optional<Pin> pin(Range range);
  std::vector<Piece> lockable(Range range);
  void fail_run(const Failure& failure);

  static std::atomic<Session*> instance_;
  static std::atomic<Pager*> pager_;

  RunPage* page_;
  TraceArea* trace_;     // nullptr: this run is not traced
  ExpertArea* experts_;  // nullptr: nobody looks at its experts
  RoutingSpool spool_;
  std::atomic<std::uint32_t> noticed_{0};
  std::atomic<bool> reprotected_{false};
  std::atomic<ExpertSensor> expert_sensor_{ExpertSensor::faults};
  std::mutex mutex_;  // guards what follows; never held while the program's memory is touched
  std::vector<Region> regions_;
  std::vector<StoreIdentity> aside_;  // files that are mapped plainly
  std::uint64_t aside_bytes_ = 0;     // their models'
  ViewTable views_;
  LockTable<Pin> locks_;
  bool refused_ = false;  // the pager could not be started in this process
  bool detached_ = false;
};

}  // namespace resid::preload

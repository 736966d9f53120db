#pragma once
// The page of memory that `residctl run` shares with the program it started.
//
// The parent creates it as a file, fills in `config` and passes the path in RESIDCTL_RUN_PAGE; the
// preload library in the child maps it, reads `config` and keeps `stats` up to date while the
// program runs. So the report can be written whatever ends the program: exit, _exit, a signal, the
// OOM killer. Everything in it is plain old data of fixed layout; what changes concurrently is a
// lock-free atomic.

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.hpp"
#include "control/shared_file.hpp"
#include "pager/stats.hpp"

namespace resid {

inline constexpr const char* kRunPageVariable = "RESIDCTL_RUN_PAGE";

// What tells the pager which experts of a layer come next. As a setting, `automatic` is the first
// of the others that the program gives an opening for; what a run has used is never `automatic`.
enum class ExpertSensor : std::uint8_t { automatic, ggml_backend, eval_callback, faults };
std::string_view name(ExpertSensor sensor);  // as on the command line and in the report

struct RunConfig {
  std::uint8_t ram_is_percent = 0;  // else bytes; bytes 0 = derive from the control group
  double ram_percent = 0;
  std::uint64_t ram_bytes = 0;
  std::uint64_t chunk_max = 0;
  std::uint32_t fetch_workers = 2;
  std::uint32_t read_depth = 4;
  std::uint32_t read_bytes = 512 * 1024;  // a request's size at most
  std::uint32_t fetching_timeout_ms = 30000;
  std::uint32_t prefetch_depth = 0;      // 0 = off
  std::uint8_t prefetch_depth_auto = 0;  // not 0 and not off: as deep as the disk's queue needs
  std::uint8_t prefetch_auto = 0;        // the depth holds only where the order of reading is known
  std::uint8_t prefetch_admission_always = 0;
  std::uint8_t prefetch_retention_none = 0;
  std::uint8_t sync_handler = 0;
  std::uint8_t eager_reconcile = 0;
  std::uint8_t protect_current = 0;
  std::uint8_t read_engine = 0;   // ReadEngine
  std::uint8_t small_frames = 0;  // no large folios, for comparison
  std::uint8_t no_tripwires = 0;
  std::uint8_t never_stand_aside = 0;
  std::uint8_t aside_expected = 0;  // the model seems to fit: the program was left as it is
  std::uint8_t own_cgroup = 0;      // the program runs in a control group of its own
  std::uint32_t expert_cap = 0;     // experts a layer; 0 = the budget decides
  std::uint8_t expert_cap_raise = 0;
  std::uint8_t history = 0;    // not 0: the run begins with what earlier ones used, and adds to it
  std::uint8_t lookahead = 0;  // LookaheadSwitch::Mode
  std::uint8_t quiet = 0;
  std::uint8_t swap_guarantee = 0;  // host::SwapGuarantee as the parent established it
  ExpertSensor expert_sensor = ExpertSensor::automatic;
  char policy[40] = {};
  char match[256] = {};  // --match GLOB, empty = by content only
};

// How far the program got; the parent judges a run by it.
enum class RunPhase : std::uint32_t { started, preloaded, mapped, failed };

struct RunPage {
  static constexpr const char* kWhat = "run page";
  static constexpr std::uint64_t kMagic = 0x3130656761507552ULL;  // "RuPage01"

  std::uint64_t magic = kMagic;
  std::uint32_t page_bytes = sizeof(RunPage);  // parent and library must agree on the layout
  std::uint32_t reserved = 0;
  RunConfig config;

  // The ggml backend that shows the routing of experts; empty: the program is not to be told by
  // one.
  char ggml_backend[1024] = {};

  std::atomic<std::uint32_t> phase{0};          // RunPhase
  std::atomic<std::uint32_t> budget_holder{0};  // pid of the process that pages, 0 = none
  std::atomic<std::uint64_t> budget_bytes{0};   // once resolved
  std::atomic<std::uint64_t> model_bytes{0};
  std::atomic<std::uint64_t> mapped_bytes{0};  // of app views, live
  std::atomic<std::uint32_t> regions{0};
  std::atomic<std::uint32_t> processes{0};  // how many processes loaded the library
  std::atomic<std::uint32_t> bypassed_reads_mib{0};
  std::atomic<std::uint32_t> last_status{0};  // Status of the first failure, 0 = none
  char model_path[1024] = {};
  char model_architecture[64] = {};
  std::atomic<std::uint32_t> stood_aside{0};  // files mapped plainly, because the budget holds them
  std::atomic<std::uint64_t> overhead_bytes{0};  // the pager's own memory
  char uffd_route[64] = {};
  char read_engine[16] = {};
  std::uint8_t large_frames = 0;
  std::atomic<ExpertSensor> expert_sensor{ExpertSensor::faults};  // that has told of routing
  char last_error[1024] = {};                                     // the first failure's whole line
  PagerStats stats;
};

// Two processes, perhaps built by two compilers, see the same bytes.
static_assert(std::is_standard_layout_v<RunPage> && std::is_trivially_destructible_v<RunPage>);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && Counter::is_always_lock_free,
              "a lock would live in one process only");

// Records the first failure of the run, from whichever process; later ones are dropped. Leaves
// `phase` alone: how far the program got stays known. Async-signal-safe. A `line` that is too long
// is cut. `status` ok, which would be no failure, is recorded as internal.
void record_failure(RunPage& page, Status status, const char* line);

using RunPageFile = SharedFile<RunPage>;

}  // namespace resid

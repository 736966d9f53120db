#pragma once
// The workload itself: threads that consume every byte of every chunk of the sequence, in order,
// pass after pass, by the same read loop whatever lies beneath.
//
//   D-1  All threads walk the same sequence; each reads its slice of every chunk.
//   D-2  No thread is more than `lookahead` chunks ahead of the slowest.
//   D-3  An access is recorded by the thread that comes to it first, before it reads: the record's
//        order is the true order of first touches.
//   D-4  Every byte read is checked against what it must be.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "replay/workload.hpp"
#include "trace/trace.hpp"

namespace resid {

// When a chunk counts as consumed: once thread 0 has read its slice, or once every thread has.
enum class ConsumptionSignal : std::uint8_t { thread0, all_threads };

struct DriveConfig {
  std::uint32_t threads = 1;
  std::uint32_t passes = 5;
  std::uint64_t compute_ns_per_mib = 0;     // time that all threads together compute on each MiB
  std::uint32_t lookahead = 0;              // D-2; 0: they meet after every chunk
  const std::atomic<bool>* stop = nullptr;  // when it is set, every thread ends at its next chunk
  ConsumptionSignal signal = ConsumptionSignal::all_threads;
};

// What lies beneath the reads. Calls come from the threads of the driver, one at a time.
class Arm {
 public:
  virtual ~Arm() = default;
  Arm() = default;
  Arm(const Arm&) = delete;
  Arm& operator=(const Arm&) = delete;

  virtual const std::uint8_t* view() const = 0;  // of the whole store, as many bytes as its pages
  virtual void begin() {}                        // the clock runs
  virtual void before(std::uint32_t chunk) { (void)chunk; }    // the first thread comes to it
  virtual void consumed(std::uint32_t chunk) { (void)chunk; }  // see ConsumptionSignal
  virtual std::uint64_t bytes_read() const { return 0; }       // from the store, so far
  virtual std::string_view uffd_route() const { return {}; }   // of the pager's arms
  virtual void settle() {}  // after the last access: what is still under way is waited for
};

// What a drive leaves behind; in shared memory, so that it outlives a killed process. The arrays
// belong to the owner of the area.
struct DriveRecord {
  std::atomic<std::uint64_t> consumed{0};  // accesses finished by all threads
  std::atomic<std::uint64_t> started{0};   // records written
  std::atomic<std::uint64_t> wall_ns{0};
  std::atomic<std::uint64_t> mismatches{0};      // slices whose content was wrong
  std::atomic<std::uint64_t> first_mismatch{0};  // the access, counted from 0, of the first of them
  TraceRecord* references = nullptr;             // sequence.size() * passes; D-3
  std::uint64_t* read_by_pass = nullptr;         // `passes`: bytes read from the store at its end
};

// The threads, made and waiting: so that what they take of memory is there before the budget is
// drawn, and a machine that refuses them says so before anything is measured.
class Driver {
 public:
  // out_of_memory when the system refuses a thread.
  static Result<std::unique_ptr<Driver>> make(const Workload& workload, const DriveConfig& config,
                                              Arm& arm, DriveRecord& record);
  ~Driver();
  // Once: lets them go and returns when all have ended.
  void run();

 private:
  struct Impl;
  explicit Driver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace resid

#pragma once
// Traces: what a workload touched, and what the pager did about it, one record an event, as files.
//
// A file is a fixed header, the header's text and chunk table, then one zstd frame (with content
// checksum) of records, ended by an end record that holds their number: a file that was cut off,
// wherever, is told from a whole one. Written as a stream under a temporary name and renamed by
// finish(), so that a file of the right name is complete. docs/traces.md has the layout.
//
// The order of the records is the order of the events. Their times may step back a little: several
// threads take the time before they take their turn at the writer.
//
// Only a reference trace may be judged: a fault trace records which references one policy missed,
// and an optimum computed from it would be circular (I-10).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace resid {

enum class TraceKind : std::uint32_t {
  reference = 1,  // written by the workload: every access, hit or miss, in true order
  fault = 2,      // written by the pager: demand faults on absent chunks
  fetch = 3,      // written by the pager: every read from the store, by its first chunk
  victim = 4,     // written by the pager: every eviction
};
std::string_view name(TraceKind kind);

// 16 bytes, in the byte order of the writer (the header says which).
struct TraceRecord {
  std::uint64_t time_ns = 0;  // since the trace began
  std::uint32_t chunk = 0;
  // reference: the thread; fault: 1 for a minor fault; fetch: microseconds that the read took,
  // kPrefetchFetch set for one ahead of need; victim: 1 when nobody chose it: the policy had left
  // it out, and something had to go.
  std::uint32_t detail = 0;
  bool operator==(const TraceRecord&) const = default;
};
static_assert(sizeof(TraceRecord) == 16);
inline constexpr std::uint32_t kPrefetchFetch = 0x80000000U;

// What the records are about. Two traces are of one model when `model_bytes`, `model_fingerprint`
// and `chunk_bytes` are equal.
struct TraceHeader {
  TraceKind kind = TraceKind::reference;
  std::string model;                    // its path or a name, for people
  std::uint64_t model_bytes = 0;        // of all its files
  std::uint64_t model_fingerprint = 0;  // of sizes and content samples; chosen by the writer
  std::string config_hash;              // of the settings of the run that wrote it
  // A workload that is known to be `passes` scans of the chunks [0, cycle_chunks) says so, and
  // every optimum computed from it is held against the floor of a cyclic scan. 0: not cyclic.
  std::uint32_t cycle_chunks = 0;
  std::uint32_t passes = 0;
  // Size of each chunk, not 0; ids are positions here. At most 64 Mi of them.
  std::vector<std::uint32_t> chunk_bytes;
};

// Called now and then during long work, in whatever unit; done == total at the end.
using TraceProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Writes one trace, as `PATH.part` until it is finished; that a crash has left behind is written
// over. Not for concurrent use. The first failure is final: every later call repeats it.
class TraceWriter {
 public:
  // usage where `path` or `PATH.part` holds something that is no trace: it stays as it is.
  // write_failed or not_a_file, naming the file, when it cannot be made or another writer is at it;
  // internal for a header that contradicts itself.
  static Result<TraceWriter> create(const std::string& path, const TraceHeader& header);
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;
  ~TraceWriter();  // without finish(): the temporary file is removed

  // internal: a record that no reader would accept; nothing of the span has been written then.
  Result<void> append(std::span<const TraceRecord> records);
  // Ends the file, syncs it and gives it its name, in place of what has it. Nothing may be appended
  // any more.
  Result<void> finish();
  std::uint64_t records() const;

 private:
  struct Impl;
  explicit TraceWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads one trace, strictly: every length and id is checked, and what is wrong is named with file,
// offset and field. Statuses: no_such_file, not_a_file, unreadable, malformed (cut off, damaged, no
// trace), unsupported (a newer version, the other byte order). The memory it takes is bounded by
// the size of the file, whatever the header claims.
class TraceReader {
 public:
  static Result<TraceReader> open(const std::string& path);
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  ~TraceReader();

  const TraceHeader& header() const;
  // Fills `out` from the front; returns how many, 0 at the verified end of the file. What came
  // before a failure has been handed out: only who reads to the end knows that the file is whole.
  Result<std::size_t> next(std::span<TraceRecord> out);
  std::uint64_t bytes_read() const;  // of the file, for showing progress
  std::uint64_t file_bytes() const;

 private:
  struct Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The chunk ids of one or more reference traces of the same model, one after another: what a solver
// works on. usage: no path, not a reference trace (I-10), or traces of different models or plans.
struct ReferenceString {
  TraceHeader header;  // of the first; `passes` summed where all are cyclic over the same chunks
  std::vector<std::uint32_t> chunks;
};
Result<ReferenceString> read_references(std::span<const std::string> paths,
                                        const TraceProgress& progress = {});

}  // namespace resid

#pragma once
// Reads in flight: a queue of requests in front of the disk, kept at the depth that it is fastest
// at.
//
//     submit() -> urgent queue \                                   / done(request)
//                               > pieces, at most `depth` at once >
//     submit() -> other queue  /                                   \ retried once, buffered
//
//   R-1  A piece of a request that is not urgent is started only when no urgent one waits: demand
//        overtakes prefetch at the next free place, however much was asked for ahead.
//   R-2  A request is cut into pieces of at most `piece_bytes`; a request that continues the one
//        before it in the same queue and in the same store is put into one piece with it, while
//        there is room. So the disk sees its best size, whatever the callers ask for.
//   R-3  done() is called exactly once for every request, when nothing of it is in flight any more.
//   R-4  The store's identity is checked before the first piece starts and after the last one has
//        ended (I-16). A failed or short direct read is tried once more, buffered (I-14).
//   R-5  submit() and urge() allocate nothing, and wait for no read (I-13).
//
// Two engines with the same behaviour: io_uring with registered files (kernel 5.6; one thread that
// submits and waits for completions), and a pool of `depth` threads that call preadv where io_uring
// is denied (seccomp profiles of container engines do, kernel.io_uring_disabled since 6.6).

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.hpp"
#include "storage/store.hpp"

namespace resid {

// One read: a caller's object, untouched by the caller between submit() and done().
struct ReadRequest {
  // Set by the caller. Offset, bytes and memory are page aligned; the range may reach past the end
  // of the store (those bytes are left alone).
  const Store* store = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint8_t* into = nullptr;
  bool urgent = false;    // someone waits for it
  std::uint32_t tag = 0;  // the caller's own

  // Set before done().
  ReadOutcome outcome;
  std::uint64_t began_ns = 0;  // the first piece was handed to the kernel
  std::uint64_t ended_ns = 0;  // the last one came back

  // The reader's own.
  ReadRequest* next = nullptr;
  ReadRequest* prev = nullptr;
  std::uint64_t started_bytes = 0;  // handed out in pieces
  std::uint32_t in_flight = 0;      // pieces
  bool queued = false;              // in part at least
  bool failed = false;
  bool hopeless = false;  // failed where no other attempt is made
};

enum class ReadEngine : std::uint8_t { automatic, io_uring, threads };
std::string_view name(ReadEngine engine);

struct ReaderConfig {
  ReadEngine engine = ReadEngine::automatic;
  std::uint32_t depth = 4;                 // pieces in flight, 1..64
  std::uint32_t piece_bytes = 512 * 1024;  // a multiple of the page size
};

// Counted since the reader was made.
struct ReaderStats {
  std::uint64_t pieces = 0;
  std::uint64_t merged = 0;   // requests that joined a piece which another one began
  std::uint64_t split = 0;    // requests that one piece was not enough for
  std::uint64_t retries = 0;  // requests tried once more, buffered
  std::uint32_t most_in_flight = 0;
};

class Reader {
 public:
  // Called on a thread of the reader, which takes no signals; may call submit() and urge(), must
  // not wait for another read.
  using Done = void (*)(void* context, ReadRequest& request);

  // automatic: io_uring, else threads. A named engine that the machine denies is a failure
  // (Status::unsupported... with the kernel's reason).
  static Result<std::unique_ptr<Reader>> create(const ReaderConfig& config, Done done,
                                                void* context);
  // Every request must be done.
  virtual ~Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Registers the store's descriptors, for requests to come. At most 64 stores; one not added is
  // read all the same, a little slower. The store must outlive the reader.
  virtual void add_store(const Store& store) = 0;
  virtual void submit(ReadRequest& request) = 0;
  // What was asked for ahead is wanted now: what is left of it goes in front. Only for a
  // request between submit() and done(); the caller makes sure of that.
  virtual void urge(ReadRequest& request) = 0;

  virtual ReadEngine engine() const = 0;
  virtual std::uint32_t depth() const = 0;
  virtual ReaderStats stats() const = 0;

 protected:
  Reader() = default;
};

}  // namespace resid

#pragma once
// What both engines of the reader share: the two queues, pieces cut from and merged out of requests
// and what becomes of a request when its pieces are back. An engine only
// carries pieces to the kernel:
//
//     take()     under the lock: the next piece by priority
//     prepare()  the next attempt at it, or its end
//     advance()  what an attempt brought: another is needed, or its end
//     end()      under the lock: the requests that are over now
//     deliver()  done() for one of those

#include <sys/uio.h>

#include <array>
#include <mutex>
#include <span>

#include "base/linked_list.hpp"
#include "storage/reader.hpp"

namespace resid {

using RequestList = LinkedList<ReadRequest>;

// One read from the kernel's point of view: neighbouring parts of up to kPartsMost requests.
struct ReadPiece {
  static constexpr std::uint32_t kPartsMost = 8;
  struct Part {
    ReadRequest* request = nullptr;
    std::uint8_t* into = nullptr;
    std::uint64_t bytes = 0;
  };

  const Store* store = nullptr;
  bool direct = false;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t done = 0;
  std::array<Part, kPartsMost> parts{};
  std::uint32_t part_count = 0;
  std::uint32_t refusals = 0;  // attempts in a row that the kernel put off
  ReadOutcome outcome;         // once it has ended

  // The attempt: where it reads from and into what. The kernel reads `memory` while it is under
  // way.
  std::array<iovec, kPartsMost> memory{};
  std::uint32_t memory_count = 0;
  std::uint64_t at() const { return offset + done; }
  int fd() const { return direct ? store->direct_fd() : store->plain_fd(); }
};

class QueuedReader : public Reader {
 public:
  void submit(ReadRequest& request) final;
  void urge(ReadRequest& request) final;
  std::uint32_t depth() const final { return depth_; }
  ReaderStats stats() const final;

 protected:
  using Lock = std::unique_lock<std::mutex>;
  QueuedReader(const ReaderConfig& config, Done done, void* context)
      : depth_(config.depth), piece_bytes_(config.piece_bytes), done_(done), context_(context) {}

  // Something was put into a queue: sees to it that a thread looks, and gives the lock back.
  virtual void added(Lock lock) = 0;

  Lock lock() const { return Lock(mutex_); }
  bool queued(const Lock&) const { return !urgent_.empty() || !other_.empty(); }
  // Requests of which nothing is left to read.
  RequestList& over(const Lock&) { return over_; }

  // False when nothing is queued. Never more than depth() pieces may be out: the engine has no
  // more.
  bool take(const Lock& lock, ReadPiece& piece);
  // Asks the identity and the fault hook and lays out the memory; false when the piece has ended.
  static bool prepare(ReadPiece& piece);
  // `result` as the kernel gave it: bytes, or a negative errno. True when another attempt is due.
  static bool advance(ReadPiece& piece, std::int64_t result);
  // Moves the requests that are over with this piece to over(). True when one has to be tried once
  // more and was queued again.
  bool end(const Lock& lock, ReadPiece& piece);
  // Without the lock. The request is its owner's again.
  void deliver(ReadRequest& request);

 private:
  RequestList& queue_of(const ReadRequest& request) { return request.urgent ? urgent_ : other_; }
  bool settle(ReadRequest& request);

  const std::uint32_t depth_;
  const std::uint32_t piece_bytes_;
  const Done done_;
  void* const context_;

  mutable std::mutex mutex_;
  RequestList urgent_;
  RequestList other_;
  RequestList over_;
  ReaderStats stats_;
  std::uint32_t in_flight_ = 0;
};

Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderConfig& config, Reader::Done done,
                                                  void* context);
Result<std::unique_ptr<Reader>> make_thread_reader(const ReaderConfig& config, Reader::Done done,
                                                   void* context);

}  // namespace resid

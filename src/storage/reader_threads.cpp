// The engine for machines that deny io_uring: as many threads as reads may be in flight, each of
// which carries one piece at a time.

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

#include "base/signals.hpp"
#include "storage/reader_queue.hpp"

namespace resid {
namespace {

// Not libc's preadv, which a program may have interposed.
std::int64_t read_piece(const ReadPiece& piece) {
  const std::uint64_t at = piece.at();
  const long n = ::syscall(SYS_preadv, piece.fd(), piece.memory.data(),
                           static_cast<unsigned long>(piece.memory_count),
                           static_cast<unsigned long>(at), 0UL);
  return n < 0 ? -errno : n;
}

class ThreadReader final : public QueuedReader {
 public:
  ThreadReader(const ReaderConfig& config, Done done, void* context)
      : QueuedReader(config, done, context) {}

  ~ThreadReader() override {
    {
      const Lock held = lock();
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
  }

  void start() {
    const SignalsBlocked held;
    threads_.reserve(depth());
    for (std::uint32_t i = 0; i < depth(); ++i) {
      threads_.emplace_back([this] {
        ::pthread_setname_np(::pthread_self(), "resid-read");
        loop();
      });
    }
  }

  void add_store(const Store&) override {}
  ReadEngine engine() const override { return ReadEngine::threads; }

 private:
  void added(Lock lock) override {
    lock.unlock();
    work_.notify_one();
  }

  void loop() {
    ReadPiece piece;
    Lock held = lock();
    for (;;) {
      work_.wait(held, [&] { return stop_ || queued(held) || !over(held).empty(); });
      if (ReadRequest* request = over(held).pop_front()) {
        hand_on(held);
        held.unlock();
        deliver(*request);
        held.lock();
        continue;
      }
      if (!take(held, piece)) return;  // told to stop, and nothing is left
      hand_on(held);
      held.unlock();
      while (prepare(piece) && advance(piece, read_piece(piece))) {
      }
      held.lock();
      end(held, piece);
    }
  }

  // submit() wakes one thread; what it leaves is the next one's.
  void hand_on(const Lock& held) {
    if (queued(held) || !over(held).empty()) work_.notify_one();
  }

  std::condition_variable work_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_thread_reader(const ReaderConfig& config, Reader::Done done,
                                                   void* context) {
  auto reader = std::make_unique<ThreadReader>(config, done, context);
  try {
    reader->start();
  } catch (const std::system_error& e) {
    return fail(Status::out_of_memory, "starting the reader's threads", e.what());
  }
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace resid

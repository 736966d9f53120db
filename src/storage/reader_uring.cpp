// The engine on io_uring: one thread owns the ring.
//
// Nobody else submits to it, though a caller could save a wake-up by that. A completion is worked
// off by the thread that submitted the read, on its way out of the kernel; a thread that sleeps
// inside a system call on an absent page of an app view does not get there, and would wait for ever
// for a read that it had submitted itself. A thread that ends has its reads cancelled. And a
// completion interrupts its submitter: with EINTR, where that is in the middle of a system call of
// the program.
//
//     submit() --event--> take pieces --SQE--> kernel --CQE--> next pieces, then done()

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/signals.hpp"
#include "base/sys.hpp"
#include "storage/reader_queue.hpp"

namespace resid {
namespace {

constexpr std::size_t kStoresMost = 64;

// Completions are worked off when this thread asks for them and never interrupt what done() is in
// the middle of (kernel 6.1).
constexpr unsigned kUndisturbed = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

// Memory or a place in a queue is short for a moment.
void breathe() {
  const timespec moment{0, 1'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, nullptr);
}

class UringReader final : public QueuedReader {
 public:
  UringReader(const ReaderConfig& config, Done done, void* context)
      : QueuedReader(config, done, context), pieces_(config.depth) {
    free_.reserve(config.depth);
    ended_.reserve(config.depth);
    for (ReadPiece& piece : pieces_)
      free_.push_back(&piece);
  }

  ~UringReader() override {
    if (!thread_.joinable()) return;
    {
      const Lock held = lock();
      stop_ = true;
    }
    ring_bell();
    thread_.join();
  }

  // 0, or the reason why there is no ring.
  int start() {
    bell_.reset(::eventfd(0, EFD_CLOEXEC));
    if (!bell_) return errno;
    const SignalsBlocked signals;
    // The ring is made by the thread that uses it, as kUndisturbed demands.
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "resid-read");
      const int error = make_ring();
      {
        const Lock held = lock();
        setup_error_ = error;
      }
      set_up_.notify_one();
      if (error != 0) return;
      loop();
      ::io_uring_queue_exit(&ring_);
    });
    Lock held = lock();
    set_up_.wait(held, [this] { return setup_error_ >= 0; });
    return setup_error_;
  }

  void add_store(const Store& store) override {
    const Lock held = lock();
    if (store_count_ == kStoresMost) return;
    stores_[store_count_++] = {&store, {store.direct_fd(), store.plain_fd()}};
  }

  ReadEngine engine() const override { return ReadEngine::io_uring; }

 private:
  // ---- The ring

  int make_ring() {
    // One place more for the bell.
    const unsigned entries = depth() + 1;
    int error = -::io_uring_queue_init(entries, &ring_, IORING_SETUP_CLAMP | kUndisturbed);
    if (error == EINVAL) error = -::io_uring_queue_init(entries, &ring_, IORING_SETUP_CLAMP);
    if (error != 0) return error;
    // Before 5.6 there is no plain read.
    if ((ring_.features & IORING_FEAT_RW_CUR_POS) == 0) {
      ::io_uring_queue_exit(&ring_);
      return ENOSYS;
    }
    // A child has no use for it (I-15), and must not write to what is shared with us.
    (void)::io_uring_ring_dontfork(&ring_);
    std::array<int, 2 * kStoresMost> nothing{};
    nothing.fill(-1);
    files_ = ::io_uring_register_files(&ring_, nothing.data(), nothing.size()) == 0;
    // A filter may allow the set-up and deny the use.
    arm_bell();
    if (const int submitted = ::io_uring_submit(&ring_); submitted < 0) {
      ::io_uring_queue_exit(&ring_);
      return -submitted;
    }
    return 0;
  }

  io_uring_sqe* next_sqe() {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    while (sqe == nullptr) {
      if (::io_uring_submit(&ring_) < 0) breathe();
      sqe = ::io_uring_get_sqe(&ring_);
    }
    return sqe;
  }

  // For the thread that submits, too: kUndisturbed allows no other.
  void register_stores(std::uint32_t count) {
    for (; registered_count_ < count; ++registered_count_) {
      const Added& added = stores_[registered_count_];
      const auto size = static_cast<unsigned>(added.fds.size());
      const bool registered =
          files_ && ::io_uring_register_files_update(&ring_, size * registered_count_,
                                                     added.fds.data(), size) == 2;
      registered_[registered_count_] = registered ? added.store : nullptr;
    }
  }

  // -1 where the store was not registered.
  int slot_of(const ReadPiece& piece) const {
    for (std::uint32_t i = 0; i < registered_count_; ++i) {
      if (registered_[i] == piece.store) return static_cast<int>(2 * i + (piece.direct ? 0 : 1));
    }
    return -1;
  }

  // ---- The bell: how others wake the thread that waits for completions.

  void ring_bell() const {
    const std::uint64_t one = 1;
    sys::write(bell_.get(), &one, sizeof one);
  }

  void arm_bell() {
    io_uring_sqe* sqe = next_sqe();
    ::io_uring_prep_read(sqe, bell_.get(), &rung_, sizeof rung_, 0);
    ::io_uring_sqe_set_data(sqe, nullptr);
    armed_ = true;
  }

  bool stopping() const {
    const Lock held = lock();
    return stop_;
  }

  void added(Lock lock) override {
    const bool can_go_on = !free_.empty() || !over(lock).empty();
    const bool wake = asleep_ && can_go_on;
    if (wake) asleep_ = false;
    lock.unlock();
    if (wake) ring_bell();
  }

  // ---- The thread

  void loop() {
    for (;;) {
      reap();
      std::uint32_t stores = 0;
      {
        const Lock held = lock();
        asleep_ = false;
        for (ReadPiece* piece : ended_) {
          end(held, *piece);
          free_.push_back(piece);
        }
        ended_.clear();
        stores = store_count_;
      }
      if (stores != registered_count_) register_stores(stores);
      // The disk first, then whoever waits: done() may take its time.
      start_pieces();
      ReadRequest* finished = nullptr;
      bool more = false;
      bool sleep = false;
      {
        const Lock held = lock();
        finished = over(held).pop_front();
        more = !over(held).empty();
        const bool idle = finished == nullptr && ended_.empty();
        if (idle && stop_ && free_.size() == pieces_.size() && !armed_) return;
        // What was queued since start_pieces() must not be slept on.
        sleep = idle && (free_.empty() || !queued(held));
        asleep_ = sleep;
      }
      if (finished != nullptr) {
        if (::io_uring_sq_ready(&ring_) != 0) ::io_uring_submit(&ring_);
        deliver(*finished);
      }
      // Between two done() the disk gets its next pieces.
      if (more || sleep) enter(sleep);
    }
  }

  void start_pieces() {
    for (;;) {
      ReadPiece* piece = nullptr;
      {
        const Lock held = lock();
        // One at a time: fault hooks may block, and an urgent request may come meanwhile.
        if (free_.empty() || !take(held, *free_.back())) return;
        piece = free_.back();
        free_.pop_back();
      }
      attempt(*piece);
    }
  }

  void attempt(ReadPiece& piece) {
    if (!prepare(piece)) {
      ended_.push_back(&piece);
      return;
    }
    io_uring_sqe* sqe = next_sqe();
    const int slot = slot_of(piece);
    const int fd = slot >= 0 ? slot : piece.fd();
    const iovec& first = piece.memory.front();
    if (piece.memory_count == 1) {
      ::io_uring_prep_read(sqe, fd, first.iov_base, static_cast<unsigned>(first.iov_len),
                           piece.at());
    } else {
      ::io_uring_prep_readv(sqe, fd, &first, piece.memory_count, piece.at());
    }
    unsigned flags = slot >= 0 ? static_cast<unsigned>(IOSQE_FIXED_FILE) : 0U;
    // A buffered read copies, and may wait for the disk while it is being submitted; one that was
    // put off would be put off again. A thread of the kernel takes those.
    if (!piece.direct || piece.refusals != 0) flags |= IOSQE_ASYNC;
    ::io_uring_sqe_set_flags(sqe, flags);
    ::io_uring_sqe_set_data(sqe, &piece);
  }

  void reap() {
    io_uring_cqe* cqe = nullptr;
    while (::io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* piece = static_cast<ReadPiece*>(::io_uring_cqe_get_data(cqe));
      const std::int64_t result = cqe->res;
      ::io_uring_cqe_seen(&ring_, cqe);
      if (piece == nullptr) {
        armed_ = false;
        if (!stopping()) arm_bell();
      } else if (advance(*piece, result)) {
        attempt(*piece);
      } else {
        ended_.push_back(piece);
      }
    }
  }

  // Submits what is prepared and takes in what has completed.
  void enter(bool sleep) {
    const int result =
        sleep ? ::io_uring_submit_and_wait(&ring_, 1) : ::io_uring_submit_and_get_events(&ring_);
    // EAGAIN and EBUSY pass: nothing that is prepared gets lost.
    if (result < 0 && result != -EINTR) breathe();
  }

  io_uring ring_{};
  Fd bell_;
  std::thread thread_;
  std::condition_variable set_up_;

  // Under the lock.
  int setup_error_ = -1;
  bool stop_ = false;
  bool asleep_ = false;
  std::vector<ReadPiece*> free_;
  struct Added {
    const Store* store;
    std::array<int, 2> fds;
  };
  std::array<Added, kStoresMost> stores_{};
  std::uint32_t store_count_ = 0;

  // The thread's own.
  std::vector<ReadPiece> pieces_;
  std::vector<ReadPiece*> ended_;
  std::array<const Store*, kStoresMost> registered_{};
  std::uint32_t registered_count_ = 0;
  bool files_ = false;
  bool armed_ = false;
  std::uint64_t rung_ = 0;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderConfig& config, Reader::Done done,
                                                  void* context) {
  auto reader = std::make_unique<UringReader>(config, done, context);
  try {
    if (const int error = reader->start()) {
      return fail_errno(Status::unsupported, "io_uring", error,
                        "allow it (seccomp profile, kernel.io_uring_disabled), or use threads");
    }
  } catch (const std::system_error& e) {
    return fail(Status::out_of_memory, "starting the reader's thread", e.what());
  }
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace resid

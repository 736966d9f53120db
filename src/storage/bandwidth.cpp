#include "storage/bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "storage/read_buffer.hpp"

namespace resid {
namespace {

// Reads in flight: one thread and one buffer each.
class Readers {
 public:
  Readers(const Store& store, std::uint64_t request)
      : store_(store),
        request_(std::min(request, page_up(store.bytes()))),
        requests_((store.bytes() + request_ - 1) / request_) {}

  bool prepare(std::uint32_t depth) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      // Whole large pages: a smaller request is to find contiguous memory, too.
      buffers_.push_back(ReadBuffer::make(large_page_up(request_)));
      if (!buffers_.back()) return false;
    }
    return true;
  }
  void start(std::uint64_t end_ns) {
    end_ns_ = end_ns;
    for (const ReadBuffer& buffer : buffers_)
      threads_.emplace_back([this, into = buffer.data()] { loop(into); });
  }
  ~Readers() { join(); }
  void join() {
    for (std::thread& t : threads_)
      t.join();
    threads_.clear();
  }
  std::uint64_t bytes() const { return bytes_.load(); }
  Status status() const { return status_.load(); }

 private:
  void loop(void* buffer) {
    while (now_ns() < end_ns_) {
      const std::uint64_t n = next_.fetch_add(1);
      if (n >= requests_ * 4) return;
      const std::uint64_t offset = n % requests_ * request_;
      const std::uint64_t bytes = std::min(request_, page_up(store_.bytes() - offset));
      const ReadOutcome outcome = store_.read(offset, bytes, buffer);
      if (outcome.status != Status::ok) {
        status_.store(outcome.status);
        return;
      }
      bytes_.fetch_add(bytes);
    }
  }

  const Store& store_;
  const std::uint64_t request_;
  const std::uint64_t requests_;
  std::uint64_t end_ns_ = 0;
  std::vector<ReadBuffer> buffers_;
  std::vector<std::thread> threads_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<Status> status_{Status::ok};
};

}  // namespace

Result<Bandwidth> best_bandwidth(const Store& store, std::uint64_t request_bytes,
                                 std::span<const std::uint32_t> depths, double seconds) {
  Bandwidth best;
  best.direct = store.direct();
  for (const std::uint32_t depth : depths) {
    try {
      Readers readers(store, request_bytes);
      if (!readers.prepare(depth)) {
        return fail(Status::out_of_memory, store.path(), "no memory for read buffers");
      }
      const std::uint64_t began = now_ns();
      readers.start(began + static_cast<std::uint64_t>(seconds * 1e9));
      readers.join();
      if (readers.status() != Status::ok) {
        return fail(readers.status(), store.path(), "it could not be read to the end");
      }
      const double spent = static_cast<double>(now_ns() - began) / 1e9;
      const double rate = static_cast<double>(readers.bytes()) / spent;
      if (rate > best.bytes_per_s) {
        best.bytes_per_s = rate;
        best.depth = depth;
      }
    } catch (const std::system_error& e) {
      return fail(Status::out_of_memory, "starting readers", e.what());
    }
  }
  return best;
}

}  // namespace resid

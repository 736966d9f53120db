#pragma once
// What the tests of the reader share: a file of random bytes, requests that know what they must
// bring, and a reader of either engine.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/fd.hpp"
#include "base/units.hpp"
#include "storage/reader.hpp"

namespace resid::test {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;
inline constexpr std::uint8_t kUntouched = 0xA5;

// A file of random bytes, and the store on it.
class Source {
 public:
  explicit Source(std::uint64_t bytes, std::string folder = "/var/tmp") : text_(bytes) {
    std::mt19937_64 random(bytes);
    for (std::uint8_t& byte : text_)
      byte = static_cast<std::uint8_t>(random());
    path_ = folder + "/resid-reader-XXXXXX";
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    if (::write(fd_.get(), text_.data(), bytes) != static_cast<ssize_t>(bytes)) std::abort();
    ::fsync(fd_.get());
    store_ = Store::open(fd_.get(), path_);
    if (!store_) std::abort();
  }
  ~Source() { ::unlink(path_.c_str()); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const Store& store() const { return *store_; }
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return text_.size(); }
  // What [offset, offset + bytes) must look like in memory that was kUntouched before.
  bool right(std::uint64_t offset, std::uint64_t bytes, const std::uint8_t* memory) const {
    const std::uint64_t have =
        offset < text_.size() ? std::min<std::uint64_t>(bytes, text_.size() - offset) : 0;
    if (std::memcmp(memory, text_.data() + std::min(offset, this->bytes()), have) != 0) {
      return false;
    }
    return std::all_of(memory + have, memory + bytes, [](auto b) { return b == kUntouched; });
  }

 private:
  std::vector<std::uint8_t> text_;
  std::string path_;
  Fd fd_;
  Result<Store> store_ = fail(Status::internal, "the store", "not opened yet");
};

// A request with memory of its own, and how often it was told to be done.
struct Ask : ReadRequest {
  Ask(const Source& from, std::uint64_t at, std::uint64_t size, bool urgent_ = false)
      : source(from), memory(static_cast<std::uint8_t*>(std::aligned_alloc(kPage, size))) {
    std::memset(memory, kUntouched, size);
    store = &from.store();
    offset = at;
    bytes = size;
    into = memory;
    urgent = urgent_;
  }
  ~Ask() { std::free(memory); }
  Ask(const Ask&) = delete;
  Ask& operator=(const Ask&) = delete;
  bool right() const { return outcome.status == Status::ok && source.right(offset, bytes, memory); }

  const Source& source;
  std::uint8_t* memory;
  std::atomic<int> told{0};
};

// Receives done().
class Receiver {
 public:
  static void done(void* context, ReadRequest& request) {
    auto& self = *static_cast<Receiver*>(context);
    if (self.then) self.then(request);
    // From here on its owner may be gone with it.
    static_cast<Ask&>(request).told.fetch_add(1);
    const std::scoped_lock lock(self.mutex_);
    ++self.count_;
    if (self.in_order.size() < self.in_order.capacity()) self.in_order.push_back(&request);
    self.changed_.notify_all();
  }
  // False when they do not come.
  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return count_ >= count; });
  }
  Receiver() { in_order.reserve(64); }

  void (*then)(ReadRequest&) = nullptr;
  std::vector<const ReadRequest*> in_order;  // the first of them

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

// ---- Hooks

inline std::atomic<bool> g_gate{false};  // open
inline std::atomic<bool> g_waits{false};
inline std::atomic<std::uint64_t> g_held_offset{0};
inline std::mutex g_attempts_mutex;
inline std::vector<std::uint64_t> g_attempts;  // offsets
inline std::atomic<std::uint64_t> g_largest{0};

inline int record(std::uint64_t offset, std::uint64_t bytes, bool) {
  const std::scoped_lock lock(g_attempts_mutex);
  g_attempts.push_back(offset);
  g_largest = std::max(g_largest.load(), bytes);
  return 0;
}
// Holds the read at g_held_offset until the gate is open.
inline int hold(std::uint64_t offset, std::uint64_t bytes, bool direct) {
  if (offset == g_held_offset.load()) {
    g_waits = true;
    while (!g_gate.load())
      std::this_thread::yield();
  }
  return record(offset, bytes, direct);
}

inline std::atomic<std::uint64_t> g_calls{0};
inline int fail_some(std::uint64_t, std::uint64_t, bool direct) {
  const std::uint64_t n = g_calls.fetch_add(1);
  if (n % 31 == 0) return EIO;
  if (n % 17 == 0) return kShortRead;
  return direct && n % 7 == 0 ? ENOMEM : 0;
}

// ---- Both engines

class ReaderOf : public ::testing::TestWithParam<ReadEngine> {
 protected:
  void SetUp() override {
    g_gate = false;
    g_waits = false;
    g_held_offset = 0;
    g_attempts.clear();
    g_largest = 0;
    g_calls = 0;
    auto probe = Reader::create({GetParam(), 1, 65536}, &Receiver::done, &receiver_);
    if (!probe) GTEST_SKIP() << probe.error().line();
  }
  void TearDown() override {
    g_gate = true;
    reader_.reset();
    g_read_fault_hook.store(nullptr);
  }
  Reader& make(std::uint32_t depth, std::uint64_t piece = 512 * KiB) {
    auto made = Reader::create({GetParam(), depth, static_cast<std::uint32_t>(piece)},
                               &Receiver::done, &receiver_);
    if (!made) std::abort();
    reader_ = std::move(*made);
    return *reader_;
  }
  // With a depth of one: nothing else starts until the gate is opened.
  void block(Ask& first) {
    g_held_offset = first.offset;
    g_read_fault_hook.store(&hold);
    reader_->submit(first);
    while (!g_waits.load())
      std::this_thread::yield();
  }
  std::vector<std::uint64_t> attempts() {
    const std::scoped_lock lock(g_attempts_mutex);
    return g_attempts;
  }
  // One request, from submit to done.
  void run(Ask& ask) {
    reader_->submit(ask);
    ASSERT_TRUE(receiver_.wait_for(++ran_));
    EXPECT_EQ(ask.told.load(), 1);
  }

  // Outlives the reader.
  const Source& file(std::uint64_t bytes) { return files_.emplace_back(bytes); }

  Receiver receiver_;
  std::deque<Source> files_;
  std::unique_ptr<Reader> reader_;
  std::size_t ran_ = 0;
};

}  // namespace resid::test

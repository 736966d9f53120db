// What this machine allows a program that streams weights: the bound that residctl is held against
// where a disk and a processor get in each other's way, so that neither can be had in full.
//
//   stream_ceiling rates FILE
//     Direct reads into one to four buffers, at rest and while another thread sums memory as a
//     matrix product does: what the disk gives at best, and what it gives while tokens are
//     computed.
//   stream_ceiling stream FILE PERCENT TOKENS KIB READERS SECONDS
//     A program that is told everything and pays for nothing else: no pager, no faults, no control
//     group, no copy. PERCENT of the file's chunks are in large anonymous pages; the others, spread
//     evenly, are read in order by READERS threads of KIB a request into a ring of four chunks. A
//     token is the sum over all of them, and computes for SECONDS at least, as the program that it
//     is compared with does.
//
// Both print one line of JSON. bench/run_vs_mmap runs them among its arms.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/units.hpp"
#include "storage/read_buffer.hpp"

namespace {

using namespace resid;

constexpr std::uint64_t kChunk = kLargePage;
constexpr std::uint64_t kRing = 4;  // chunks read ahead

[[noreturn]] void give_up(const std::string& line) {
  std::fprintf(stderr, "stream_ceiling: %s\n", line.c_str());
  std::exit(1);
}

void read_all(const Fd& fd, std::uint8_t* into, std::uint64_t bytes, std::uint64_t offset) {
  if (::pread(fd.get(), into, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes)) {
    give_up("a read failed or was short : " + std::string(std::strerror(errno)) +
            " : see whether the file changed");
  }
}

ReadBuffer memory(std::uint64_t bytes) {
  auto made = ReadBuffer::make(large_page_up(bytes));
  if (!made) give_up("no memory : the resident part does not fit : name a smaller file");
  return made;
}

// Adds up, with as many accumulators as hide the adds: bound by memory, like a matrix product.
std::uint64_t sum(const std::uint8_t* data, std::uint64_t bytes) {
  std::uint64_t of[8] = {};
  for (std::uint64_t at = 0; at < bytes; at += sizeof of) {
    std::uint64_t words[8];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 8; ++i)
      of[i] += words[i];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t one : of)
    all += one;
  return all;
}

std::atomic<std::uint64_t> g_sink{0};  // so that no sum is left out

double seconds_since(std::uint64_t began) {
  return static_cast<double>(now_ns() - began) / 1e9;
}

// Bytes a second that `readers` threads, each with a buffer of its own, get out of the file.
double read_rate(const Fd& fd, std::uint64_t file, std::uint64_t request, unsigned readers,
                 double seconds) {
  const ReadBuffer into = memory(readers * request);
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> done{0};
  const std::uint64_t began = now_ns();
  std::vector<std::jthread> threads;
  for (unsigned r = 0; r < readers; ++r) {
    threads.emplace_back([&, r] {
      while (seconds_since(began) < seconds) {
        read_all(fd, into.data() + r * request, request,
                 next.fetch_add(1) % (file / request) * request);
        done.fetch_add(request);
      }
    });
  }
  threads.clear();
  return static_cast<double>(done.load()) / seconds_since(began);
}

struct Shape {
  std::uint64_t request;
  unsigned readers;
};
// What disks are fastest at differs; the best of these is the bandwidth.
constexpr Shape kShapes[] = {
    {2ULL << 20, 1}, {2ULL << 20, 2}, {2ULL << 20, 4}, {1ULL << 20, 2}, {512ULL << 10, 4}};

int rates(const Fd& fd, std::uint64_t file) {
  constexpr double kSeconds = 0.1;
  constexpr int kRounds = 3;  // at rest and busy in turn: the disk moves from moment to moment
  double of[std::size(kShapes)][2] = {};
  const ReadBuffer weights = memory(256ULL << 20);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t s = 0; s < std::size(kShapes); ++s) {
      for (const bool busy : {false, true}) {
        std::jthread compute;
        if (busy) {
          compute = std::jthread([&](const std::stop_token& stop) {
            for (std::uint64_t at = 0; !stop.stop_requested(); at = (at + kChunk) % weights.bytes())
              g_sink += sum(weights.data() + at, kChunk);
          });
        }
        of[s][busy ? 1 : 0] +=
            read_rate(fd, file, kShapes[s].request, kShapes[s].readers, kSeconds) / kRounds;
      }
    }
  }
  std::printf("[");
  for (std::size_t s = 0; s < std::size(kShapes); ++s) {
    std::printf("%s{\"request\": %llu, \"readers\": %u, \"rest\": %.0f, \"busy\": %.0f}",
                s == 0 ? "" : ", ", static_cast<unsigned long long>(kShapes[s].request),
                kShapes[s].readers, of[s][0], of[s][1]);
  }
  std::printf("]\n");
  return 0;
}

// The chunks that are not resident, in the order of reading, over and over. Chunk number `n` of all
// that were ever missing is in the ring from when all its pieces are read until it is given back.
class Ahead {
 public:
  Ahead(const Fd& fd, std::vector<std::uint64_t> offsets, std::uint64_t request, unsigned readers)
      : fd_(fd),
        offsets_(std::move(offsets)),
        request_(request),
        ring_(memory(kRing * kChunk)),
        pieces_left_(kRing, kChunk / request) {
    if (offsets_.empty()) return;
    for (unsigned r = 0; r < readers; ++r)
      threads_.emplace_back([this] { read_on(); });
  }
  ~Ahead() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    room_.notify_all();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  const std::uint8_t* take(std::uint64_t n) {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [&] { return ready_[n % kRing] == n + 1; });
    return ring_.data() + n % kRing * kChunk;
  }
  void give_back() {
    {
      const std::lock_guard lock(mutex_);
      ++used_;
    }
    room_.notify_all();
  }

 private:
  void read_on() {
    const std::uint64_t pieces = kChunk / request_;
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [&] { return ended_ || next_piece_ / pieces < used_ + kRing; });
      if (ended_) return;
      const std::uint64_t piece = next_piece_++;
      const std::uint64_t n = piece / pieces;
      const std::uint64_t within = piece % pieces * request_;
      lock.unlock();
      read_all(fd_, ring_.data() + n % kRing * kChunk + within, request_,
               offsets_[n % offsets_.size()] + within);
      lock.lock();
      if (--pieces_left_[n % kRing] == 0) {
        pieces_left_[n % kRing] = pieces;
        ready_[n % kRing] = n + 1;
        there_.notify_one();
      }
    }
  }

  const Fd& fd_;
  const std::vector<std::uint64_t> offsets_;
  const std::uint64_t request_;
  const ReadBuffer ring_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable there_;
  std::vector<std::uint64_t> pieces_left_;
  std::uint64_t ready_[kRing] = {};  // the chunk's number and one
  std::uint64_t next_piece_ = 0;
  std::uint64_t used_ = 0;
  bool ended_ = false;
  std::vector<std::jthread> threads_;  // end first
};

int stream(const Fd& fd, std::uint64_t file, double percent, unsigned tokens, std::uint64_t request,
           unsigned readers, double compute_s) {
  const std::uint64_t chunks = file / kChunk;
  const auto keep = static_cast<std::uint64_t>(static_cast<double>(chunks) * percent / 100);
  const ReadBuffer resident = memory(std::max<std::uint64_t>(keep, 1) * kChunk);
  std::vector<bool> here(chunks);
  std::vector<std::uint64_t> missing;
  for (std::uint64_t i = 0, at = 0; i < chunks; ++i) {
    here[i] = (i + 1) * keep / chunks > i * keep / chunks;
    if (here[i])
      read_all(fd, resident.data() + at++ * kChunk, kChunk, i * kChunk);
    else
      missing.push_back(i * kChunk);
  }
  Ahead ahead(fd, missing, request, readers);
  std::printf("{\"token_s\": [");
  for (std::uint64_t token = 0, n = 0; token < tokens; ++token) {
    const std::uint64_t began = now_ns();
    for (std::uint64_t i = 0, at = 0; i < chunks; ++i) {
      const std::uint8_t* chunk = here[i] ? resident.data() + at++ * kChunk : ahead.take(n++);
      const std::uint64_t taken = now_ns();
      g_sink += sum(chunk, kChunk);
      while (seconds_since(taken) < compute_s / static_cast<double>(chunks)) {
      }
      if (!here[i]) ahead.give_back();
    }
    std::printf("%s%.6f", token == 0 ? "" : ", ", seconds_since(began));
  }
  std::printf("], \"read_bytes_per_token\": %llu}\n",
              static_cast<unsigned long long>(missing.size() * kChunk));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const bool well_formed = (verb == "rates" && argc == 3) || (verb == "stream" && argc == 8);
  if (!well_formed) {
    std::fprintf(stderr,
                 "usage: stream_ceiling rates FILE\n"
                 "       stream_ceiling stream FILE PERCENT TOKENS KIB READERS SECONDS\n");
    return 2;
  }
  const Fd fd(::open(argv[2], O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!fd)
    give_up(std::string(argv[2]) + " : " + std::strerror(errno) +
            " : name a readable file on a disk");
  const off_t end = ::lseek(fd.get(), 0, SEEK_END);
  const auto file = end > 0 ? static_cast<std::uint64_t>(end) / kChunk * kChunk : 0;
  if (file < 4 * kChunk)
    give_up(std::string(argv[2]) + " : smaller than 8 MiB : name a larger file");
  if (verb == "rates") return rates(fd, file);
  const double percent = std::strtod(argv[3], nullptr);
  const auto tokens = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  const std::uint64_t request = std::strtoull(argv[5], nullptr, 10) << 10;
  const auto readers = static_cast<unsigned>(std::strtoul(argv[6], nullptr, 10));
  const double compute_s = std::strtod(argv[7], nullptr);
  if (!(percent >= 0 && percent <= 100) || request == 0 || kChunk % request != 0 || readers == 0 ||
      !(compute_s >= 0)) {
    give_up("PERCENT 0 to 100, KIB a divisor of 2048, READERS 1 or more, SECONDS 0 or more");
  }
  return stream(fd, file, percent, tokens, request, readers, compute_s);
}

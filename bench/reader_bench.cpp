// What the reader gets out of the disk, by engine, depth and size of a request. Direct reads of a
// file of 1 GiB in $RESIDCTL_BENCH_DIR or /var/tmp, one after the other, without a pause; requests
// are as large as pieces, so that none is cut or merged.
//
//   build/release/bench/reader_bench                           # the table
//   build/release/bench/reader_bench --once FILE io_uring 131072 16 2.0   # one cell, as JSON:
//                                                 engine, bytes a request, depth, seconds

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/units.hpp"
#include "storage/page_cache.hpp"
#include "storage/read_buffer.hpp"
#include "storage/reader.hpp"

namespace {

using namespace resid;

constexpr std::uint64_t kFileBytes = 1ULL << 30;

[[noreturn]] void give_up(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  std::exit(1);
}

// So many requests, each with a buffer of its own and submitted again as soon as it is done.
class Stream {
 public:
  Stream(const Store& store, ReadEngine engine, std::uint64_t request, std::uint32_t depth,
         std::uint32_t count)
      : store_(store),
        request_bytes_(request),
        memory_(ReadBuffer::make(large_page_up(count * request))),
        requests_(count) {
    if (!memory_) give_up("no memory for the buffers");
    ReaderConfig config;
    config.engine = engine;
    config.depth = depth;
    config.piece_bytes = static_cast<std::uint32_t>(request);
    auto reader = Reader::create(
        config, [](void* self, ReadRequest& done) { static_cast<Stream*>(self)->took_in(done); },
        this);
    if (!reader) give_up(reader.error().line());
    reader_ = std::move(*reader);
    reader_->add_store(store);
    for (std::size_t i = 0; i < requests_.size(); ++i)
      requests_[i].into = memory_.data() + i * request;
  }

  // Reads until `bytes` are read or it is `end_ns`; returns the bytes.
  std::uint64_t run(std::uint64_t bytes, std::uint64_t end_ns) {
    left_.store(static_cast<std::int64_t>(bytes / request_bytes_));
    end_ns_ = end_ns;
    read_.store(0);
    out_.store(static_cast<std::uint32_t>(requests_.size()));
    for (ReadRequest& request : requests_)
      go_on(request);
    for (std::uint32_t out = out_.load(); out != 0; out = out_.load())
      out_.wait(out);
    return read_.load();
  }

 private:
  void took_in(ReadRequest& request) {
    if (request.outcome.status != Status::ok) give_up("a read failed");
    read_.fetch_add(request.bytes, std::memory_order_relaxed);
    go_on(request);
  }
  void go_on(ReadRequest& request) {
    if (left_.fetch_sub(1) > 0 && now_ns() < end_ns_) {
      request.store = &store_;
      request.bytes = request_bytes_;
      request.offset = next_.fetch_add(1) % (store_.bytes() / request_bytes_) * request_bytes_;
      reader_->submit(request);
    } else if (out_.fetch_sub(1) == 1) {
      out_.notify_all();
    }
  }

  const Store& store_;
  const std::uint64_t request_bytes_;
  const ReadBuffer memory_;
  std::vector<ReadRequest> requests_;
  std::atomic<std::int64_t> left_{0};
  std::uint64_t end_ns_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> read_{0};
  std::atomic<std::uint32_t> out_{0};
  std::unique_ptr<Reader> reader_;  // ends first
};

Store open_store(int fd, const std::string& path) {
  auto store = Store::open(fd, path);
  if (!store) give_up(store.error().line());
  if (!store->direct()) give_up(path + " : no direct reads here : set RESIDCTL_BENCH_DIR");
  return std::move(*store);
}

// Random bytes, on the disk and not in memory.
const Store& scratch_store() {
  static const Fd fd = [] {
    const char* folder = std::getenv("RESIDCTL_BENCH_DIR");
    std::string path =
        std::string(folder != nullptr ? folder : "/var/tmp") + "/reader-bench-XXXXXX";
    Fd made(::mkostemp(path.data(), O_CLOEXEC));
    if (!made) give_up(path + " : cannot be written : set RESIDCTL_BENCH_DIR");
    ::unlink(path.c_str());
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> text(kLargePage / sizeof(std::uint64_t));
    for (std::uint64_t at = 0; at < kFileBytes; at += kLargePage) {
      std::generate(text.begin(), text.end(), [&] { return random(); });
      if (::write(made.get(), text.data(), kLargePage) != static_cast<ssize_t>(kLargePage)) {
        give_up(path + " : no room for 1 GiB : set RESIDCTL_BENCH_DIR");
      }
    }
    (void)drop_cached(made.get(), kFileBytes, path);
    return made;
  }();
  static const Store store = open_store(fd.get(), "the scratch file");
  return store;
}

void read_on(benchmark::State& state, ReadEngine engine, std::uint64_t request,
             std::uint32_t depth) {
  constexpr std::uint64_t kRound = 64ULL << 20;
  // As many wait as are in flight.
  Stream stream(scratch_store(), engine, request, depth, 2 * depth);
  std::uint64_t bytes = 0;
  for (auto _ : state)
    bytes += stream.run(kRound, ~0ULL);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

std::optional<ReadEngine> engine_named(std::string_view text) {
  for (const ReadEngine engine : {ReadEngine::io_uring, ReadEngine::threads}) {
    if (name(engine) == text) return engine;
  }
  return std::nullopt;
}

int once(char** words) {
  const auto engine = engine_named(words[1]);
  const std::uint64_t request = std::strtoull(words[2], nullptr, 10);
  const auto depth = static_cast<std::uint32_t>(std::strtoul(words[3], nullptr, 10));
  const double seconds = std::strtod(words[4], nullptr);
  const Fd fd(::open(words[0], O_RDONLY | O_CLOEXEC));
  if (!engine || !fd || request == 0 || seconds <= 0) {
    give_up("reader_bench --once FILE io_uring|threads BYTES DEPTH SECONDS");
  }
  const Store store = open_store(fd.get(), words[0]);
  if (store.bytes() < request) give_up(store.path() + " : smaller than a request");
  // With no more buffers than a program that only keeps `depth` reads in flight: where the disk is
  // another program's memory, what stays in the processor's cache is filled faster.
  Stream stream(store, *engine, request, depth, depth);
  const std::uint64_t began = now_ns();
  const std::uint64_t bytes =
      stream.run(INT64_MAX, began + static_cast<std::uint64_t>(seconds * 1e9));
  const double spent = static_cast<double>(now_ns() - began) / 1e9;
  std::printf("{\"bytes\": %llu, \"seconds\": %.6f, \"bytes_per_s\": %.0f}\n",
              static_cast<unsigned long long>(bytes), spent, static_cast<double>(bytes) / spent);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 7 && std::strcmp(argv[1], "--once") == 0) return once(argv + 2);
  for (const ReadEngine engine : {ReadEngine::io_uring, ReadEngine::threads}) {
    for (const std::uint64_t request : {16ULL << 10, 128ULL << 10, 512ULL << 10, 2ULL << 20}) {
      for (const std::uint32_t depth : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
        const std::string label = "read/" + std::string(name(engine)) + "/" +
                                  std::to_string(request >> 10) + "KiB/" + std::to_string(depth);
        benchmark::RegisterBenchmark(label.c_str(), [=](benchmark::State& state) {
          read_on(state, engine, request, depth);
        })->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

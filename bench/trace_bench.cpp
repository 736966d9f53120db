// What judging a long trace takes: 10 million references over 100,000 chunks, as a file and solved.
//
//   build/release/bench/trace_bench            # a table: seconds and peak memory of every step
//   build/release/bench/trace_bench 1000000 5000
//
// Fails when solving takes longer or more memory than we allow it (kSecondsMost, kMiBMost), which
// is far above what it takes: a machine that is busy must not make it fail.
//
// Not a google-benchmark: one round takes seconds, and the peak memory of each step is half of the
// answer. Every step runs in a process of its own.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "replay/simulate.hpp"
#include "trace/optimum.hpp"
#include "trace/trace.hpp"

namespace {

using namespace resid;

constexpr double kSecondsMost = 15;
constexpr double kMiBMost = 2048;

// A mixture of what models do: scans of most chunks, and skewed choices (experts) in between.
ReferenceString references(std::size_t count, std::uint32_t chunks, bool equal) {
  std::mt19937_64 random(1);
  ReferenceString out;
  out.header.model = "bench";
  for (std::uint32_t i = 0; i < chunks; ++i) {
    // 2 MiB, or in the other case one seam or norm in eight.
    const bool small = !equal && random() % 8 == 0;
    out.header.chunk_bytes.push_back(small ? 4096U * (1U + static_cast<std::uint32_t>(random() % 8))
                                           : 2U << 20);
    out.header.model_bytes += out.header.chunk_bytes.back();
  }
  std::uint32_t at = 0;
  while (out.chunks.size() < count) {
    if (random() % 4 == 0) {
      const double skew = static_cast<double>(random() % 1000000) / 1e6;
      out.chunks.push_back(static_cast<std::uint32_t>(skew * skew * skew * chunks));
    } else {
      out.chunks.push_back(at++ % chunks);
    }
  }
  return out;
}

std::vector<TraceRecord> records_of(const std::vector<std::uint32_t>& chunks) {
  std::mt19937_64 random(2);
  std::vector<TraceRecord> out;
  out.reserve(chunks.size());
  std::uint64_t now = 0;
  for (const std::uint32_t chunk : chunks) {
    now += 100'000 + random() % 200'000;  // about what 2 MiB take to be used
    out.push_back({now, chunk, static_cast<std::uint32_t>(random() % 4)});
  }
  return out;
}

// Runs `work` in a child and prints what it took: the time it returns, the memory of the process.
// False when it failed or took more than is allowed.
bool step(const char* name, const std::function<double()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const double seconds = work();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const double mib = static_cast<double>(usage.ru_maxrss) / 1024;
    std::printf("%-44s %8.2f s  %7.0f MiB\n", name, seconds, mib);
    std::fflush(stdout);
    ::_exit(seconds < 0 || seconds > kSecondsMost || mib > kMiBMost ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) {
    std::printf("%-44s failed, or above %.0f s or %.0f MiB\n", name, kSecondsMost, kMiBMost);
  }
  return status == 0;
}

template <class Work>
double timed(const Work& work) {
  const std::uint64_t start = now_ns();
  if (!work()) return -1;
  return static_cast<double>(now_ns() - start) / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  const auto chunks =
      static_cast<std::uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 100'000);
  const std::string path = std::filesystem::temp_directory_path() / "trace_bench.trace";
  bool good = true;
  std::printf("%zu references over %u chunks; memory is of the whole process\n", count, chunks);
  good &= step("write the trace", [&] {
    const ReferenceString all = references(count, chunks, true);
    const auto records = records_of(all.chunks);
    return timed([&] {
      auto writer = TraceWriter::create(path, all.header);
      if (!writer) return false;
      // As a workload does: some at a time.
      for (std::size_t i = 0; i < records.size(); i += 256) {
        const auto some = std::span(records).subspan(i, std::min<std::size_t>(256, count - i));
        if (!writer->append(some)) return false;
      }
      return writer->finish().has_value();
    });
  });
  std::printf("%-44s %8.1f MiB of %.1f\n", "  file",
              static_cast<double>(std::filesystem::file_size(path)) / (1 << 20),
              static_cast<double>(count * sizeof(TraceRecord)) / (1 << 20));
  good &= step("read it", [&] {
    return timed([&] { return read_references(std::vector<std::string>{path}).has_value(); });
  });
  for (const bool equal : {true, false}) {
    for (const unsigned percent : {10U, 50U, 90U}) {
      char name[100];
      std::snprintf(name, sizeof name, "optimum, %s chunks, capacity %u %%",
                    equal ? "equal" : "unequal", percent);
      good &= step(name, [&] {
        const ReferenceString all = references(count, chunks, equal);
        return timed([&] {
          const auto result =
              optimum_bytes(all.header, all.chunks, all.header.model_bytes / 100 * percent);
          if (result && !equal) {
            std::printf("  lower %llu, upper %llu bytes: %.5f %% apart\n",
                        static_cast<unsigned long long>(result->lower_bytes),
                        static_cast<unsigned long long>(result->upper_bytes),
                        100 * (static_cast<double>(result->upper_bytes) /
                                   static_cast<double>(result->lower_bytes) -
                               1));
          }
          return result.has_value();
        });
      });
    }
  }
  for (const std::string_view policy : policy_names()) {
    const std::string name = "policy " + std::string(policy) + ", capacity 50 %";
    good &= step(name.c_str(), [&] {
      const ReferenceString all = references(count, chunks, true);
      return timed([&] {
        SimulateOptions options;
        options.policy = policy;
        options.budget_bytes = all.header.model_bytes / 2;
        return simulate(all, options).has_value();
      });
    });
  }
  std::filesystem::remove(path);
  return good ? 0 : 1;
}

// What a fault costs a program, and what it is made of.
//
//   fault/VARIANT/BYTES   a load from an absent chunk until it returns: the message, the read, the
//                         filling in, the way back
//   arm, trip/BYTES       a tripwire set on a resident chunk, and a load that trips it
//   fill, map, punch/FRAMES/BYTES
//                         one chunk into the file of memory, into a view, and out of both
//   find_view, find_chunk, locate, chunks_under/COUNT
//                         from an address or an id to what is there
//
// Counters: touch_*, arm_* and step_* are timed around the load or the call itself; the others are
// the pager's own (stats.hpp). The store is a file in $RESIDCTL_BENCH_DIR, else /var/tmp; what the
// disk takes is in read_p50_us, so that overhead_* can be compared where the disks differ.
//
// Whatever a benchmark needs and the machine lacks makes it an error in the output and no failure;
// a pager that is at fault ends the program.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/units.hpp"
#include "model/chunk_plan.hpp"
#include "pager/impl.hpp"
#include "pager/pager.hpp"

namespace {

using namespace resid;

constexpr std::uint64_t kStoreBytes = 128ULL << 20;
constexpr std::uint64_t kBudget = 16ULL << 20;  // never the reason for an eviction here
constexpr std::int64_t kSmallChunk = 64 << 10;
constexpr const char* kNoLargeFolios = "no large folios here (host/frames.hpp)";

[[noreturn]] void broken(const std::string& what, const std::string& why, const char* todo) {
  std::fprintf(stderr, "pager_bench: %s : %s : %s\n", what.c_str(), why.c_str(), todo);
  // Not exit(): the pager's threads still use what that would destroy.
  std::_Exit(1);
}

[[noreturn]] void broken(const std::string& what, int error) {
  broken(what, std::generic_category().message(error),
         "set RESIDCTL_BENCH_DIR to a folder with room");
}

// ---- Stores

// Without a name from the start, so that no way to die leaves it behind.
Fd nameless_file(std::uint64_t bytes) {
  const char* folder = std::getenv("RESIDCTL_BENCH_DIR");
  std::string path = std::string(folder != nullptr ? folder : "/var/tmp") + "/pager-bench-XXXXXX";
  Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) broken(path, errno);
  ::unlink(path.c_str());
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) broken(path, errno);
  return file;
}

// One for all benchmarks that read. Random bytes: there are disks that know zeros and repetitions.
int filled_store() {
  static const Fd store = [] {
    Fd file = nameless_file(kStoreBytes);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> block(1 << 17);
    for (std::uint64_t done = 0; done < kStoreBytes;) {
      for (std::uint64_t& word : block)
        word = random();
      const std::size_t bytes = block.size() * sizeof block[0];
      const ssize_t n = ::pwrite(file.get(), block.data(), bytes, static_cast<off_t>(done));
      if (n <= 0) broken("writing the store", n < 0 ? errno : ENOSPC);
      done += static_cast<std::uint64_t>(n);
    }
    if (::fsync(file.get()) != 0) broken("writing the store", errno);
    // A direct read of what is cached has the cache to look after first.
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    return file;
  }();
  return store.get();
}

ModelFile raw_file(std::uint64_t bytes) {
  ModelFile file;
  file.path = "pager_bench";
  file.bytes = bytes;
  return file;
}

ChunkPlan plan_of(std::uint64_t bytes, std::uint64_t chunk_bytes) {
  auto plan = ChunkPlan::uniform(bytes, chunk_bytes);
  if (!plan) broken(plan.error().what, plan.error().why, "report this");
  return std::move(*plan);
}

// ---- Figures

double us(std::uint64_t ns) {
  return static_cast<double>(ns) / 1000;
}

// Every single duration: a histogram's steps are wider than the differences that matter here.
class Samples {
 public:
  void add(std::uint64_t ns) { ns_.push_back(ns); }
  void report(benchmark::State& state, const std::string& name) {
    if (ns_.empty()) return;
    state.counters[name + "_p50_us"] = quantile(0.50);
    state.counters[name + "_p99_us"] = quantile(0.99);
  }

 private:
  double quantile(double fraction) {
    const auto place = static_cast<std::size_t>(fraction * static_cast<double>(ns_.size()));
    const auto at = ns_.begin() + static_cast<std::ptrdiff_t>(std::min(place, ns_.size() - 1));
    std::nth_element(ns_.begin(), at, ns_.end());
    return us(*at);
  }
  std::vector<std::uint64_t> ns_;
};

// As LatencyHistogram::quantile, but straight between the ends of a step. Two runs that differ by
// little would else be the same, or a whole step of up to 12.5 % apart.
double quantile_us(const LatencyHistogram& histogram, double fraction) {
  const double want = fraction * static_cast<double>(histogram.count());
  double seen = 0;
  for (std::uint32_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
    const auto here = static_cast<double>(histogram.buckets[i].load());
    if (here > 0 && seen + here >= want) {
      const double low = i == 0 ? 0 : us(LatencyHistogram::upper(i - 1) + 1);
      const double high = us(std::min(LatencyHistogram::upper(i) + 1, histogram.max_ns.load()));
      return low + std::max(0.0, high - low) * (want - seen) / here;
    }
    seen += here;
  }
  return us(histogram.max_ns.load());
}

void per_second(benchmark::State& state, std::uint64_t bytes) {
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

// ---- The pager as a whole

// A pager over one store cut into equal chunks, seen through one view.
struct Rig {
  PagerStats stats;
  std::unique_ptr<Pager> pager;
  const volatile std::uint8_t* view = nullptr;

  // Nothing, and the benchmark skipped, where the machine cannot.
  static std::unique_ptr<Rig> make(benchmark::State& state, const PagerConfig& config, int store,
                                   std::uint64_t bytes, std::uint64_t chunk_bytes) {
    auto rig = std::make_unique<Rig>();
    auto pager = Pager::create(config, rig->stats, nullptr, nullptr);
    if (!pager) return skipped(state, pager.error());
    rig->pager = std::move(*pager);
    auto region =
        rig->pager->add_region(store, "pager_bench", raw_file(bytes), plan_of(bytes, chunk_bytes));
    if (!region) return skipped(state, region.error());
    auto view = rig->pager->map_view(*region, nullptr, bytes, 0, 0);
    if (!view) return skipped(state, view.error());
    rig->view = static_cast<const volatile std::uint8_t*>(*view);
    return rig;
  }

  std::uint64_t touch(std::uint64_t offset) const {
    const std::uint64_t began = now_ns();
    benchmark::DoNotOptimize(view[offset]);
    return now_ns() - began;
  }

  // What was measured must be what is named: no figure is better than that of another thing.
  void check(const Counter& counter, const char* name, std::uint64_t expected) const {
    if (pager->impl()->reported.load() != 0) std::_Exit(1);  // its line is out
    if (counter.load() == expected && stats.read_retries.load() == 0) return;
    broken(std::string(name) + ", of " + std::to_string(expected) + " loads",
           std::to_string(counter.load()) + " counted, " +
               std::to_string(stats.read_retries.load()) + " reads retried",
           "report this");
  }

 private:
  static std::unique_ptr<Rig> skipped(benchmark::State& state, const Failure& failure) {
    state.SkipWithError(failure.line().c_str());
    return nullptr;
  }
};

struct Variant {
  const char* name;
  bool large;
  ReadEngine engine;
  bool sync;
};

// Each differs from the first in one thing.
constexpr std::array<Variant, 4> kVariants{{
    {"large/io_uring", true, ReadEngine::io_uring, false},
    {"small/io_uring", false, ReadEngine::io_uring, false},
    {"large/threads", true, ReadEngine::threads, false},
    {"large/sync_handler", true, ReadEngine::io_uring, true},
}};

void fault(benchmark::State& state, const Variant& variant) {
  const auto chunk_bytes = static_cast<std::uint64_t>(state.range(0));
  PagerConfig config;
  config.budget_bytes = kBudget;
  config.large_frames = variant.large;
  config.reader.engine = variant.engine;
  config.sync_handler = variant.sync;
  const auto rig = Rig::make(state, config, filled_store(), kStoreBytes, chunk_bytes);
  if (!rig) return;
  if (rig->pager->large_frames() != variant.large) {
    state.SkipWithError(kNoLargeFolios);
    return;
  }
  if (!rig->pager->impl()->regions.front()->store().direct()) {
    state.SkipWithError("the store cannot be read directly: set RESIDCTL_BENCH_DIR to a disk");
    return;
  }
  const auto chunks = static_cast<ChunkId>(kStoreBytes / chunk_bytes);
  // Odd, and so a walk over all of them; far enough that no read continues the one before.
  const ChunkId step = chunks / 8 * 5 + 1;
  ChunkId chunk = 0;
  Samples touches;
  for (auto _ : state) {
    const std::uint64_t ns = rig->touch(chunk * chunk_bytes);
    state.SetIterationTime(seconds(ns));
    touches.add(ns);
    // The load returns before the chunk is published, and only then can it be given up.
    rig->pager->settle();
    if (!rig->pager->evict(chunk)) broken("evict", "the chunk stays", "report this");
    chunk = (chunk + step) % chunks;
  }
  const PagerStats& stats = rig->stats;
  rig->check(stats.absent_handled, "faults", static_cast<std::uint64_t>(state.iterations()));
  touches.report(state, "touch");
  state.counters["fault_p50_us"] = quantile_us(stats.fault_ns, 0.50);
  state.counters["fault_p99_us"] = quantile_us(stats.fault_ns, 0.99);
  state.counters["overhead_p50_us"] = quantile_us(stats.overhead_ns, 0.50);
  state.counters["overhead_p99_us"] = quantile_us(stats.overhead_ns, 0.99);
  state.counters["read_p50_us"] = quantile_us(stats.read_ns, 0.50);
  per_second(state, chunk_bytes);
}

enum class Tripwire : std::uint8_t { arm, trip };

void tripwire(benchmark::State& state, Tripwire timed) {
  const auto chunk_bytes = static_cast<std::uint64_t>(state.range(0));
  PagerConfig config;
  config.budget_bytes = kBudget;
  const auto rig = Rig::make(state, config, filled_store(), kStoreBytes, chunk_bytes);
  if (!rig) return;
  Pager::Impl& pager = *rig->pager->impl();
  void* page = const_cast<std::uint8_t*>(rig->view);
  rig->touch(0);
  rig->pager->settle();
  Samples arms;
  Samples trips;
  for (auto _ : state) {
    const std::uint64_t began = now_ns();
    {
      Lock lock(pager.mutex);
      pager.state(0).set_armed(lock, true);
    }
    const int refused = ::madvise(page, kPage, MADV_DONTNEED);
    const std::uint64_t armed = now_ns() - began;
    if (refused != 0) broken("madvise", std::generic_category().message(errno), "report this");
    const std::uint64_t tripped = rig->touch(0);
    state.SetIterationTime(seconds(timed == Tripwire::arm ? armed : tripped));
    arms.add(armed);
    trips.add(tripped);
  }
  rig->check(rig->stats.tripwires, "tripwires", static_cast<std::uint64_t>(state.iterations()));
  if (timed == Tripwire::arm) {
    arms.report(state, "arm");
  } else {
    trips.report(state, "touch");
    state.counters["trip_p50_us"] = quantile_us(rig->stats.trip_ns, 0.50);
    state.counters["trip_p99_us"] = quantile_us(rig->stats.trip_ns, 0.99);
  }
  state.SetItemsProcessed(state.iterations());
}

// ---- The kernel's part of it

enum class Step : std::uint8_t { fill, map, punch };

// A chunk goes all the way in and out again, as it does in the pager, and one step of it is timed:
// pages are in the state, and in the caches, in which the step before leaves them.
void kernel_step(benchmark::State& state, Step timed, bool large) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0));
  const auto frames = host::FrameSource::open(large);
  if (!frames || frames->large() != large) {
    state.SkipWithError(kNoLargeFolios);
    return;
  }
  auto uffd = Userfault::open();
  if (!uffd) {
    state.SkipWithError(uffd.error().line().c_str());
    return;
  }
  auto opened = Region::open(filled_store(), "pager_bench", raw_file(kStoreBytes),
                             plan_of(kStoreBytes, bytes), *frames, false);
  if (!opened) {
    state.SkipWithError(opened.error().line().c_str());
    return;
  }
  const Region& region = **opened;
  void* view = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, region.memfd(), 0);
  if (view == MAP_FAILED) broken("mmap", std::generic_category().message(errno), "free memory");
  ::madvise(view, bytes, MADV_NOHUGEPAGE);  // I-9
  const auto address = reinterpret_cast<std::uint64_t>(view);
  if (const int error = uffd->add_range(address, bytes); error != 0) {
    broken("registering the view", std::generic_category().message(error), "report this");
  }
  // Where the pager's bytes come from, and in the same kind of memory.
  const ReadBuffer source = ReadBuffer::make(bytes);
  if (!source) broken("a staging area", "no memory", "free memory");
  std::fill_n(source.data(), bytes, std::uint8_t{0x5a});
  FillEvents events;
  Samples samples;
  for (auto _ : state) {
    const std::uint64_t began = now_ns();
    const int fill_error = region.fill(0, source.data());
    const std::uint64_t filled = now_ns();
    const FillResult map_result = uffd->map(address, bytes, events);
    const std::uint64_t mapped = now_ns();
    const int punch_error = region.punch(0, bytes);
    const std::uint64_t punched = now_ns();
    if (fill_error != 0 || map_result != FillResult::done || punch_error != 0) {
      broken("a chunk's way in and out", "the kernel refused a step", "report this");
    }
    const std::uint64_t ns = timed == Step::fill  ? filled - began
                             : timed == Step::map ? mapped - filled
                                                  : punched - mapped;
    state.SetIterationTime(seconds(ns));
    samples.add(ns);
  }
  ::munmap(view, bytes);
  samples.report(state, "step");
  per_second(state, bytes);
}

// ---- Looking up

// Places all over what is looked up, so that the caches hold no more of it than they would.
class Places {
 public:
  explicit Places(std::uint64_t count) : count_(count) {}
  std::uint64_t next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % count_;
  }

 private:
  std::uint64_t count_;
  std::uint64_t state_ = 1;
};

void find_view(benchmark::State& state) {
  constexpr std::uint64_t kFirst = 1ULL << 32;
  constexpr std::uint64_t kApart = 4ULL << 20;
  ViewTable views;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(state.range(0)); ++i) {
    views.add({kFirst + i * kApart, kFirst + i * kApart + kApart / 2, 0, i * kApart});
  }
  Places places(static_cast<std::uint64_t>(state.range(0)));
  View found;
  for (auto _ : state) {
    benchmark::DoNotOptimize(views.find(kFirst + places.next() * kApart + kPage, found));
  }
  state.SetItemsProcessed(state.iterations());
}

void find_chunk(benchmark::State& state) {
  const auto chunks = static_cast<std::uint64_t>(state.range(0));
  const ChunkPlan plan = plan_of(chunks * kPage, kPage);
  Places places(chunks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan.find(places.next() * kPage));
  }
  state.SetItemsProcessed(state.iterations());
}

// A rig over a store that has a size and no bytes, kept for the next call with the same count:
// google-benchmark makes several, and a million chunks take a while.
Rig* wide_rig(benchmark::State& state) {
  static std::pair<std::int64_t, std::unique_ptr<Rig>> kept;
  if (kept.first == state.range(0) && kept.second) return kept.second.get();
  kept = {};
  const std::uint64_t bytes = static_cast<std::uint64_t>(state.range(0)) * kPage;
  PagerConfig config;
  config.budget_bytes = kBudget;
  const Fd store = nameless_file(bytes);
  kept = {state.range(0), Rig::make(state, config, store.get(), bytes, kPage)};
  return kept.second.get();
}

void locate(benchmark::State& state) {
  const Rig* rig = wide_rig(state);
  if (rig == nullptr) return;
  const Pager::Impl& pager = *rig->pager->impl();
  Places places(static_cast<std::uint64_t>(state.range(0)));
  const Lock lock(pager.mutex);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pager.state(static_cast<ChunkId>(places.next())).phase());
  }
  state.SetItemsProcessed(state.iterations());
}

void chunks_under(benchmark::State& state) {
  const Rig* rig = wide_rig(state);
  if (rig == nullptr) return;
  const auto* view = const_cast<const std::uint8_t*>(rig->view);
  Places places(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(rig->pager->chunks_under(view + places.next() * kPage, 1));
  }
  state.SetItemsProcessed(state.iterations());
}

void add_all() {
  using benchmark::RegisterBenchmark;
  constexpr auto kLarge = static_cast<std::int64_t>(kLargePage);
  for (const Variant& variant : kVariants) {
    const std::string name = std::string("fault/") + variant.name;
    RegisterBenchmark(name.c_str(), [&](benchmark::State& state) { fault(state, variant); })
        ->Arg(kPage)
        ->Arg(kSmallChunk)
        ->Arg(512 << 10)
        ->Arg(kLarge)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  for (const Tripwire timed : {Tripwire::arm, Tripwire::trip}) {
    RegisterBenchmark(timed == Tripwire::arm ? "arm" : "trip",
                      [=](benchmark::State& state) { tripwire(state, timed); })
        ->Arg(kSmallChunk)
        ->Arg(kLarge)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  constexpr std::array<std::pair<const char*, Step>, 3> kSteps{
      {{"fill", Step::fill}, {"map", Step::map}, {"punch", Step::punch}}};
  for (const auto& [step_name, step] : kSteps) {
    for (const bool large : {true, false}) {
      const std::string name = std::string(step_name) + (large ? "/large" : "/small");
      RegisterBenchmark(
          name.c_str(),
          [=, timed = step](benchmark::State& state) { kernel_step(state, timed, large); })
          ->Arg(kSmallChunk)
          ->Arg(kLarge)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  RegisterBenchmark("find_view", find_view)->Arg(1)->Arg(64);
  RegisterBenchmark("find_chunk", find_chunk)->RangeMultiplier(10)->Range(1000, 1'000'000);
  RegisterBenchmark("locate", locate)->RangeMultiplier(10)->Range(1000, 1'000'000);
  RegisterBenchmark("chunks_under", chunks_under)->RangeMultiplier(10)->Range(1000, 1'000'000);
}

}  // namespace

int main(int argc, char** argv) {
  add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

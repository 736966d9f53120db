#include "replay/driver.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"

namespace resid {
namespace {

// Where every thread stands, and what follows from it. All calls into the arm are made here, under
// the lock: the pager's fault thread never takes it, so a thread that waits for the pager inside
// is always served.
class Frontier {
 public:
  Frontier(const Workload& workload, const DriveConfig& config, Arm& arm, DriveRecord& record,
           const std::uint64_t& start_ns)
      : workload_(workload),
        config_(config),
        arm_(arm),
        record_(record),
        start_ns_(start_ns),
        done_(config.threads, 0) {}

  // Waits until `thread` may read access `at` (D-2). False: it is to stop.
  bool start(std::uint64_t at, std::uint32_t thread) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return stopped_ || at <= slowest_ + config_.lookahead; });
    if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) {
      stopped_ = true;
      moved_.notify_all();
    }
    if (stopped_) return false;
    if (at != started_) return true;
    const std::uint32_t chunk = chunk_at(at);
    record_.references[at] = {now_ns() - start_ns_, chunk, thread};  // D-3
    record_.started.store(++started_, std::memory_order_release);
    arm_.before(chunk);
    return true;
  }

  void finish(std::uint64_t at, std::uint32_t thread, bool right) {
    const std::lock_guard lock(mutex_);
    if (!right && record_.mismatches.fetch_add(1) == 0) record_.first_mismatch.store(at);
    done_[thread] = at + 1;
    if (thread == 0 && config_.signal == ConsumptionSignal::thread0) arm_.consumed(chunk_at(at));
    const std::uint64_t slowest = *std::min_element(done_.begin(), done_.end());
    if (slowest == slowest_) return;
    for (; slowest_ < slowest; ++slowest_) {
      if (config_.signal == ConsumptionSignal::all_threads) arm_.consumed(chunk_at(slowest_));
      const std::uint64_t n = workload_.sequence.size();
      if ((slowest_ + 1) % n == 0) record_.read_by_pass[slowest_ / n] = arm_.bytes_read();
    }
    record_.consumed.store(slowest_, std::memory_order_relaxed);
    if (config_.threads > 1) moved_.notify_all();
  }

 private:
  std::uint32_t chunk_at(std::uint64_t at) const {
    return workload_.sequence[at % workload_.sequence.size()];
  }

  const Workload& workload_;
  const DriveConfig& config_;
  Arm& arm_;
  DriveRecord& record_;
  const std::uint64_t& start_ns_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<std::uint64_t> done_;  // accesses finished, by thread
  std::uint64_t slowest_ = 0;
  std::uint64_t started_ = 0;
  bool stopped_ = false;
};

void compute(std::uint64_t ns) {
  const std::uint64_t until = now_ns() + ns;
  while (now_ns() < until) {
  }
}

void consume(const Workload& w, const DriveConfig& config, const std::uint8_t* view,
             std::uint32_t thread, Frontier& frontier) {
  const std::uint64_t total = w.sequence.size() * config.passes;
  for (std::uint64_t at = 0; at < total; ++at) {
    if (!frontier.start(at, thread)) return;
    const Chunk& chunk = w.plan[w.sequence[at % w.sequence.size()]];
    const PageRange pages = slice(chunk, thread, config.threads);
    bool right = true;
    for (std::uint64_t page = pages.begin; page < pages.end; ++page) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(view + page * kPage);
      right &= page_sum(words, page) == w.expected[page];  // D-4
    }
    if (config.compute_ns_per_mib != 0) {
      compute(config.compute_ns_per_mib * chunk.bytes / (1024 * 1024));
    }
    frontier.finish(at, thread, right);
  }
}

}  // namespace

struct Driver::Impl {
  Impl(const Workload& w, const DriveConfig& c, Arm& a, DriveRecord& r)
      : workload(w), config(c), arm(a), record(r), frontier(workload, config, arm, record, start) {}
  ~Impl() {
    open(Gate::end);
    join();
  }

  enum class Gate : std::uint8_t { closed, open, end };

  void helper(std::uint32_t thread) {
    {
      std::unique_lock lock(mutex);
      opened.wait(lock, [this] { return gate != Gate::closed; });
      if (gate == Gate::end) return;
    }
    consume(workload, config, arm.view(), thread, frontier);
  }
  void open(Gate to) {
    {
      const std::lock_guard lock(mutex);
      gate = to;
    }
    opened.notify_all();
  }
  void join() {
    for (std::thread& t : helpers)
      t.join();
    helpers.clear();
  }

  const Workload& workload;
  const DriveConfig config;
  Arm& arm;
  DriveRecord& record;
  std::uint64_t start = 0;
  Frontier frontier;
  std::mutex mutex;
  std::condition_variable opened;
  Gate gate = Gate::closed;
  std::vector<std::thread> helpers;
};

Driver::Driver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Driver::~Driver() = default;

Result<std::unique_ptr<Driver>> Driver::make(const Workload& workload, const DriveConfig& config,
                                             Arm& arm, DriveRecord& record) {
  auto impl = std::make_unique<Impl>(workload, config, arm, record);
  try {
    for (std::uint32_t t = 1; t < config.threads; ++t)
      impl->helpers.emplace_back([i = impl.get(), t] { i->helper(t); });
  } catch (const std::system_error& e) {
    return fail(Status::out_of_memory, fmt::format("starting {} threads", config.threads), e.what(),
                "give fewer --threads, or raise the limit on processes (ulimit -u)");
  }
  return std::unique_ptr<Driver>(new Driver(std::move(impl)));
}

void Driver::run() {
  Impl& d = *impl_;
  d.start = now_ns();
  d.arm.begin();
  d.open(Impl::Gate::open);
  consume(d.workload, d.config, d.arm.view(), 0, d.frontier);
  d.join();
  d.record.wall_ns.store(now_ns() - d.start, std::memory_order_release);
  d.arm.settle();
  if (d.record.consumed == d.workload.sequence.size() * d.config.passes) {
    d.record.read_by_pass[d.config.passes - 1] = d.arm.bytes_read();
  }
}

}  // namespace resid

#include "replay/calibrate.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "base/units.hpp"
#include "storage/store.hpp"

namespace resid {
namespace {

// As much address space as the store; only what was loaded takes memory.
class MemoryArm final : public Arm {
 public:
  explicit MemoryArm(std::uint64_t bytes) : bytes_(bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) memory_ = static_cast<std::uint8_t*>(memory);
  }
  ~MemoryArm() override {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  bool usable() const { return memory_ != nullptr; }
  std::uint8_t* memory() { return memory_; }
  const std::uint8_t* view() const override { return memory_; }

 private:
  std::uint64_t bytes_;
  std::uint8_t* memory_ = nullptr;
};

tl::unexpected<Failure> interrupted() {
  return fail(Status::system, "replay", "interrupted", "start it again");
}

Result<double> resident_pass(const Workload& workload, const Store& store, DriveConfig config) {
  constexpr std::uint64_t kMost = 128 * 1024 * 1024;
  MemoryArm arm(page_up(workload.file.bytes));
  if (!arm.usable()) return fail_errno(Status::out_of_memory, "address space", errno);
  Workload part;
  part.path = workload.path;
  part.plan = workload.plan;
  part.expected = workload.expected;
  std::uint64_t bytes = 0;
  for (const std::uint32_t chunk : workload.sequence) {
    const Chunk& c = workload.plan[chunk];
    if (bytes + c.bytes > kMost && !part.sequence.empty()) break;
    const ReadOutcome outcome = store.read(c.offset, c.bytes, arm.memory() + c.offset);
    if (outcome.status != Status::ok) {
      return fail_errno(outcome.status, fmt::format("{} at {}", workload.path, outcome.offset),
                        outcome.error);
    }
    part.sequence.push_back(chunk);
    bytes += c.bytes;
  }
  // The first pass brings the memory into the state that later passes find; of the others the
  // fastest counts: anything else that ran on the machine only ever adds time.
  config.passes = 1;
  double best = 0;
  std::vector<TraceRecord> references(part.sequence.size());
  std::uint64_t read_by_pass = 0;
  for (int i = 0; i < 4; ++i) {
    DriveRecord record;
    record.references = references.data();
    record.read_by_pass = &read_by_pass;
    auto driver = Driver::make(part, config, arm, record);
    if (!driver) return tl::unexpected(driver.error());
    (*driver)->run();
    if (config.stop != nullptr && config.stop->load()) return interrupted();
    if (record.mismatches != 0) {
      return fail(Status::store_changed, workload.path, "its content is not what it should be");
    }
    const double seconds = static_cast<double>(record.wall_ns) / 1e9;
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;
  }
  return best * static_cast<double>(workload.sequence_bytes()) / static_cast<double>(bytes);
}

}  // namespace

Result<Calibration> calibrate(const Workload& workload, const DriveConfig& config) {
  auto store = Store::open(workload.fd.get(), workload.path);
  if (!store) return tl::unexpected(store.error());
  Calibration out;
  // The disk's, whatever the size of the chunks: a roofline is what the best reader could do.
  constexpr std::uint64_t kRequest = 2 * 1024 * 1024;
  constexpr std::array<std::uint32_t, 4> kDepths{1, 2, 4, 8};
  auto bandwidth = best_bandwidth(*store, kRequest, kDepths, 0.25);
  if (!bandwidth) return tl::unexpected(bandwidth.error());
  if (config.stop != nullptr && config.stop->load()) return interrupted();
  out.bandwidth = *bandwidth;
  auto seconds = resident_pass(workload, *store, config);
  if (!seconds) return tl::unexpected(seconds.error());
  out.compute_s_per_pass = *seconds;
  return out;
}

}  // namespace resid

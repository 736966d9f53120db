// Arms A and B: the kernel's own replacement.

#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "base/units.hpp"
#include "replay/arms.hpp"
#include "replay/disk_reads.hpp"

namespace resid {
namespace {

constexpr std::array<std::string_view, 4> kAdviceNames{"normal", "sequential", "random",
                                                       "willneed"};
constexpr std::array<int, 4> kAdvice{MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED};
constexpr int kPageout = 21;  // MADV_PAGEOUT, kernel 5.4

class KernelArm : public Arm {
 public:
  KernelArm(const std::uint8_t* view, std::uint64_t bytes, Advice advice)
      : view_(view), bytes_(bytes), advice_(advice) {}
  ~KernelArm() override { ::munmap(const_cast<std::uint8_t*>(view_), bytes_); }
  const std::uint8_t* view() const override { return view_; }
  // With the clock: MADV_WILLNEED reads, and what it reads belongs to the run.
  void begin() override {
    (void)::madvise(const_cast<std::uint8_t*>(view_), bytes_,
                    kAdvice[static_cast<std::size_t>(advice_)]);
  }
  std::uint64_t bytes_read() const override { return reads_.bytes().value_or(0); }

 protected:
  void advise(const Chunk& c, int advice) const {
    // A hint that is refused is a hint that was not given: the kernel may say EAGAIN when it is
    // busy, or EPERM for a page-out of another's file.
    (void)::madvise(const_cast<std::uint8_t*>(view_ + c.offset), c.bytes, advice);
  }

 private:
  const std::uint8_t* view_;
  std::uint64_t bytes_;
  Advice advice_;
  DiskReads reads_;
};

// Knows the order and how much fits, as arm D does, but can only ask.
class HintedArm final : public KernelArm {
 public:
  HintedArm(const std::uint8_t* view, std::uint64_t bytes, Advice advice, const Workload& workload,
            std::unique_ptr<Policy> policy, std::uint64_t budget, std::uint32_t ahead)
      : KernelArm(view, bytes, advice),
        plan_(workload.plan),
        policy_(std::move(policy)),
        budget_(budget),
        upcoming_(ahead),
        held_(workload.plan.size(), false) {}

  void before(std::uint32_t chunk) override {
    want(chunk);
    const std::size_t n = policy_->upcoming(upcoming_);
    for (std::size_t i = 0; i < n; ++i) {
      if (!want(upcoming_[i])) break;
    }
  }
  void consumed(std::uint32_t chunk) override {
    policy_->on_access(chunk);
    if (held_[chunk]) policy_->candidate(chunk);
  }

 private:
  bool want(std::uint32_t chunk) {
    if (held_[chunk]) {
      policy_->withdraw(chunk);  // about to be read: the last to page out
      return true;
    }
    const Chunk& c = plan_[chunk];
    while (held_bytes_ + c.bytes > budget_) {
      const ChunkId victim = policy_->select_victim();
      if (victim == kNoChunk) return false;
      policy_->withdraw(victim);
      held_[victim] = false;
      held_bytes_ -= plan_[victim].bytes;
      advise(plan_[victim], kPageout);
    }
    held_[chunk] = true;
    held_bytes_ += c.bytes;
    advise(c, MADV_WILLNEED);
    return true;
  }

  const ChunkPlan& plan_;
  std::unique_ptr<Policy> policy_;
  std::uint64_t budget_;
  std::uint64_t held_bytes_ = 0;
  std::vector<ChunkId> upcoming_;
  std::vector<bool> held_;
};

}  // namespace

std::string_view name(Advice advice) {
  return kAdviceNames[static_cast<std::size_t>(advice)];
}

Result<Advice> parse_advice(std::string_view text) {
  for (std::size_t i = 0; i < kAdviceNames.size(); ++i) {
    if (kAdviceNames[i] == text) return static_cast<Advice>(i);
  }
  return fail(Status::usage, "--advice", "unknown advice '" + std::string(text) + "'",
              "give normal, sequential, random, willneed or best");
}

Result<std::unique_ptr<Arm>> make_kernel_arm(const Workload& workload, ArmKind kind, Advice advice,
                                             std::uint64_t budget_bytes, std::uint32_t ahead) {
  if (!DiskReads().bytes()) {
    return fail(Status::system, "/proc/self/io", "this kernel does not count what a process reads",
                "arms A and B need a kernel with CONFIG_TASK_IO_ACCOUNTING");
  }
  const std::uint64_t bytes = page_up(workload.file.bytes);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, workload.fd.get(), 0);
  if (mapped == MAP_FAILED) return fail_errno(Status::system, "mmap of " + workload.path, errno);
  const auto* view = static_cast<const std::uint8_t*>(mapped);
  std::unique_ptr<Arm> arm;
  if (kind == ArmKind::b) {
    auto policy = make_policy("layer_order_declared");
    if (!policy) return tl::unexpected(policy.error());
    std::vector<std::uint32_t> sizes;
    for (const Chunk& c : workload.plan.chunks())
      sizes.push_back(c.bytes);
    (*policy)->grow(sizes);
    (*policy)->set_signal_mode(SignalMode::after_use);
    (*policy)->declare_sequence(workload.sequence);
    arm = std::make_unique<HintedArm>(view, bytes, advice, workload, std::move(*policy),
                                      budget_bytes, ahead);
  } else {
    arm = std::make_unique<KernelArm>(view, bytes, advice);
  }
  return arm;
}

}  // namespace resid

// `lru`: the chunk whose last fault is oldest goes first. The control: the kernel's own rule, run
// through the pager, so that what authority alone is worth can be told from what the order is
// worth.
//
// The age counts from the demand fault; one that came without a fault (prefetched) or was held by a
// pin counts from the moment it became a candidate. Access signals are not read: they would make it
// a better policy than the one it stands for, and one that needs a signal.

#include "policy/age_queue.hpp"
#include "policy/policies.hpp"

namespace resid {

namespace {

class Lru final : public Policy {
 public:
  std::string_view name() const override { return "lru"; }
  void grow(std::span<const std::uint32_t> bytes) override {
    ages_.grow(static_cast<std::uint32_t>(bytes.size()));
  }
  void declare_sequence(std::span<const ChunkId> /*sequence*/) override {}
  void set_signal_mode(SignalMode /*mode*/) override {}
  void set_protect_current(bool /*on*/) override {}

  void on_fault(ChunkId chunk) override {
    if (known(chunk)) ages_.touch(chunk);
  }
  void on_access(ChunkId /*chunk*/) override {}
  void candidate(ChunkId chunk) override {
    if (!known(chunk) || ages_.contains(chunk)) return;
    ages_.arrive(chunk);
    ages_.insert(chunk);
  }
  void withdraw(ChunkId chunk) override {
    if (!known(chunk) || !ages_.contains(chunk)) return;
    ages_.leave(chunk);
    ages_.erase(chunk);
  }

  ChunkId select_victim() override { return ages_.oldest(); }
  ChunkId predict_next(ChunkId /*chunk*/) const override { return kNoChunk; }
  std::size_t upcoming(std::span<ChunkId> /*out*/) const override { return 0; }
  std::int64_t next_use_distance(ChunkId /*chunk*/) const override { return kNeverUsed; }

 private:
  bool known(ChunkId chunk) const { return chunk < ages_.chunks(); }

  AgeQueue ages_;
};

}  // namespace

std::unique_ptr<Policy> make_lru() {
  return std::make_unique<Lru>();
}

}  // namespace resid

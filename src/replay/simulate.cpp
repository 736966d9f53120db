#include "replay/simulate.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace resid {

namespace {

constexpr std::size_t kStride = std::size_t{1} << 16;

// As the pager: more than a quarter of the budget is not kept, but for the newest two.
constexpr std::size_t kCurrentLeast = 2;

std::vector<ChunkId> order_of_first_use(const ReferenceString& references) {
  std::vector<ChunkId> order;
  std::vector<bool> seen(references.header.chunk_bytes.size(), false);
  for (const ChunkId chunk : references.chunks) {
    if (seen[chunk]) continue;
    seen[chunk] = true;
    order.push_back(chunk);
  }
  return order;
}

Result<void> check(const ReferenceString& references, std::uint64_t budget) {
  const TraceHeader& header = references.header;
  if (header.kind != TraceKind::reference) {
    return fail(
        Status::usage, "trace",
        fmt::format("a {} trace does not hold what the workload accessed", name(header.kind)),
        "record a reference trace of the workload");
  }
  for (const ChunkId chunk : references.chunks) {
    if (chunk >= header.chunk_bytes.size()) {
      return fail(Status::usage, "trace",
                  fmt::format("names chunk {} of {}", chunk, header.chunk_bytes.size()));
    }
    if (header.chunk_bytes[chunk] > budget) {
      return fail(Status::infeasible, fmt::format("chunk {}", chunk),
                  fmt::format("is {} bytes large and must be wholly resident to be read; the "
                              "budget is {} bytes",
                              header.chunk_bytes[chunk], budget),
                  "raise --ram");
    }
  }
  return {};
}

class Machine {
 public:
  Machine(const ReferenceString& references, const SimulateOptions& options,
          std::unique_ptr<Policy> policy)
      : bytes_(references.header.chunk_bytes),
        options_(options),
        policy_(std::move(policy)),
        resident_(bytes_.size(), false) {
    policy_->grow(bytes_);
    policy_->declare_sequence(order_of_first_use(references));
    // What is being read, and what may not be given up beside it.
    const std::uint64_t largest = *std::max_element(bytes_.begin(), bytes_.end());
    policy_->set_room(options_.budget_bytes,
                      std::min(largest * (options_.keep_current + 1), options_.budget_bytes));
  }

  Result<void> use(ChunkId chunk) {
    if (options_.signal_every_use) policy_->on_access(chunk);
    if (resident_[chunk]) return {};
    policy_->on_fault(chunk);
    if (!options_.signal_every_use) policy_->on_access(chunk);
    ++result_.misses;
    result_.bytes += bytes_[chunk];
    while (used_ + bytes_[chunk] > options_.budget_bytes) {
      const ChunkId victim = policy_->select_victim();
      if (victim != kNoChunk) {
        if (!resident_[victim]) {
          return fail(Status::internal, "policy",
                      fmt::format("named chunk {}, which is not resident", victim));
        }
        evict(victim);
      } else if (!current_.empty()) {
        release_oldest();
      } else {
        return fail(Status::internal, "policy", "names no victim, and there are some");
      }
    }
    resident_[chunk] = true;
    used_ += bytes_[chunk];
    policy_->candidate(chunk);
    keep(chunk);
    return {};
  }

  Simulated result() const { return result_; }

 private:
  void evict(ChunkId victim) {
    policy_->withdraw(victim);
    resident_[victim] = false;
    used_ -= bytes_[victim];
    ++result_.evictions;
  }

  void keep(ChunkId chunk) {
    if (options_.keep_current == 0) return;
    while (current_.size() >= options_.keep_current ||
           (current_.size() >= kCurrentLeast && current_bytes_ > options_.budget_bytes / 4)) {
      release_oldest();
    }
    policy_->withdraw(chunk);
    current_.push_back(chunk);
    current_bytes_ += bytes_[chunk];
  }

  void release_oldest() {
    const ChunkId chunk = current_.front();
    current_.pop_front();
    current_bytes_ -= bytes_[chunk];
    policy_->candidate(chunk);
  }

  const std::vector<std::uint32_t>& bytes_;
  const SimulateOptions& options_;
  std::unique_ptr<Policy> policy_;
  std::vector<bool> resident_;
  std::deque<ChunkId>
      current_;  // the newest demand fetches, oldest first; none of them a candidate
  std::uint64_t current_bytes_ = 0;
  std::uint64_t used_ = 0;
  Simulated result_;
};

}  // namespace

Result<Simulated> simulate(const ReferenceString& references, const SimulateOptions& options) try {
  auto policy = make_policy(options.policy);
  if (!policy) return tl::unexpected(policy.error());
  if (auto ok = check(references, options.budget_bytes); !ok) return tl::unexpected(ok.error());
  Machine machine(references, options, std::move(*policy));
  const std::size_t n = references.chunks.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (options.progress && i % kStride == 0) options.progress(i, n);
    if (auto ok = machine.use(references.chunks[i]); !ok) return tl::unexpected(ok.error());
  }
  if (options.progress) options.progress(n, n);
  Simulated result = machine.result();
  result.accesses = n;
  return result;
} catch (const std::bad_alloc&) {
  return fail(
      Status::out_of_memory, "trace",
      fmt::format("no memory to run a policy over {} references", references.chunks.size()));
}

}  // namespace resid

// What a policy costs under the accounting lock. Shuffled ids, so that the arrays are walked as the
// pager walks them and not as the cache likes it.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "policy/policy.hpp"

namespace {

using resid::ChunkId;

constexpr std::uint32_t kBytes = 2U << 20;

// Everything known, the first half of the order resident.
struct Fixture {
  std::unique_ptr<resid::Policy> policy;
  std::vector<ChunkId> order;

  Fixture(std::string_view name, std::uint32_t chunks, bool repeats) : order(chunks) {
    policy = std::move(*resid::make_policy(name));
    policy->grow(std::vector<std::uint32_t>(chunks, kBytes));
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    std::vector<ChunkId> sequence = order;
    if (repeats) sequence.insert(sequence.end(), order.rbegin(), order.rend());
    policy->declare_sequence(sequence);
    // As much as is resident, and a window of four: half of the order streams.
    policy->set_room((chunks / 2 + 4ULL) * kBytes, 4ULL * kBytes);
    policy->set_tripwires(256);
    for (const ChunkId chunk : order)
      policy->on_fault(chunk);
    for (std::size_t i = 0; i < order.size() / 2; ++i)
      policy->candidate(order[i]);
  }
};

// One demand miss of a cyclic scan: position, victim, exchange.
void miss(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::size_t at = f.order.size() / 2;
  for (auto _ : state) {
    const ChunkId chunk = f.order[at];
    f.policy->on_fault(chunk);
    f.policy->on_access(chunk);
    f.policy->withdraw(f.policy->select_victim());
    f.policy->candidate(chunk);
    if (++at == f.order.size()) at = f.order.size() / 2;
  }
}

// The choice alone, while the workload reads at four places.
void victim(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  for (std::size_t i = 0; i < 4; ++i)
    f.policy->on_access(f.order[i * f.order.size() / 4]);
  for (auto _ : state)
    benchmark::DoNotOptimize(f.policy->select_victim());
}

// A signal for every chunk of a scan.
void access(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::size_t at = 0;
  for (auto _ : state) {
    f.policy->on_access(f.order[at]);
    if (++at == f.order.size()) at = 0;
  }
}

// What is asked after a signal: what comes next, what may go, what is to be armed.
void look(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::size_t at = 0;
  std::array<ChunkId, 8> out{};
  for (auto _ : state) {
    f.policy->on_access(f.order[at]);
    benchmark::DoNotOptimize(f.policy->upcoming(out));
    benchmark::DoNotOptimize(f.policy->spent());
    benchmark::DoNotOptimize(f.policy->to_arm(out));
    if (++at == f.order.size()) at = 0;
  }
}

// A new budget: O(n) for a policy that plans.
void room(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::uint64_t budget = f.order.size() / 2 * std::uint64_t{kBytes};
  for (auto _ : state) {
    budget ^= kBytes;
    f.policy->set_room(budget, 4ULL * kBytes);
  }
}

// A pin taken and dropped on a random resident chunk.
void pin(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::uint32_t random = 1;
  for (auto _ : state) {
    random = random * 1664525U + 1013904223U;
    const ChunkId chunk = f.order[(random >> 4) % (f.order.size() / 2)];
    f.policy->withdraw(chunk);
    f.policy->candidate(chunk);
  }
}

void distance(benchmark::State& state, std::string_view name, bool repeats) {
  Fixture f(name, static_cast<std::uint32_t>(state.range(0)), repeats);
  std::uint32_t random = 1;
  for (auto _ : state) {
    random = random * 1664525U + 1013904223U;
    benchmark::DoNotOptimize(f.policy->next_use_distance(f.order[(random >> 4) % f.order.size()]));
  }
}

void add(const char* what, void (*run)(benchmark::State&, std::string_view, bool)) {
  for (const std::string_view policy : resid::policy_names()) {
    for (const bool repeats : {false, true}) {
      if (repeats && policy != "layer_order_declared") continue;
      const std::string name =
          std::string(what) + "/" + std::string(policy) + (repeats ? "_each_twice" : "");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { run(state, policy, repeats); })
          ->RangeMultiplier(10)
          ->Range(1000, 1'000'000);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  add("miss", miss);
  add("victim", victim);
  add("access", access);
  add("look", look);
  add("room", room);
  add("pin", pin);
  add("distance", distance);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

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

// Everything known, the first half of the order resident.
struct Fixture {
  std::unique_ptr<resid::Policy> policy;
  std::vector<ChunkId> order;

  Fixture(std::string_view name, std::uint32_t chunks, bool repeats) : order(chunks) {
    policy = std::move(*resid::make_policy(name));
    policy->grow(std::vector<std::uint32_t>(chunks, 2U << 20));
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    std::vector<ChunkId> sequence = order;
    if (repeats) sequence.insert(sequence.end(), order.rbegin(), order.rend());
    policy->declare_sequence(sequence);
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
  add("pin", pin);
  add("distance", distance);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

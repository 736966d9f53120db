// What a ranking of experts costs a token in one layer, and what a victim costs. The choices are
// skewed and repeat themselves, as a text's do; the memory is full before the clock starts.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "policy/expert_cache.hpp"
#include "policy/expert_ranking.hpp"

namespace {

using resid::ExpertId;

constexpr std::uint32_t kLayers = 4;
constexpr std::uint32_t kUsed = 8;
constexpr std::uint32_t kTokens = 4096;

std::vector<std::vector<ExpertId>> choices(std::uint32_t experts) {
  std::mt19937 random(1);
  std::vector<std::vector<ExpertId>> out(kTokens);
  for (std::size_t t = 0; t < out.size(); ++t) {
    if (t > 100 && t % 50 > 25) {
      out[t] = out[t - 100];
      continue;
    }
    std::vector<bool> taken(experts);
    while (out[t].size() < kUsed) {
      const auto expert = static_cast<std::uint32_t>(random() % experts * (random() % 4) / 4);
      if (taken[expert]) continue;
      taken[expert] = true;
      out[t].push_back(static_cast<ExpertId>(expert));
    }
  }
  return out;
}

void token(benchmark::State& state, std::string_view name) {
  const auto experts = static_cast<std::uint32_t>(state.range(0));
  const auto chosen = choices(experts);
  const auto ranking = std::move(*resid::make_expert_ranking(name, {kLayers, experts, kUsed}));
  std::size_t at = 0;
  const auto one = [&] {
    const std::uint32_t layer = at % kLayers;
    const auto& now = chosen[at / kLayers % kTokens];
    ranking->choose(layer, now);
    for (const ExpertId expert : now)
      ranking->use(layer, expert);
    ++at;
  };
  while (at < std::size_t{kTokens} * kLayers)
    one();
  for (auto _ : state)
    one();
}

// A miss in a cache of half of the experts, all of them candidates.
void victim(benchmark::State& state) {
  const auto experts = static_cast<std::uint32_t>(state.range(0));
  std::mt19937 random(1);
  std::vector<double> worth(experts);
  for (double& w : worth)
    w = static_cast<double>(random());
  resid::ExpertCache cache(experts, experts / 2, resid::ExpertHold::token);
  std::uint32_t next = 0;
  for (auto _ : state) {
    cache.begin(std::vector<ExpertId>{});
    while (cache.resident(next))
      next = (next + 1) % experts;
    benchmark::DoNotOptimize(cache.use(next, worth));
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string_view ranking : resid::expert_ranking_names()) {
    const std::string name = "token/" + std::string(ranking);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { token(state, ranking); })
        ->RangeMultiplier(2)
        ->Range(32, 256);
  }
  benchmark::RegisterBenchmark("victim", victim)->RangeMultiplier(2)->Range(32, 256);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

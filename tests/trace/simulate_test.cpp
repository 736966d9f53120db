// Policies on paper: never below the optimum, and where the answer is known, that.

#include "replay/simulate.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "trace/belady.hpp"
#include "trace/optimum.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using testing::HasSubstr;

Simulated simulated(const ReferenceString& references, SimulateOptions options) {
  auto result = simulate(references, options);
  EXPECT_TRUE(result) << result.error().line();
  return result ? *result : Simulated{};
}

SimulateOptions options_of(std::string_view policy, std::uint64_t budget, std::uint32_t keep = 2) {
  SimulateOptions options;
  options.policy = policy;
  options.budget_bytes = budget;
  options.keep_current = keep;
  return options;
}

ReferenceString cyclic(std::uint32_t chunks, std::uint32_t passes) {
  ReferenceString out;
  out.header = cyclic_header(Ids(chunks, 4096), passes);
  out.chunks = cyclic_accesses(out.header);
  return out;
}

RC_GTEST_PROP(Simulate, NoPolicyReadsLessThanTheOptimum, ()) {
  const auto number = [](std::uint32_t low, std::uint32_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high + 1));
  };
  ReferenceString all;
  const std::uint32_t chunks = number(2, 20);
  Ids bytes(chunks);
  for (std::uint32_t& b : bytes)
    b = number(1, 50);
  all.header = header_of(bytes);
  for (std::uint32_t n = number(0, 300); n > 0; --n)
    all.chunks.push_back(number(0, chunks - 1));
  const std::uint32_t largest = *std::max_element(bytes.begin(), bytes.end());
  const std::uint64_t budget = number(largest, 400);
  const auto optimum = optimum_bytes(all.header, all.chunks, budget);
  RC_ASSERT(optimum.has_value());
  for (const std::string_view policy : policy_names()) {
    for (const std::uint32_t keep : {0U, 1U, 2U, 5U}) {
      SimulateOptions options = options_of(policy, budget, keep);
      options.signal_every_use = number(0, 1) != 0;
      const auto result = simulate(all, options);
      RC_ASSERT(result.has_value());
      RC_ASSERT(result->bytes >= optimum->lower_bytes);
      RC_ASSERT(result->accesses == all.chunks.size());
      RC_ASSERT(result->misses <= result->accesses);
      RC_ASSERT(result->evictions <= result->misses);
    }
  }
}

// `lru` goes by the last fault, so what it gives up is what came first.
RC_GTEST_PROP(Simulate, LruIsWhatAQueueIs, ()) {
  const auto number = [](std::uint32_t low, std::uint32_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high + 1));
  };
  ReferenceString all;
  all.header = header_of(Ids(12, 10));
  for (std::uint32_t n = 200; n > 0; --n)
    all.chunks.push_back(number(0, 11));
  const std::uint64_t room = number(1, 12);
  std::deque<std::uint32_t> queue;
  std::uint64_t misses = 0;
  for (const std::uint32_t chunk : all.chunks) {
    if (std::find(queue.begin(), queue.end(), chunk) != queue.end()) continue;
    ++misses;
    if (queue.size() == room) queue.pop_front();
    queue.push_back(chunk);
  }
  const auto result = simulate(all, options_of("lru", room * 10 + number(0, 9)));
  RC_ASSERT(result.has_value());
  RC_ASSERT(result->misses == misses);
  RC_ASSERT(result->bytes == 10 * misses);
}

TEST(Simulate, AnOrderedPolicyIsWithinItsWindowOfTheFloor) {
  constexpr std::uint32_t kChunks = 60;
  constexpr std::uint32_t kPasses = 8;
  const ReferenceString all = cyclic(kChunks, kPasses);
  for (const std::string_view policy : {"layer_order_learned", "layer_order_declared"}) {
    for (std::uint32_t room = 3; room <= kChunks; ++room) {
      const std::uint64_t floor = cyclic_floor(kChunks, room, kPasses);
      const auto misses = [&](std::uint32_t keep) {
        return simulated(all, options_of(policy, room * 4096ULL, keep)).misses;
      };
      EXPECT_GE(misses(0), floor);
      EXPECT_LE(misses(0), floor + (kPasses - 1)) << policy << ", room for " << room;
      // Two are kept at hand while a third comes, so up to three fewer stay where they are.
      EXPECT_GE(misses(2), floor);
      EXPECT_LE(misses(2), floor + 3 * (kPasses - 1)) << policy << ", room for " << room;
    }
  }
}

TEST(Simulate, LruReReadsEverything) {
  const ReferenceString all = cyclic(60, 8);
  const Simulated result = simulated(all, options_of("lru", 59 * 4096));
  EXPECT_EQ(result.misses, 60U * 8);
  EXPECT_EQ(result.bytes, all.header.model_bytes * 8);
  EXPECT_EQ(result.evictions, 60U * 8 - 59);
  EXPECT_EQ(simulated(all, options_of("lru", 60 * 4096)).misses, 60U);
}

TEST(Simulate, DemandFaultsAloneAreSignalEnough) {
  const ReferenceString all = cyclic(60, 8);
  SimulateOptions options = options_of("layer_order_declared", 30 * 4096);
  options.signal_every_use = false;
  EXPECT_LE(simulated(all, options).misses, cyclic_floor(60, 30, 8) + 2 * 8);
}

// The newest two are kept while there is anything else, and given up when there is not.
TEST(Simulate, KeepsWhatIsAtHandAsLongAsItCan) {
  ReferenceString all;
  all.header = header_of(Ids(3, 10));
  // In the order 0 1 2 it is chunk 1 that is furthest from use when 2 comes, and the reader goes
  // back to it.
  all.chunks = {0, 1, 2, 1};
  const auto misses = [&](std::uint64_t budget, std::uint32_t keep) {
    return simulated(all, options_of("layer_order_declared", budget, keep)).misses;
  };
  EXPECT_EQ(misses(20, 0), 4U);
  EXPECT_EQ(misses(20, 1), 3U);
  EXPECT_EQ(misses(20, 2), 3U);  // all that is resident is kept: the older goes
  EXPECT_EQ(misses(10, 2), 4U);
}

TEST(Simulate, RefusesWhatItCannotRun) {
  ReferenceString all = cyclic(3, 2);
  EXPECT_EQ(simulate(all, options_of("belady", 8192)).error().status, Status::usage);
  const auto infeasible = simulate(all, options_of("lru", 4095));
  ASSERT_FALSE(infeasible);
  EXPECT_EQ(infeasible.error().status, Status::infeasible);
  EXPECT_THAT(infeasible.error().line(), HasSubstr("chunk 0"));
  all.chunks.push_back(3);
  EXPECT_EQ(simulate(all, options_of("lru", 8192)).error().status, Status::usage);
  all.chunks.pop_back();
  all.header.kind = TraceKind::fault;
  EXPECT_EQ(simulate(all, options_of("lru", 8192)).error().status, Status::usage);
}

}  // namespace
}  // namespace resid::trace_test

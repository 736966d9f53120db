#include "policy/stream_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace resid {
namespace {

constexpr std::uint32_t kLarge = 2U << 20;

struct Model {
  std::vector<std::uint32_t> bytes;
  std::vector<ChunkId> order;

  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const ChunkId chunk : std::set<ChunkId>(order.begin(), order.end()))
      sum += bytes[chunk];
    return sum;
  }
  Path path() const { return {order, 0, static_cast<std::uint32_t>(order.size())}; }
};

Model equal(std::uint32_t chunks) {
  Model model{std::vector<std::uint32_t>(chunks, kLarge), std::vector<ChunkId>(chunks)};
  std::iota(model.order.begin(), model.order.end(), 0U);
  return model;
}

StreamPlan planned(const Model& model, std::uint64_t budget, std::uint64_t window) {
  StreamPlan plan;
  plan.grow(static_cast<std::uint32_t>(model.bytes.size()));
  plan.make(model.path(), model.bytes, budget, window);
  return plan;
}

std::set<ChunkId> streamed(const Model& model, const StreamPlan& plan) {
  std::set<ChunkId> set;
  for (const ChunkId chunk : model.order) {
    if (plan.part(chunk) == Part::streamed) set.insert(chunk);
  }
  return set;
}

// Sizes as models have them: mostly the largest, pieces of tensors, norms, seams.
rc::Gen<Model> models() {
  return rc::gen::exec([] {
    Model model;
    const auto chunks = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<ChunkId>(1, 400));
    const auto number = [](std::uint32_t low, std::uint32_t high) {
      return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high));
    };
    for (ChunkId chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t kind = number(0, 10);
      model.bytes.push_back(4096 * (kind < 6   ? 512
                                    : kind < 8 ? number(16, 512)
                                    : kind < 9 ? number(1, 16)
                                               : 1));
      if (number(0, 20) != 0) model.order.push_back(chunk);
    }
    for (std::uint32_t again = number(0, 8); again > 0 && !model.order.empty(); --again) {
      const auto at = number(0, static_cast<std::uint32_t>(model.order.size()));
      const ChunkId chunk = model.order[at];
      model.order.insert(model.order.begin() + number(0, at + 1), chunk);
    }
    return model;
  });
}

RC_GTEST_PROP(StreamPlan, keeps_as_much_as_fits_and_streams_the_large_ones_first, ()) {
  const Model model = *models();
  const std::uint64_t total = model.total();
  const auto number = [](std::uint64_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, high));
  };
  const std::uint64_t budget = number(total * 11 / 10 + 1);
  const std::uint64_t window = number(budget / 2 + 1);
  const StreamPlan plan = planned(model, budget, window);

  std::map<ChunkId, int> named;
  for (const ChunkId chunk : model.order)
    ++named[chunk];
  std::uint64_t fixed = 0;
  std::uint64_t passing = 0;
  std::uint64_t may_stream = 0;
  std::uint32_t largest = 0;
  for (const auto& [chunk, times] : named) {
    if (times == 1) largest = std::max(largest, model.bytes[chunk]);
  }
  const auto rank = [&](ChunkId chunk) {
    return model.bytes[chunk] == largest ? 99 : std::bit_width(model.bytes[chunk]);
  };
  // One smaller one may stream in the place of the last (P-5).
  std::vector<int> streamed_ranks;
  int most_fixed = 0;
  std::uint32_t count = 0;
  for (ChunkId chunk = 0; chunk < model.bytes.size(); ++chunk) {
    const auto found = named.find(chunk);
    RC_ASSERT((plan.part(chunk) == Part::outside) == (found == named.end()));
    if (found == named.end()) continue;
    if (found->second == 1) may_stream += model.bytes[chunk];
    if (plan.part(chunk) == Part::streamed) {
      RC_ASSERT(found->second == 1);  // P-1
      passing += model.bytes[chunk];
      streamed_ranks.push_back(static_cast<int>(rank(chunk)));
      ++count;
    } else {
      fixed += model.bytes[chunk];
      if (found->second == 1) most_fixed = std::max(most_fixed, static_cast<int>(rank(chunk)));
    }
  }
  RC_ASSERT(plan.fixed_bytes() == fixed);
  RC_ASSERT(plan.streamed_bytes() == passing);
  RC_ASSERT(plan.streamed() == count);
  if (total <= budget) {
    RC_ASSERT(count == 0U);
  } else if (total - may_stream <= budget - window) {
    RC_ASSERT(fixed <= budget - window);  // P-2
    RC_ASSERT(fixed + largest > budget - window);
  } else {
    RC_ASSERT(passing == may_stream);
  }
  std::sort(streamed_ranks.begin(), streamed_ranks.end());
  if (streamed_ranks.size() > 1) RC_ASSERT(streamed_ranks[1] >= most_fixed);  // P-3
}

RC_GTEST_PROP(StreamPlan, a_smaller_budget_streams_what_a_larger_one_does_and_more, ()) {
  const Model model = *models();
  const std::uint64_t total = model.total();
  std::set<ChunkId> before;
  for (std::uint64_t percent = 110; percent > 0; percent -= 5) {
    const StreamPlan plan = planned(model, total * percent / 100, 0);
    const std::set<ChunkId> now = streamed(model, plan);
    std::vector<ChunkId> gone;
    std::set_difference(before.begin(), before.end(), now.begin(), now.end(),
                        std::back_inserter(gone));
    RC_ASSERT(gone.size() <= 1U);  // P-4, P-5
    before = now;
  }
}

TEST(StreamPlan, spreads_evenly_at_every_budget) {
  double worst = 0;
  for (const std::uint32_t chunks : {10U, 97U, 1000U, 4096U}) {
    const Model model = equal(chunks);
    for (std::uint32_t stay = 0; stay < chunks; stay += chunks < 200 ? 1 : 7) {
      const StreamPlan plan = planned(model, std::uint64_t{stay} * kLarge, 0);
      ASSERT_EQ(plan.streamed(), chunks - stay);
      std::vector<std::uint32_t> gaps;
      std::uint32_t last = 0;
      const std::set<ChunkId> set = streamed(model, plan);
      for (const ChunkId chunk : set) {
        if (chunk != *set.begin()) gaps.push_back(chunk - last);
        last = chunk;
      }
      gaps.push_back(chunks - last + *set.begin());
      const std::uint32_t most = *std::max_element(gaps.begin(), gaps.end());
      ASSERT_EQ(plan.widest_gap(), most);
      const double mean = static_cast<double>(chunks) / plan.streamed();
      worst = std::max(worst, most / mean);
      ASSERT_LE(most, 2.7 * mean) << plan.streamed() << " of " << chunks;
    }
  }
  std::printf("widest gap over the mean: %.2f at worst\n", worst);
}

TEST(StreamPlan, what_is_left_of_the_budget_is_filled_by_exchanging_one) {
  Model model = equal(100);
  for (std::uint32_t part = 1; part < 8; ++part) {
    model.bytes.push_back(4096);  // nobody reads it: the pieces have no neighbours
    model.order.push_back(static_cast<ChunkId>(model.bytes.size()));
    model.bytes.push_back(kLarge / 8 * part);
  }
  const std::uint64_t total = model.total();
  for (std::uint32_t part = 0; part < 8; ++part) {
    const StreamPlan plan = planned(model, total - 20ULL * kLarge - kLarge / 8 * part, 0);
    EXPECT_EQ(plan.streamed_bytes(), 20ULL * kLarge + kLarge / 8 * part);
  }
}

TEST(StreamPlan, a_budget_one_chunk_smaller_streams_one_chunk_more) {
  const Model model = equal(1000);
  std::set<ChunkId> before = streamed(model, planned(model, 999ULL * kLarge, 3ULL * kLarge));
  for (std::uint64_t stay = 998; stay > 2; --stay) {
    const std::set<ChunkId> now = streamed(model, planned(model, stay * kLarge, 3ULL * kLarge));
    ASSERT_EQ(now.size(), before.size() + 1);
    ASSERT_TRUE(std::includes(now.begin(), now.end(), before.begin(), before.end()));
    before = now;
  }
}

TEST(StreamPlan, everything_streams_when_the_window_takes_the_budget) {
  const Model model = equal(100);
  EXPECT_EQ(planned(model, 0, 0).streamed(), 100U);
  EXPECT_EQ(planned(model, 3ULL * kLarge, 4ULL * kLarge).streamed(), 100U);
}

TEST(StreamPlan, nothing_streams_when_everything_fits_without_a_window) {
  const Model model = equal(100);
  const StreamPlan plan = planned(model, 100ULL * kLarge, 4ULL * kLarge);
  EXPECT_EQ(plan.streamed(), 0U);
  EXPECT_EQ(plan.widest_gap(), 100U);
  EXPECT_EQ(planned(model, 100ULL * kLarge - 1, 4ULL * kLarge).streamed(), 5U);
}

TEST(StreamPlan, plans_for_a_stretch_around_the_end) {
  Model model = equal(100);
  StreamPlan plan;
  plan.grow(100);
  plan.make({model.order, 90, 20}, model.bytes, 15ULL * kLarge, kLarge);
  std::uint32_t count = 0;
  for (ChunkId chunk = 0; chunk < 100; ++chunk) {
    const bool inside = chunk >= 90 || chunk < 10;
    EXPECT_EQ(plan.part(chunk) != Part::outside, inside) << chunk;
    count += plan.part(chunk) == Part::streamed ? 1 : 0;
  }
  EXPECT_EQ(count, 6U);
}

TEST(StreamPlan, an_empty_order_has_a_plan) {
  const StreamPlan plan = planned(Model{{4096, 4096}, {}}, 0, 0);
  EXPECT_EQ(plan.part(1), Part::outside);
  EXPECT_EQ(plan.fixed_bytes() + plan.streamed_bytes(), 0U);
}

}  // namespace
}  // namespace resid

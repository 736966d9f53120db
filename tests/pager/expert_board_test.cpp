// What the expert board counts, against a reference that looks at everything.

#include "pager/expert_board.hpp"

#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "expert_rig.hpp"

namespace resid::test {
namespace {

struct BoardRig {
  explicit BoardRig(std::uint64_t budget, const char* policy = "expert_lru")
      : rig(config(budget), policy) {}
  PagerConfig config(std::uint64_t budget) const {
    PagerConfig made = eager(budget);
    made.board = board.get();
    return made;
  }
  ExpertBoard::Layer& layer(std::uint32_t number) { return board->layers[number]; }
  void touch(std::uint32_t number, std::uint32_t stack, std::uint32_t expert) {
    const std::uint64_t begin = slice(number, stack, expert);
    EXPECT_EQ(rig.store.mismatches(rig.view, begin, begin + kSlice), 0U);
  }
  std::uint64_t waited() {
    std::uint64_t sum = 0;
    for (std::uint32_t l = 0; l < kLayers; ++l)
      sum += layer(l).wait_ns.load();
    return sum;
  }

  std::unique_ptr<ExpertBoard> board = std::make_unique<ExpertBoard>();
  ExpertRig rig;
};

struct Counts {
  std::uint64_t asked = 0, pinned = 0, cached = 0, prefetched = 0, missed = 0, tokens = 0;
};

void expect_equal(const ExpertBoard::Layer& layer, const Counts& want, int round) {
  const std::pair<const ExpertBoard::Tally*, std::uint64_t> all[] = {
      {&layer.asked, want.asked},
      {&layer.pinned, want.pinned},
      {&layer.cached, want.cached},
      {&layer.prefetched, want.prefetched},
      {&layer.missed, want.missed}};
  for (const auto& [tally, count] : all) {
    ASSERT_EQ(tally->slices.load(), count) << "round " << round;
    ASSERT_EQ(tally->bytes.load(), count * kSlice) << "round " << round;
  }
  ASSERT_EQ(want.asked, want.pinned + want.cached + want.prefetched + want.missed);  // B-2
  ASSERT_EQ(layer.tokens.load(), want.tokens);
}

class EveryRanking : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, EveryRanking, ::testing::Values("expert_lru", "expert_foresight"));

TEST_P(EveryRanking, RandomRoutingsAreCountedAsAReferenceCountsThem) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const std::uint64_t budget = (12 + random() % 24) * kSlice;
    BoardRig b(budget, GetParam());
    using Name = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // layer, stack, expert
    std::set<Name> ahead, kept;
    std::map<std::uint32_t, Pin> pins;
    Counts want[kLayers];
    std::vector<std::uint32_t> uses(kLayers * kExperts, 0);
    const auto there = [&](const Name& n) {
      return b.rig.pager->resident_under(
                 b.rig.view + slice(std::get<0>(n), std::get<1>(n), std::get<2>(n)), kSlice) ==
             kSlice;
    };
    for (int round = 0; round < 150; ++round) {
      const auto layer = static_cast<std::uint32_t>(random() % kLayers);
      const auto expert = static_cast<std::uint32_t>(random() % kExperts);
      switch (random() % 5) {
        case 0: {  // a hint
          const Name name{layer, static_cast<std::uint32_t>(random() % 3), expert};
          const bool was = there(name);
          b.rig.pager->will_need(b.rig.view + slice(layer, std::get<1>(name), expert), kSlice);
          b.rig.pager->settle();
          if (!was && there(name)) ahead.insert(name);
          break;
        }
        case 1: {  // one pin at a time
          pins.clear();
          kept.clear();
          if (random() % 2 == 0) break;
          auto pin = b.rig.pager->pin(b.rig.view + slice(layer, 0, expert), kSlice);
          ASSERT_TRUE(pin) << pin.error().line();
          pins.emplace(0, std::move(*pin));
          kept.insert({layer, 0, expert});
          break;
        }
        default: {
          const auto tokens = static_cast<std::uint32_t>(1 + random() % 3);
          std::vector<ExpertId> chosen;
          for (std::uint32_t t = 0; t < 2 * tokens; ++t) {
            chosen.push_back(static_cast<ExpertId>(random() % kExperts));
            ++uses[layer * kExperts + chosen.back()];
          }
          want[layer].tokens += tokens;
          for (std::uint32_t s = 0; s < 3; ++s) {
            for (const ExpertId e : std::set<ExpertId>(chosen.begin(), chosen.end())) {
              const Name name{layer, s, e};
              ++want[layer].asked;
              ++(ahead.count(name) != 0  ? want[layer].prefetched
                 : !there(name)          ? want[layer].missed
                 : kept.count(name) != 0 ? want[layer].pinned
                                         : want[layer].cached);
              ahead.erase(name);
            }
          }
          ASSERT_TRUE(b.rig.pager->use_experts(b.rig.view + slice(layer, 0, 0), chosen, 2));
        }
      }
      b.rig.pager->settle();
      std::erase_if(ahead, [&](const Name& n) { return !there(n); });
      for (std::uint32_t l = 0; l < kLayers; ++l)
        expect_equal(b.layer(l), want[l], round);
    }
    for (std::uint32_t l = 0; l < kLayers; ++l) {
      EXPECT_EQ(b.layer(l).experts.load(), kExperts);
      for (std::uint32_t e = 0; e < kExperts; ++e)
        EXPECT_EQ(b.board->uses_of(l, e).load(), uses[l * kExperts + e]);
    }
    EXPECT_EQ(b.layer(0).read_bytes.load() + b.layer(1).read_bytes.load(),
              b.rig.stats.expert_fetched_bytes.load());
    EXPECT_EQ(b.layer(0).read_bytes.load() + b.layer(1).read_bytes.load(),
              b.rig.stats.bytes_fetched.load());
    EXPECT_EQ(b.waited(), 0U) << "nobody has touched a byte";
    pins.clear();
    b.rig.expect_clean(budget);
  }
}

TEST(ExpertBoard, NobodyWaitsForWhatComesBeforeItIsTouched) {
  BoardRig b(16 * MiB);
  b.rig.use(0, {1, 2});
  b.rig.pager->settle();
  b.touch(0, 0, 1);
  b.touch(0, 2, 2);
  b.rig.pager->settle();
  EXPECT_EQ(b.waited(), 0U);
}

TEST(ExpertBoard, WhoTouchesWhatIsMissingWaitsAtThatLayer) {
  BoardRig b(16 * MiB);
  b.touch(1, 1, 3);
  b.rig.pager->settle();
  EXPECT_GT(b.layer(1).wait_ns.load(), 0U);
  EXPECT_EQ(b.layer(0).wait_ns.load(), 0U);
  EXPECT_EQ(b.layer(1).asked.slices.load(), 0U) << "no router has asked";
  EXPECT_EQ(b.layer(1).read_bytes.load(), kSlice);
}

TEST(ExpertBoard, AWaitOfManyThreadsForOneSliceCountsOnce) {
  BoardRig b(16 * MiB);
  const std::uint64_t began = now_ns();
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] { b.touch(0, 0, 5); });
  for (std::thread& thread : threads)
    thread.join();
  b.rig.pager->settle();
  EXPECT_GT(b.waited(), 0U);
  EXPECT_LE(b.waited(), now_ns() - began);
}

TEST(ExpertBoard, ALayerThatItHasNoPlaceForIsNotCounted) {
  const auto board = std::make_unique<ExpertBoard>();
  EXPECT_EQ(board->layer(kNoLayer), nullptr);
  EXPECT_EQ(board->layer(ExpertBoard::kLayersMost), nullptr);
  EXPECT_NE(board->layer(ExpertBoard::kLayersMost - 1), nullptr);
  board->use(ExpertBoard::kLayersMost - 1, ExpertBoard::kExpertsMost);
  for (const auto& count : board->uses)
    ASSERT_EQ(count.load(), 0U);
}

TEST(ExpertBoard, ACountOfUsesStaysAtItsLargestValue) {
  const auto board = std::make_unique<ExpertBoard>();
  board->uses_of(1, 2) = std::numeric_limits<std::uint32_t>::max() - 1;
  board->use(1, 2);
  board->use(1, 2);
  EXPECT_EQ(board->uses_of(1, 2).load(), std::numeric_limits<std::uint32_t>::max());
}

}  // namespace
}  // namespace resid::test

// The cache of one layer's experts: whom it may give up, and whom it does.

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "policy/expert_cache.hpp"

namespace resid {
namespace {

using Ids = std::vector<std::uint32_t>;
constexpr std::uint32_t kNone = ExpertCache::kNone;

// One token; its victims in the order in which they went, kNone for a hit or a free place.
Ids token(ExpertCache& cache, const Ids& chosen, const std::vector<double>& worth) {
  Ids victims;
  cache.begin(chosen);
  for (const std::uint32_t expert : chosen)
    victims.push_back(cache.use(expert, worth).victim);
  return victims;
}

const std::vector<double> kRising = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(ExpertCache, FillsBeforeItGivesUpAnything) {
  ExpertCache cache(8, 3, ExpertHold::token);
  EXPECT_EQ(token(cache, {5, 6}, kRising), (Ids{kNone, kNone}));
  EXPECT_EQ(token(cache, {7}, kRising), (Ids{kNone}));
  EXPECT_EQ(token(cache, {4}, kRising), (Ids{5}));
  EXPECT_FALSE(cache.resident(5));
  EXPECT_TRUE(cache.resident(4));
}

TEST(ExpertCache, AHitChangesNothing) {
  ExpertCache cache(8, 2, ExpertHold::token);
  token(cache, {0, 1}, kRising);
  cache.begin(Ids{1});
  const auto outcome = cache.use(1, kRising);
  EXPECT_TRUE(outcome.hit);
  EXPECT_EQ(outcome.victim, kNone);
  EXPECT_TRUE(cache.resident(0));
}

TEST(ExpertCache, OfEqualWorthTheLowestNumberGoes) {
  ExpertCache cache(8, 3, ExpertHold::none);
  token(cache, {6, 2, 4}, std::vector<double>(8, 1.0));
  EXPECT_EQ(token(cache, {0}, std::vector<double>(8, 1.0)), (Ids{2}));
}

TEST(ExpertCache, HoldsAllOfATokensExperts) {
  ExpertCache cache(8, 3, ExpertHold::token);
  token(cache, {0, 1, 7}, kRising);
  // 0 and 1 are worth least, but are the token's own.
  EXPECT_EQ(token(cache, {0, 1, 5}, kRising), (Ids{kNone, kNone, 7}));
  // Next token: they are no longer held.
  EXPECT_EQ(token(cache, {6}, kRising), (Ids{0}));
}

TEST(ExpertCache, HoldsWhatIsStillToCome) {
  ExpertCache cache(8, 2, ExpertHold::pending);
  token(cache, {0, 1}, kRising);
  // For 5, 0 would go, but is still to come; for 6, 0 may go.
  EXPECT_EQ(token(cache, {5, 0, 6}, kRising), (Ids{1, kNone, 0}));
}

TEST(ExpertCache, HoldsNothingWhenTold) {
  ExpertCache cache(8, 2, ExpertHold::none);
  token(cache, {0, 1}, kRising);
  EXPECT_EQ(token(cache, {5, 0}, kRising), (Ids{0, 1}));
}

TEST(ExpertCache, ACapBelowATokensNeedGivesUpWhatWasUsedFirst) {
  ExpertCache cache(8, 2, ExpertHold::token);
  token(cache, {0, 1}, kRising);
  // 5 takes 0's place, since 1 is still to come; 6 takes 5's, although 1 is worth less.
  EXPECT_EQ(token(cache, {5, 6, 1}, kRising), (Ids{0, 5, kNone}));
}

TEST(ExpertCache, ACapOfOneWorks) {
  ExpertCache cache(8, 1, ExpertHold::token);
  EXPECT_EQ(token(cache, {0, 1, 2}, kRising), (Ids{kNone, 0, 1}));
  // What is still to come goes where there is nothing else.
  EXPECT_EQ(token(cache, {5, 2}, kRising), (Ids{2, 5}));
}

TEST(ExpertCache, ACapAboveTheNumberOfExpertsNeverGivesUpAny) {
  ExpertCache cache(4, 100, ExpertHold::token);
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(token(cache, {3, 1, 0, 2}, kRising), (Ids{kNone, kNone, kNone, kNone}));
}

// The rule in its plainest form.
RC_GTEST_PROP(ExpertCacheReference, GivesUpTheLeastWorthOfThoseThatMayGo, ()) {
  constexpr std::uint32_t kExperts = 9;
  const auto some = [](std::uint32_t low, std::uint32_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high + 1));
  };
  const std::uint32_t cap = some(1, kExperts);
  const std::uint32_t used = some(1, 4);
  const auto hold = static_cast<ExpertHold>(some(0, 2));
  ExpertCache cache(kExperts, cap, hold);
  std::set<std::uint32_t> resident;
  for (int t = 0; t < 40; ++t) {
    Ids chosen;
    while (chosen.size() < used) {
      const std::uint32_t expert = some(0, kExperts - 1);
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    std::vector<double> worth;
    for (std::uint32_t e = 0; e < kExperts; ++e)
      worth.push_back(some(0, 3));
    cache.begin(chosen);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const bool hit = resident.count(chosen[i]) != 0;
      std::uint32_t victim = kNone;
      if (!hit && resident.size() == cap) {
        const auto pending_begin = chosen.begin() + static_cast<std::ptrdiff_t>(i);
        const auto rank = [&](std::uint32_t e) {
          const auto at = std::find(chosen.begin(), chosen.end(), e);
          int held = 0;
          if (hold != ExpertHold::none && at != chosen.end()) {
            held = at >= pending_begin ? 2 : hold == ExpertHold::token ? 1 : 0;
          }
          return std::tuple(held, worth[e], e);
        };
        victim =
            *std::min_element(resident.begin(), resident.end(),
                              [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
        resident.erase(victim);
      }
      resident.insert(chosen[i]);
      const auto outcome = cache.use(chosen[i], worth);
      RC_ASSERT(outcome.hit == hit);
      RC_ASSERT(outcome.victim == victim);
      const Ids residents(cache.residents().begin(), cache.residents().end());
      RC_ASSERT(std::set<std::uint32_t>(residents.begin(), residents.end()) == resident);
    }
  }
}

}  // namespace
}  // namespace resid

// What the echo of earlier choices says.

#include <gtest/gtest.h>

#include <vector>

#include "policy/routing_echo.hpp"

namespace resid {
namespace {

using Ids = std::vector<ExpertId>;
constexpr float kPrior = 0.125F;

// Expert t * 5 % 7 of 8 in layer 0, and t * 3 % 7 in layer 1.
Ids of_token(std::uint32_t layer, std::uint32_t t) {
  return {static_cast<ExpertId>(t * (layer == 0 ? 5 : 3) % 7)};
}

void tokens(RoutingEcho& echo, std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t t = first; t < end; ++t) {
    echo.choose(0, of_token(0, t));
    echo.choose(1, of_token(1, t));
  }
}

TEST(RoutingEcho, KnowsNothingAtFirst) {
  RoutingEcho echo(2, 8, 1);
  echo.choose(0, Ids{3});
  for (std::uint32_t span = 0; span < RoutingEcho::kSpans; ++span)
    EXPECT_EQ(echo.chance(span, 3, kPrior, 1), kPrior);
}

TEST(RoutingEcho, TellsTheNextTokensOfATextThatRepeats) {
  RoutingEcho echo(2, 8, 1);
  tokens(echo, 0, 70);
  // It has spoken of layer 1 last; token 69 was the newest.
  EXPECT_GT(echo.chance(0, of_token(1, 70)[0], kPrior, 0.1F), 0.9F);
  EXPECT_GT(echo.chance(1, of_token(1, 71)[0], kPrior, 0.1F), 0.9F);
  // Two tokens share the third span.
  EXPECT_GT(echo.chance(2, of_token(1, 72)[0], kPrior, 0.1F), 0.45F);
  EXPECT_GT(echo.chance(2, of_token(1, 73)[0], kPrior, 0.1F), 0.45F);
  EXPECT_LT(echo.chance(0, of_token(1, 71)[0], kPrior, 0.1F), 0.1F);
}

TEST(RoutingEcho, SpeaksOfTheLayerThatHasChosenLast) {
  RoutingEcho echo(2, 8, 1);
  tokens(echo, 0, 70);
  echo.choose(0, of_token(0, 70));
  EXPECT_GT(echo.chance(0, of_token(0, 71)[0], kPrior, 0.1F), 0.9F);
}

TEST(RoutingEcho, ChancesOfASpanAddUpToWhatATokenUses) {
  RoutingEcho echo(2, 8, 1);
  tokens(echo, 0, 500);
  for (std::uint32_t span = 0; span < RoutingEcho::kSpans; ++span) {
    float sum = 0;
    for (std::size_t e = 0; e < 8; ++e)
      sum += echo.chance(span, e, kPrior, 1);
    EXPECT_NEAR(sum, 1, 1e-4) << span;
  }
}

TEST(RoutingEcho, ForgetsWhatIsTooLongAgo) {
  RoutingEcho echo(1, 8, 1);
  echo.choose(0, Ids{1});
  echo.choose(0, Ids{2});
  for (std::uint32_t t = 0; t < RoutingEcho::kTokens - 3; ++t)
    echo.choose(0, Ids{5});
  echo.choose(0, Ids{1});
  EXPECT_GT(echo.chance(0, 2, kPrior, 0.1F), 0.5F) << "it is still remembered";
  for (std::uint32_t t = 0; t < RoutingEcho::kTokens; ++t)
    echo.choose(0, Ids{5});
  echo.choose(0, Ids{1});
  EXPECT_LT(echo.chance(0, 2, kPrior, 0.1F), 0.05F);
}

}  // namespace
}  // namespace resid

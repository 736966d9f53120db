// Whether looking ahead pays is decided by how long tokens take.

#include "sense/lookahead_switch.hpp"

#include <gtest/gtest.h>

namespace resid {
namespace {

using Mode = LookaheadSwitch::Mode;

// Tokens until a trial has ended, of one length with and another without.
void run_trial(LookaheadSwitch& it, std::uint64_t with, std::uint64_t without) {
  const std::uint32_t before = it.trials();
  for (int i = 0; i < 5000 && it.trials() == before; ++i)
    it.token(it.on() ? with : without);
  ASSERT_EQ(it.trials(), before + 1);
}

TEST(LookaheadSwitch, OffAndOnAreNeverChanged) {
  LookaheadSwitch off(Mode::off);
  LookaheadSwitch on(Mode::on);
  for (int i = 0; i < 5000; ++i) {
    off.token(1);
    on.token(1'000'000);
    ASSERT_FALSE(off.on());
    ASSERT_TRUE(on.on());
  }
  EXPECT_EQ(off.trials() + on.trials(), 0U);
}

TEST(LookaheadSwitch, LearnsBeforeItIsTried) {
  LookaheadSwitch it(Mode::automatic);
  for (std::uint32_t i = 0; i < LookaheadSwitch::kWarm; ++i) {
    EXPECT_TRUE(it.on());
    it.token(10);
  }
}

TEST(LookaheadSwitch, TheShorterTokensWin) {
  LookaheadSwitch it(Mode::automatic);
  run_trial(it, 10, 11);
  EXPECT_TRUE(it.on());
  run_trial(it, 11, 10);
  EXPECT_FALSE(it.on());
}

TEST(LookaheadSwitch, OfEqualsItIsLeftOut) {
  LookaheadSwitch it(Mode::automatic);
  run_trial(it, 10, 10);
  EXPECT_FALSE(it.on());
}

TEST(LookaheadSwitch, ATrialTriesBothWaysEvenly) {
  LookaheadSwitch it(Mode::automatic);
  for (std::uint32_t i = 0; i < LookaheadSwitch::kWarm; ++i)
    it.token(10);
  std::uint32_t with = 0;
  std::uint32_t tokens = 0;
  for (; it.trials() == 0; ++tokens) {
    with += it.on() ? 1 : 0;
    it.token(10);
  }
  EXPECT_EQ(tokens, LookaheadSwitch::kTurn * LookaheadSwitch::kTurns);
  EXPECT_EQ(with, tokens / 2);
}

TEST(LookaheadSwitch, AFewTokensThatStalledDecideNothing) {
  LookaheadSwitch it(Mode::automatic);
  for (std::uint32_t i = 0; it.trials() == 0; ++i)
    it.token(it.on() ? (i % 5 == 0 ? 100'000 : 10) : 20);
  EXPECT_TRUE(it.on());
}

TEST(LookaheadSwitch, IsTriedAgainAfterAWhile) {
  LookaheadSwitch it(Mode::automatic);
  run_trial(it, 11, 10);
  std::uint32_t kept = 0;
  while (!it.on()) {
    it.token(10);
    ++kept;
    ASSERT_LE(kept, LookaheadSwitch::kKept);
  }
  EXPECT_EQ(kept, LookaheadSwitch::kKept);
}

}  // namespace
}  // namespace resid

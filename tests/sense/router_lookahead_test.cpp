// The next layer's choices, from this layer's state.

#include "sense/router_lookahead.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "../count_allocations.hpp"
#include "base/fd.hpp"
#include "model/chunk_plan.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kWidth = 22;  // no multiple of what is computed at a time
constexpr std::uint32_t kExperts = 8;
constexpr std::uint32_t kUsed = 3;
constexpr std::uint64_t kPlenty = 1U << 20;
constexpr float kAll = -1;

using Row = std::vector<float>;

// A file of layers with a norm, a router and one stack of experts each.
struct Routers {
  explicit Routers(std::uint32_t layers, const char* type = "F32", unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    file.path = "routers";
    file.format = Format::gguf;
    file.data_offset = kPage;
    file.layers = layers;
    file.experts = kExperts;
    file.experts_used = kUsed;
    std::vector<char> bytes(kPage);
    const auto add = [&](const std::string& name, Role role, std::uint32_t layer,
                         std::vector<std::uint64_t> dims, const Row& numbers, const char* of_type) {
      Tensor t;
      t.name = name;
      t.type = of_type;
      t.dims = std::move(dims);
      t.offset = bytes.size();
      t.bytes = numbers.size() * sizeof(float);
      t.layer = static_cast<std::int32_t>(layer);
      t.role = role;
      if (is_routed(role)) t.experts = kExperts;
      bytes.resize(bytes.size() + t.bytes);
      std::memcpy(bytes.data() + t.offset, numbers.data(), t.bytes);
      file.tensors.push_back(t);
    };
    for (std::uint32_t l = 0; l < layers; ++l) {
      Row norm(kWidth);
      for (float& x : norm)
        x = 0.5F + std::fabs(normal(random));
      Row router(std::size_t{kWidth} * kExperts);
      for (float& x : router)
        x = normal(random);
      add("norm", Role::ffn_norm, l, {kWidth}, norm, "F32");
      add("router", Role::router, l, {kWidth, kExperts}, router, type);
      add("experts", Role::expert_gate, l, {kPage / 4, 1, kExperts},
          Row(std::size_t{kPage} / 4 * kExperts), "F32");
      norms.push_back(norm);
      routers.push_back(router);
    }
    file.bytes = bytes.size();
    char path[] = "/tmp/resid-routers-XXXXXX";
    fd.reset(::mkostemp(path, O_CLOEXEC));
    ::unlink(path);
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  std::unique_ptr<RouterLookahead> make(std::uint64_t most = kPlenty) const {
    auto plan = ChunkPlan::make(file, ChunkPlan::kDefaultChunkMax);
    if (!plan) std::abort();
    return RouterLookahead::make(file, ExpertIndex::make(file, *plan), fd.get(), most);
  }
  // The next router's scores of a state as it was before either norm's weights.
  std::vector<double> scores(std::uint32_t to, const Row& bare) const {
    std::vector<double> out(kExperts, 0.0);
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      for (std::uint32_t i = 0; i < kWidth; ++i)
        out[e] += double{bare[i]} * norms[to][i] * routers[to][std::size_t{e} * kWidth + i];
    }
    return out;
  }
  // As the layer's experts see it.
  Row seen(std::uint32_t layer, const Row& bare) const {
    Row out(kWidth);
    for (std::uint32_t i = 0; i < kWidth; ++i)
      out[i] = bare[i] * norms[layer][i];
    return out;
  }

  ModelFile file;
  Fd fd;
  std::vector<Row> norms;
  std::vector<Row> routers;
};

Row random_row(std::mt19937& random) {
  std::normal_distribution<float> normal;
  Row row(kWidth);
  for (float& x : row)
    x = normal(random);
  return row;
}

HiddenState one(const Row& row) {
  return {row.data(), kWidth * sizeof(float), kWidth, 1};
}

std::vector<ExpertId> best(const std::vector<double>& scores, std::size_t n) {
  std::vector<ExpertId> ids(scores.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<ExpertId>(i);
  std::sort(ids.begin(), ids.end(), [&](ExpertId a, ExpertId b) { return scores[a] > scores[b]; });
  ids.resize(n);
  return ids;
}

std::vector<ExpertId> ids_of(std::span<const Likely> likely) {
  std::vector<ExpertId> ids;
  for (const Likely& each : likely)
    ids.push_back(each.expert);
  return ids;
}

TEST(RouterLookahead, RanksExpertsByTheNextRouterWithBothNorms) {
  const Routers model(3);
  auto ahead = model.make();
  ASSERT_NE(ahead, nullptr);
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const std::uint32_t layer = random() % 2;
    const Row bare = random_row(random);
    const Row seen = model.seen(layer, bare);
    const auto likely = ahead->guess(static_cast<std::int32_t>(layer), one(seen), kAll);
    EXPECT_EQ(ids_of(likely), best(model.scores(layer + 1, bare), kExperts));
  }
}

TEST(RouterLookahead, AChanceIsAboveTheMiddleForThoseThatWouldBeChosenAlone) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(3);
  const Row bare = random_row(random);
  const Row seen = model.seen(0, bare);
  const auto likely = ahead->guess(0, one(seen), kAll);
  ASSERT_EQ(likely.size(), kExperts);
  // The offset that a guess starts with says: a little less likely than the score alone.
  const float middle = 1 / (1 + std::exp(0.3F));
  for (std::uint32_t i = 0; i < kExperts; ++i)
    EXPECT_EQ(likely[i].chance > middle, i < kUsed) << i;
}

TEST(RouterLookahead, TheSizeOfAModelsNumbersDoesNotMatter) {
  Routers small(2);
  auto plain = small.make();
  std::mt19937 random(3);
  const Row bare = random_row(random);
  Row seen = small.seen(0, bare);
  const auto first = plain->guess(0, one(seen), kAll);
  std::vector<float> chances;
  for (const Likely& each : first)
    chances.push_back(each.chance);
  for (float& x : seen)
    x *= 1000;
  const auto again = plain->guess(0, one(seen), kAll);
  for (std::size_t i = 0; i < again.size(); ++i)
    EXPECT_NEAR(again[i].chance, chances[i], 1e-4F);
}

// What the next layer really chooses is another matrix of the same state: only learning can find
// it.
TEST(RouterLookahead, LearnsWhatTheRouterAloneDoesNotSay) {
  const Routers model(2);
  const Routers truth(2, "F32", 99);
  auto ahead = model.make();
  std::mt19937 random(5);
  double early = 0;
  double late = 0;
  constexpr int kTokens = 4000;
  for (int t = 0; t < kTokens; ++t) {
    const Row bare = random_row(random);
    const Row seen = model.seen(0, bare);
    ahead->guess(0, one(seen), kAll);
    const auto tally = ahead->learn(1, best(truth.scores(1, bare), kUsed), kUsed);
    ASSERT_EQ(tally.asked, kUsed);
    const double share = static_cast<double>(tally.right) / tally.asked;
    if (t < 50) early += share / 50;
    if (t >= kTokens - 500) late += share / 500;
  }
  EXPECT_LT(early, 0.6);
  EXPECT_GT(late, 0.8);
}

TEST(RouterLookahead, ChancesBecomeHonest) {
  const Routers model(2);
  const Routers truth(2, "F32", 42);
  auto ahead = model.make();
  std::mt19937 random(5);
  double said = 0;
  double happened = 0;
  for (int t = 0; t < 6000; ++t) {
    const Row bare = random_row(random);
    const Row seen = model.seen(0, bare);
    const auto chosen = best(truth.scores(1, bare), kUsed);
    for (const Likely& each : ahead->guess(0, one(seen), 0.6F)) {
      if (t < 3000) continue;
      said += each.chance;
      happened += std::count(chosen.begin(), chosen.end(), each.expert) != 0 ? 1 : 0;
    }
    ahead->learn(1, chosen, kUsed);
  }
  ASSERT_GT(said, 1000);
  EXPECT_GT(happened / said, 0.95);  // no more is promised than comes
  EXPECT_LT(happened / said, 1.2);
}

TEST(RouterLookahead, TheTokensOfASmallBatchAreGuessedTogether) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(11);
  const Row a = random_row(random);
  const Row b = random_row(random);
  Row both = model.seen(0, a);
  const Row second = model.seen(0, b);
  both.insert(both.end(), second.begin(), second.end());
  std::vector<float> alone(kExperts, 0.0F);
  for (const Row& row : {model.seen(0, a), second}) {
    for (const Likely& each : ahead->guess(0, one(row), kAll))
      alone[each.expert] = 1 - (1 - alone[each.expert]) * (1 - each.chance);
  }
  const HiddenState state{both.data(), kWidth * sizeof(float), kWidth, 2};
  for (const Likely& each : ahead->guess(0, state, kAll))
    EXPECT_NEAR(each.chance, alone[each.expert], 1e-5F);
}

TEST(RouterLookahead, ALongBatchIsLearnedFromAndNotGuessed) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(11);
  constexpr std::uint32_t kTokens = RouterLookahead::kRows + 3;
  std::vector<Row> bare;
  Row rows;
  std::vector<ExpertId> chosen;
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    bare.push_back(random_row(random));
    const Row seen = model.seen(0, bare.back());
    rows.insert(rows.end(), seen.begin(), seen.end());
    const auto mine = best(model.scores(1, bare.back()), kUsed);
    chosen.insert(chosen.end(), mine.begin(), mine.end());
  }
  const HiddenState state{rows.data(), kWidth * sizeof(float), kWidth, kTokens};
  EXPECT_TRUE(ahead->guess(0, state, kAll).empty());
  const auto tally = ahead->learn(1, chosen, kUsed);
  EXPECT_EQ(tally.asked, RouterLookahead::kRows * kUsed);
  EXPECT_EQ(tally.right, tally.asked);  // the last rows, each against its own
}

TEST(RouterLookahead, WhatBelongsToNoGuessIsNotLearned) {
  const Routers model(3);
  auto ahead = model.make();
  std::mt19937 random(2);
  const Row seen = model.seen(0, random_row(random));
  const std::vector<ExpertId> chosen{0, 1, 2};
  EXPECT_EQ(ahead->learn(1, chosen, kUsed).asked, 0U);  // no guess was made
  ahead->guess(0, one(seen), kAll);
  EXPECT_EQ(ahead->learn(2, chosen, kUsed).asked, 0U);  // for another layer
  EXPECT_EQ(ahead->learn(1, chosen, 0).asked, 0U);
  const std::vector<ExpertId> more{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(ahead->learn(1, more, kUsed).asked, 0U);  // two tokens, and one was guessed at
  ahead->guess(0, one(seen), kAll);
  EXPECT_EQ(ahead->learn(1, std::vector<ExpertId>{0, 1, kExperts}, kUsed).asked, 0U);
  ahead->guess(0, one(seen), kAll);
  EXPECT_EQ(ahead->learn(1, chosen, kUsed).asked, kUsed);
  EXPECT_EQ(ahead->learn(1, chosen, kUsed).asked, 0U);  // once
}

TEST(RouterLookahead, AStateOfZerosOrWithoutEndTeachesNothing) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(9);
  const Row bare = random_row(random);
  const Row seen = model.seen(0, bare);
  for (const float bad : {0.0F, INFINITY, NAN}) {
    const Row state(kWidth, bad);
    ahead->guess(0, one(state), 0.6F);
    ahead->learn(1, std::vector<ExpertId>{5, 6, 7}, kUsed);
  }
  EXPECT_EQ(ids_of(ahead->guess(0, one(seen), kAll)), best(model.scores(1, bare), kExperts));
}

TEST(RouterLookahead, GuessingAndLearningAllocateNothing) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(9);
  const Row seen = model.seen(0, random_row(random));
  const std::vector<ExpertId> chosen{5, 6, 7};
  const std::size_t before = allocations;
  for (int i = 0; i < 10; ++i) {
    ahead->guess(0, one(seen), kAll);
    ahead->learn(1, chosen, kUsed);
  }
  EXPECT_EQ(allocations, before);
}

TEST(RouterLookahead, ThereIsNoneWhereNothingCanBeLookedAheadIn) {
  EXPECT_EQ(Routers(1).make(), nullptr);          // one layer
  EXPECT_EQ(Routers(2, "Q8_0").make(), nullptr);  // a router of a type not computed with
  EXPECT_EQ(Routers(4).make(1000), nullptr);      // more memory than it may have
  Routers unknown(2);
  unknown.file.experts_used = 0;
  EXPECT_EQ(unknown.make(), nullptr);
  Routers none(2);
  for (Tensor& t : none.file.tensors) {
    if (t.role == Role::router) t.role = Role::other;
  }
  EXPECT_EQ(none.make(), nullptr);
}

TEST(RouterLookahead, AStateOfAnotherWidthIsNotGuessedFrom) {
  const Routers model(2);
  auto ahead = model.make();
  const Row wide(2 * kWidth, 1.0F);
  EXPECT_TRUE(ahead->guess(0, {wide.data(), 8 * kWidth, 2 * kWidth, 1}, kAll).empty());
  EXPECT_TRUE(ahead->guess(1, one(Row(kWidth, 1.0F)), kAll).empty());  // nothing follows
  EXPECT_EQ(ahead->next(0), 1);
  EXPECT_EQ(ahead->next(1), kNoLayer);
}

TEST(RouterLookahead, ALayerForMultiTokenPredictionIsNotGuessed) {
  Routers model(4);
  model.file.draft_layers = 1;
  auto ahead = model.make();
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(ahead->next(1), 2);
  EXPECT_EQ(ahead->next(2), kNoLayer);
}

TEST(RouterLookahead, WhatIsForgottenIsNotLearnedFrom) {
  const Routers model(2);
  auto ahead = model.make();
  std::mt19937 random(2);
  const Row seen = model.seen(0, random_row(random));
  ahead->guess(0, one(seen), kAll);
  ahead->forget();
  EXPECT_EQ(ahead->learn(1, std::vector<ExpertId>{0, 1, 2}, kUsed).asked, 0U);
}

TEST(RouterLookahead, SaysWhatItTakes) {
  auto ahead = Routers(3).make();
  EXPECT_GE(ahead->bytes(), 2 * kWidth * kExperts * sizeof(float));
  EXPECT_LT(ahead->bytes(), 4 * kWidth * kExperts * sizeof(float));
}

}  // namespace
}  // namespace resid

#include "policy/routing_echo.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "policy/fading.hpp"

namespace resid {
namespace {

// What is left of a match one token later.
constexpr float kTokenFade = 0.25F;
// How much more a perfect match weighs than none: exp of this.
constexpr float kSharpness = 13.0F;
constexpr float kNegligible = -7.0F;  // a thousandth of the best
constexpr std::array<std::uint32_t, RoutingEcho::kSpans> kSpanEnds = {1, 2, 4, 8, 16};
constexpr std::size_t kGrades = 128;

}  // namespace

RoutingEcho::RoutingEcho(std::uint32_t layers, std::uint32_t experts, std::uint32_t used)
    : experts_(experts),
      used_(used),
      fade_(std::pow(kTokenFade, 1.0F / static_cast<float>(layers))),
      scale_((1.0F - fade_) / static_cast<float>(used)),
      tokens_(layers, 0),
      choices_(std::size_t{layers} * kTokens * used, 0),
      lengths_(std::size_t{layers} * kTokens, 0),
      uses_(std::size_t{layers} * experts * kWords, 0),
      match_(kTokens, 0.0F),
      seen_(std::size_t{kSpans} * experts, 0.0F) {}

void RoutingEcho::choose(std::uint32_t layer, std::span<const ExpertId> chosen) {
  const std::uint32_t newest = tokens_[layer]++;
  const std::uint32_t lags = std::min(newest, kTokens - 1);
  forget(layer, newest);
  for (std::uint32_t lag = 1; lag <= lags; ++lag)
    match_[lag] = faded(match_[lag], fade_);
  const std::size_t at = slot(layer, newest);
  lengths_[at] = static_cast<std::uint16_t>(std::min<std::size_t>(chosen.size(), used_));
  for (std::uint32_t rank = 0; rank < lengths_[at]; ++rank) {
    match(layer, chosen[rank], newest);
    choices_[at * used_ + rank] = chosen[rank];
    uses(layer, chosen[rank])[newest % kTokens / 64] |= std::uint64_t{1} << (newest % 64);
  }
  recall(layer, newest, pick_best(lags));
}

// The token whose place the newest takes.
void RoutingEcho::forget(std::uint32_t layer, std::uint32_t newest) {
  const std::size_t at = slot(layer, newest);
  for (std::uint32_t rank = 0; rank < lengths_[at]; ++rank) {
    const ExpertId expert = choices_[at * used_ + rank];
    uses(layer, expert)[newest % kTokens / 64] &= ~(std::uint64_t{1} << (newest % 64));
  }
}

// Every remembered token that has used the expert is one more in common.
void RoutingEcho::match(std::uint32_t layer, ExpertId expert, std::uint32_t newest) {
  const std::uint64_t* words = uses(layer, expert);
  for (std::uint32_t word = 0; word < kWords; ++word) {
    for (std::uint64_t left = words[word]; left != 0; left &= left - 1) {
      const auto place = word * 64 + static_cast<std::uint32_t>(std::countr_zero(left));
      match_[(newest - place) % kTokens] += scale_;
    }
  }
}

// The kBest lags of the best grades into best_, the shorter first where a grade is cut; how many.
std::uint32_t RoutingEcho::pick_best(std::uint32_t lags) {
  const auto grade = [this](std::uint32_t lag) {
    return std::min(static_cast<std::size_t>(match_[lag] * kGrades), kGrades - 1);
  };
  std::array<std::uint32_t, kGrades> count{};
  for (std::uint32_t lag = 1; lag <= lags; ++lag)
    ++count[grade(lag)];
  std::size_t lowest = kGrades;
  std::uint32_t above = 0;
  while (lowest > 0 && above + count[lowest - 1] <= kBest)
    above += count[--lowest];
  std::uint32_t left = kBest - above;  // for the grade below
  std::uint32_t n = 0;
  for (std::uint32_t lag = 1; lag <= lags; ++lag) {
    const std::size_t g = grade(lag);
    if (g < lowest && (g + 1 != lowest || left == 0)) continue;
    if (g < lowest) --left;
    best_[n++] = lag;
  }
  return n;
}

void RoutingEcho::recall(std::uint32_t layer, std::uint32_t newest, std::uint32_t best) {
  std::fill(seen_.begin(), seen_.end(), 0.0F);
  weight_.fill(0.0F);
  float highest = 0;
  for (std::uint32_t i = 0; i < best; ++i)
    highest = std::max(highest, match_[best_[i]]);
  for (std::uint32_t i = 0; i < best; ++i) {
    const std::uint32_t lag = best_[i];
    const float below = kSharpness * (match_[lag] - highest);
    if (below < kNegligible) continue;
    const float weight = std::exp(below);
    std::uint32_t ahead = 1;
    for (std::uint32_t span = 0; span < kSpans; ++span) {
      float* seen = seen_.data() + std::size_t{span} * experts_;
      for (; ahead <= kSpanEnds[span] && ahead <= lag; ++ahead) {
        const std::size_t then = slot(layer, newest - lag + ahead);
        const ExpertId* chosen = choices_.data() + then * used_;
        for (std::uint32_t rank = 0; rank < lengths_[then]; ++rank)
          seen[chosen[rank]] += weight;
        weight_[span] += weight;
      }
    }
  }
}

}  // namespace resid

#include "policy/routing_echo.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace resid {
namespace {

// What is left of a match one token later.
constexpr float kTokenFade = 0.25F;
// How much more a perfect match weighs than none: exp of this.
constexpr float kSharpness = 20.0F;
constexpr std::array<std::uint32_t, RoutingEcho::kSpans> kSpanEnds = {1, 2, 4, 8, 16};
constexpr std::size_t kGrades = 128;

}  // namespace

RoutingEcho::RoutingEcho(std::uint32_t layers, std::uint32_t experts, std::uint32_t used)
    : experts_(experts),
      used_(used),
      words_((experts + 63) / 64),
      fade_(std::pow(kTokenFade, 1.0F / static_cast<float>(layers))),
      scale_((1.0F - fade_) / static_cast<float>(used)),
      tokens_(layers, 0),
      masks_(std::size_t{layers} * kTokens * words_, 0),
      choices_(std::size_t{layers} * kTokens * used, 0),
      lengths_(std::size_t{layers} * kTokens, 0),
      match_(kTokens, 0.0F),
      seen_(std::size_t{kSpans} * experts, 0.0F) {}

void RoutingEcho::choose(std::uint32_t layer, std::span<const ExpertId> chosen) {
  const std::uint32_t newest = tokens_[layer]++;
  chosen = chosen.first(std::min<std::size_t>(chosen.size(), used_));
  lengths_[slot(layer, newest)] = static_cast<std::uint16_t>(chosen.size());
  std::uint64_t* mask = masks_.data() + slot(layer, newest) * words_;
  std::fill_n(mask, words_, 0);
  for (const ExpertId expert : chosen)
    mask[expert / 64] |= std::uint64_t{1} << (expert % 64);
  std::copy(chosen.begin(), chosen.end(),
            choices_.begin() + static_cast<std::ptrdiff_t>(slot(layer, newest) * used_));
  const std::uint32_t lags = std::min(newest, kTokens - 1);
  match(layer, newest, lags);
  recall(layer, newest, pick_best(lags));
}

void RoutingEcho::match(std::uint32_t layer, std::uint32_t newest, std::uint32_t lags) {
  const std::uint64_t* now = masks_.data() + slot(layer, newest) * words_;
  for (std::uint32_t lag = 1; lag <= lags; ++lag) {
    const std::uint64_t* then = masks_.data() + slot(layer, newest - lag) * words_;
    int common = 0;
    for (std::uint32_t word = 0; word < words_; ++word)
      common += std::popcount(now[word] & then[word]);
    match_[lag] = match_[lag] * fade_ + static_cast<float>(common) * scale_;
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
    const float weight = std::exp(kSharpness * (match_[lag] - highest));
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

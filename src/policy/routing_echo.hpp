#pragma once
// What followed, the last times that the routers chose as they do now.
//
// The choices of the last layers are held against those of the same layers d tokens ago, for every
// lag d at once: match[d] fades by a factor with each layer and grows by the number of experts in
// common. A lag that matches well points to a moment whose future is known: what was chosen 1, 2,
// ... tokens after it is what is likely now. Texts repeat themselves, and so do routers; and since
// the match is over all layers, the layers above speak for the ones below (X-1: the choice of this
// layer for this token is known, and those of the layers above).
//
// The memory is the last kTokens tokens, as a bit a token for each expert. A call costs an addition
// for each of those that used one of the experts chosen, three short looks at each lag, and some
// additions for each of the kBest best ones.
//
// Only the constructor allocates.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/expert_id.hpp"

namespace resid {

class RoutingEcho {
 public:
  static constexpr std::uint32_t kTokens = 2048;
  static constexpr std::uint32_t kBest = 64;
  // The future in spans: the next token, the one after it, the 3rd and 4th, 5th to 8th, to 16th.
  static constexpr std::uint32_t kSpans = 5;

  RoutingEcho(std::uint32_t layers, std::uint32_t experts, std::uint32_t used);

  // What `layer` has chosen. Afterwards chance() speaks of this layer's next tokens.
  void choose(std::uint32_t layer, std::span<const ExpertId> chosen);

  // How often `expert` followed in that span, as a share of the tokens looked at, weighted by how
  // well they match; `prior` counts as `prior_weight` of such tokens.
  float chance(std::uint32_t span, std::size_t expert, float prior, float prior_weight) const {
    const std::size_t at = std::size_t{span} * experts_ + expert;
    return (seen_[at] + prior * prior_weight) / (weight_[span] + prior_weight);
  }

 private:
  static constexpr std::uint32_t kWords = kTokens / 64;

  std::uint64_t* uses(std::uint32_t layer, ExpertId expert) {
    return uses_.data() + (std::size_t{layer} * experts_ + expert) * kWords;
  }
  void forget(std::uint32_t layer, std::uint32_t newest);
  void match(std::uint32_t layer, ExpertId expert, std::uint32_t newest);
  std::uint32_t pick_best(std::uint32_t lags);
  void recall(std::uint32_t layer, std::uint32_t newest, std::uint32_t best);
  std::size_t slot(std::uint32_t layer, std::uint32_t token) const {
    return std::size_t{layer} * kTokens + token % kTokens;
  }

  std::uint32_t experts_;
  std::uint32_t used_;
  float fade_;
  float scale_;                              // makes the best possible match 1
  std::vector<std::uint32_t> tokens_;        // by layer: how many were seen
  std::vector<ExpertId> choices_;            // by layer, token and rank
  std::vector<std::uint16_t> lengths_;       // by layer and token: how many were chosen
  std::vector<std::uint64_t> uses_;          // by layer and expert: bit t % kTokens for token t
  std::vector<float> match_;                 // by lag
  std::array<std::uint32_t, kBest> best_{};  // lags
  std::vector<float> seen_;                  // by span and expert
  std::array<float, kSpans> weight_{};
};

}  // namespace resid

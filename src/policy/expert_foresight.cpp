// `foresight`: whoever will be missed least goes first.
//
// The worth of an expert is an estimate of E[g^(n-1)], where n is in how many tokens it is used
// next: near 1 for what is about to be used, near 0 for what is not wanted for long. One g serves
// all caps; it was fitted, and what is near it does as well.
//
// Evidence, one feature a source. Each is the logarithm of a chance over the chance that any expert
// has, so that a model with other numbers of layers and experts gives features of like size:
// how often the expert was used, with memories of different length; how long ago; what usually
// follows the experts that this layer has just used; and what followed the last times that all
// layers chose as they do now (routing_echo.hpp), which tells the most.
//
// The estimate is the logistic function of a weighted sum. The weights start from what was fitted
// on two of the four texts of a routing trace, none of them the text it was judged on
// (docs/performance.md), and go on learning with every token, each layer for itself: the estimate
// of a token ago is drawn to 1 where the expert is used now, and else to g times the estimate of
// now. So no future is waited for, and no past is kept but the features of one token. Steps are
// scaled by what a weight has moved so far (Adagrad).
//
// A token costs a layer of 32 to 256 experts about twenty microseconds: docs/performance.md.
// Memory goes with layers x experts x experts (what follows what) and layers x experts x 2048 bits
// (the echo): 22 MB for 61 layers of 256 experts, of which 8 are used.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "policy/expert_ranking.hpp"
#include "policy/fading.hpp"
#include "policy/routing_echo.hpp"

namespace resid {
namespace {

constexpr float kDiscount = 0.8F;
constexpr float kStep = 0.01F;      // of learning
constexpr float kSmoothing = 1.0F;  // tokens' worth of evidence that say: like any other
constexpr float kFollowSmoothing = 2.0F;
constexpr float kRawEchoSmoothing = 0.1F;

constexpr std::array<float, 6> kHalfLives = {2, 4, 8, 16, 64, 256};  // in tokens
constexpr float kFollowHalfLife = 256;    // in tokens of which the expert was one
constexpr std::uint64_t kNeverAge = 200;  // the age of what was never used, at first
constexpr float kLogAgeMiddle = 1.5F;
constexpr float kRemembering = 16;  // the shortest half life that earlier runs say something of

// The features, in this order.
enum Feature : std::size_t {
  kBias = 0,
  kFrequency = 1,  // one a half life
  kLogAge = kFrequency + kHalfLives.size(),
  kInverseAge,
  kFollows,
  kEcho,  // one a span
  kRawEcho = kEcho + RoutingEcho::kSpans,
  kFeatures,
};
using Weights = std::array<float, kFeatures>;

// Fitted; see above.
constexpr Weights kStart = {
    -0.72F,                                         // bias
    -0.02F, -0.03F, -0.02F, 0.18F, 0.30F,  -0.15F,  // frequencies
    -0.04F, 0.11F,                                  // age
    0.23F,                                          // what follows
    -0.01F, 0.30F,  0.14F,  0.06F, -0.01F,          // echo by span
    2.65F,                                          // echo as it is
};

// The natural logarithm of a positive number to 2e-5: of m in [1, 2) it is 2 atanh((m-1)/(m+1)),
// by four terms of its series. Unlike std::log it is done for several experts at once.
inline float fast_log(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 127);
  const auto m = std::bit_cast<float>((bits & 0x7fffffU) | 0x3f800000U);
  const float s = (m - 1) / (m + 1);
  const float q = s * s;
  return exponent * 0.693147181F + 2 * s * (1 + q * (1.0F / 3 + q * (0.2F + q * (1.0F / 7))));
}

// What one layer knows. Everything by expert is contiguous, so that loops go over experts.
class Layer {
 public:
  explicit Layer(const ExpertShape& shape)
      : experts_(shape.experts),
        base_(static_cast<float>(shape.used) / static_cast<float>(shape.experts)),
        counts_(kHalfLives.size() * experts_, 0.0F),
        last_(experts_, 0),
        follows_(experts_ * experts_, 0.0F),
        leads_(experts_, 0.0F),
        before_(shape.used, 0),
        chosen_(experts_, 0),
        features_(kFeatures * experts_, 0.0F),
        past_features_(features_),
        sum_(experts_, 0.0F),
        past_estimate_(experts_, 0.0F),
        error_(experts_, 0.0F) {
    moved_.fill(1.0F);
    for (std::size_t i = 0; i < kHalfLives.size(); ++i)
      fades_[i] = std::exp2(-1 / kHalfLives[i]);
  }

  // The counts begin as if what is remembered had been spread evenly over the tokens before this
  // one; those of short memory are about what has just been, of which history knows nothing.
  void remember(std::span<const float> uses, double tokens, const RoutingEcho& echo,
                double* worth) {
    for (std::size_t i = 0; i < kHalfLives.size(); ++i) {
      if (kHalfLives[i] < kRemembering) continue;
      const float steady = 1 / (1 - fades_[i]);
      counted_[i] = std::min(static_cast<float>(tokens), steady);
      const float scale = counted_[i] / static_cast<float>(tokens);
      for (std::size_t e = 0; e < experts_; ++e)
        counts_[i * experts_ + e] = uses[e] * scale;
    }
    describe({}, echo);
    estimate(worth);
  }

  // One token. `worth` by expert.
  void take(std::span<const ExpertId> chosen, const RoutingEcho& echo, double* worth) {
    for (const ExpertId expert : chosen)
      chosen_[expert] = 1;
    count(chosen);
    if (tokens_ > 0) follow(chosen);
    std::swap(features_, past_features_);
    describe(chosen, echo);
    estimate(worth);
    if (tokens_ > 0) learn();
    for (std::size_t e = 0; e < experts_; ++e)
      past_estimate_[e] = logistic(sum_[e]);
    for (const ExpertId expert : chosen)
      chosen_[expert] = 0;
    before_used_ = std::min(chosen.size(), before_.size());
    std::copy_n(chosen.begin(), before_used_, before_.begin());
    ++tokens_;
  }

 private:
  static float logistic(float sum) { return 1 / (1 + std::exp(-sum)); }
  float* feature(std::size_t which) { return features_.data() + which * experts_; }

  void count(std::span<const ExpertId> chosen) {
    for (std::size_t i = 0; i < kHalfLives.size(); ++i) {
      float* counts = counts_.data() + i * experts_;
      for (std::size_t e = 0; e < experts_; ++e)
        counts[e] = faded(counts[e], fades_[i]);
      for (const ExpertId expert : chosen)
        counts[expert] += 1;
      counted_[i] = counted_[i] * fades_[i] + 1;
    }
    for (const ExpertId expert : chosen)
      last_[expert] = tokens_ + kNeverAge;
  }

  // The experts of the token before have led to these.
  void follow(std::span<const ExpertId> chosen) {
    for (std::size_t i = 0; i < before_used_; ++i) {
      float* row = follows_.data() + before_[i] * experts_;
      for (std::size_t e = 0; e < experts_; ++e)
        row[e] = faded(row[e], follow_fade_);
      for (const ExpertId expert : chosen)
        row[expert] += 1;
      leads_[before_[i]] = leads_[before_[i]] * follow_fade_ + 1;
    }
  }

  void describe(std::span<const ExpertId> chosen, const RoutingEcho& echo) {
    std::fill_n(feature(kBias), experts_, 1.0F);
    for (std::size_t i = 0; i < kHalfLives.size(); ++i) {
      const float* counts = counts_.data() + i * experts_;
      float* out = feature(kFrequency + i);
      const float scale = 1 / ((counted_[i] + kSmoothing) * base_);
      for (std::size_t e = 0; e < experts_; ++e)
        out[e] = fast_log((counts[e] + kSmoothing * base_) * scale);
    }
    for (std::size_t e = 0; e < experts_; ++e) {
      const auto age = static_cast<float>(tokens_ + kNeverAge - last_[e]);
      feature(kLogAge)[e] = fast_log(1 + age) - kLogAgeMiddle;
      feature(kInverseAge)[e] = 1 / (1 + age);
    }
    describe_follows(chosen);
    for (std::uint32_t span = 0; span < RoutingEcho::kSpans; ++span) {
      float* heard = feature(kEcho + span);
      for (std::size_t e = 0; e < experts_; ++e)
        heard[e] = fast_log(echo.chance(span, e, base_, kSmoothing) / base_);
    }
    for (std::size_t e = 0; e < experts_; ++e)
      feature(kRawEcho)[e] = echo.chance(0, e, base_, kRawEchoSmoothing);
  }

  // The mean of the logarithms over the chosen, by the logarithms of products of some at a time:
  // not so many that a product could leave the range of a float.
  void describe_follows(std::span<const ExpertId> chosen) {
    constexpr std::size_t kAtATime = 6;
    float* out = feature(kFollows);
    float* product = error_.data();
    std::fill_n(out, experts_, 0.0F);
    if (chosen.empty()) return;
    const float share = 1 / static_cast<float>(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (i % kAtATime == 0) std::fill_n(product, experts_, 1.0F);
      const float* row = follows_.data() + chosen[i] * experts_;
      const float scale = 1 / ((leads_[chosen[i]] + kFollowSmoothing) * base_);
      for (std::size_t e = 0; e < experts_; ++e)
        product[e] *= (row[e] + kFollowSmoothing * base_) * scale;
      if (i % kAtATime + 1 != kAtATime && i + 1 != chosen.size()) continue;
      for (std::size_t e = 0; e < experts_; ++e)
        out[e] += fast_log(product[e]) * share;
    }
  }

  void estimate(double* worth) {
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    for (std::size_t f = 0; f < kFeatures; ++f) {
      const float* x = feature(f);
      for (std::size_t e = 0; e < experts_; ++e)
        sum_[e] += weights_[f] * x[e];
    }
    std::copy(sum_.begin(), sum_.end(), worth);
  }

  void learn() {
    for (std::size_t e = 0; e < experts_; ++e) {
      const float target = chosen_[e] != 0 ? 1.0F : kDiscount * logistic(sum_[e]);
      error_[e] = target - past_estimate_[e];
    }
    for (std::size_t f = 0; f < kFeatures; ++f) {
      const float* x = past_features_.data() + f * experts_;
      float slope = 0;
      for (std::size_t e = 0; e < experts_; ++e)
        slope += error_[e] * x[e];
      slope /= static_cast<float>(experts_);
      moved_[f] += slope * slope;
      weights_[f] += kStep * slope / std::sqrt(moved_[f]);
    }
  }

  std::size_t experts_;
  float base_;                                      // the chance that any expert has
  std::vector<float> counts_;                       // by half life and expert: faded uses
  std::array<float, kHalfLives.size()> counted_{};  // by half life: faded tokens
  std::array<float, kHalfLives.size()> fades_{};
  std::vector<std::uint64_t> last_;  // by expert: the token of its last use, and kNeverAge
  float follow_fade_ = std::exp2(-1 / kFollowHalfLife);
  std::vector<float> follows_;    // by expert and expert a token later: faded counts
  std::vector<float> leads_;      // by expert: faded uses that were followed by anything
  std::vector<ExpertId> before_;  // what the token before has chosen
  std::size_t before_used_ = 0;
  std::vector<std::uint8_t> chosen_;  // by expert: by this token
  std::vector<float> features_;       // by feature and expert
  std::vector<float> past_features_;  // a token ago
  std::vector<float> sum_;            // by expert: what the logistic function is taken of
  std::vector<float> past_estimate_;
  std::vector<float> error_;  // and scratch space before that
  Weights weights_ = kStart;
  Weights moved_{};
  std::uint64_t tokens_ = 0;
};

class ExpertForesight final : public ExpertRanking {
 public:
  explicit ExpertForesight(const ExpertShape& shape)
      : ExpertRanking(shape), echo_(shape.layers, shape.experts, shape.used) {
    layers_.reserve(shape.layers);
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
      layers_.emplace_back(shape);
  }

  // estimates of the same thing, whatever the layer.
  void choose(std::uint32_t layer, std::span<const ExpertId> chosen) override {
    if (chosen.empty()) return;
    echo_.choose(layer, chosen);
    layers_[layer].take(chosen, echo_, &at(layer, 0));
  }
  void use(std::uint32_t /*layer*/, ExpertId /*expert*/) override {}
  void remember(std::uint32_t layer, std::span<const float> uses, double tokens) override {
    layers_[layer].remember(uses, tokens, echo_, &at(layer, 0));
  }

 private:
  RoutingEcho echo_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<ExpertRanking> make_expert_foresight(const ExpertShape& shape) {
  return std::make_unique<ExpertForesight>(shape);
}

}  // namespace resid

// `lfru`, the field's rule: how often an expert was used decides, how long ago only between equals.
// Counts are halved every kHalve tokens, so that what was popular long ago is forgotten.

#include <algorithm>

#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kHalve = 64;

class ExpertFrequency final : public ExpertRanking {
 public:
  explicit ExpertFrequency(const ExpertShape& shape)
      : ExpertRanking(shape),
        count_(worth_.size(), 0),
        choices_(shape.layers, 0),
        last_(worth_.size(), 0.0) {}

  void choose(std::uint32_t layer, std::span<const ExpertId> /*chosen*/) override {
    if (++choices_[layer] % kHalve != 0) return;
    for (std::uint32_t e = 0; e < shape_.experts; ++e) {
      const std::size_t i = index(layer, e);
      count_[i] /= 2;
      weigh(i);
    }
  }

  void use(std::uint32_t layer, ExpertId expert) override {
    const std::size_t i = index(layer, expert);
    ++count_[i];
    last_[i] = ++now_;
    weigh(i);
  }
  // As if they had been used so often in the time that counts now.
  void remember(std::uint32_t layer, std::span<const float> uses, double tokens) override {
    const double scale = std::min<double>(tokens, kHalve) / tokens;
    for (std::uint32_t e = 0; e < uses.size(); ++e) {
      const std::size_t i = index(layer, e);
      count_[i] = static_cast<std::uint32_t>(uses[e] * scale + 0.5);
      weigh(i);
    }
  }

 private:
  std::size_t index(std::uint32_t layer, std::uint32_t expert) const {
    return std::size_t{layer} * shape_.experts + expert;
  }
  // The count first, the age below it: exact up to 2^40 uses.
  void weigh(std::size_t i) {
    constexpr double kAges = 0x1p40;
    worth_[i] = count_[i] * kAges + last_[i];
  }

  std::vector<std::uint32_t> count_;    // by layer and expert, below 2 * kHalve
  std::vector<std::uint32_t> choices_;  // by layer
  std::vector<double> last_;            // in uses
  double now_ = 0;
};

}  // namespace

std::unique_ptr<ExpertRanking> make_expert_lfru(const ExpertShape& shape) {
  return std::make_unique<ExpertFrequency>(shape);
}

}  // namespace resid

// `lru`: whoever was used longest ago goes first.

#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

class ExpertAge final : public ExpertRanking {
 public:
  using ExpertRanking::ExpertRanking;

  void choose(std::uint32_t /*layer*/, std::span<const ExpertId> /*chosen*/) override {}
  void use(std::uint32_t layer, ExpertId expert) override { at(layer, expert) = ++now_; }
  // Whatever is used from now on is younger; of the others the one that was used more stays.
  void remember(std::uint32_t layer, std::span<const float> uses, double tokens) override {
    for (std::size_t e = 0; e < uses.size(); ++e)
      at(layer, static_cast<ExpertId>(e)) = uses[e] / tokens - 1;
  }

 private:
  double now_ = 0;  // in uses: exact up to 2^53 of them
};

}  // namespace

std::unique_ptr<ExpertRanking> make_expert_lru(const ExpertShape& shape) {
  return std::make_unique<ExpertAge>(shape);
}

}  // namespace resid

// `lru`: whoever was used longest ago goes first.

#include "policy/expert_ranking.hpp"

namespace resid {
namespace {

class ExpertAge final : public ExpertRanking {
 public:
  using ExpertRanking::ExpertRanking;

  void choose(std::uint32_t /*layer*/, std::span<const ExpertId> /*chosen*/) override {}
  void use(std::uint32_t layer, ExpertId expert) override { at(layer, expert) = ++now_; }

 private:
  double now_ = 0;  // in uses: exact up to 2^53 of them
};

}  // namespace

std::unique_ptr<ExpertRanking> make_expert_lru(const ExpertShape& shape) {
  return std::make_unique<ExpertAge>(shape);
}

}  // namespace resid

// R-2 to R-5 (routing.hpp), for reader and writer alike.

#include <algorithm>

#include <fmt/format.h>

#include "trace/routing.hpp"

namespace resid {

using Wrong = RoutingRules::Wrong;

//
std::optional<Wrong> RoutingRules::check_experts(std::span<const ExpertId> experts) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (experts_ != 0 && experts[i] >= experts_) {
      return Wrong{fmt::format("e{}", i),
                   fmt::format("expert {} of a layer of {}", experts[i], experts_)};
    }
  }
  sorted_.assign(experts.begin(), experts.end());
  std::sort(sorted_.begin(), sorted_.end());
  const auto twice = std::adjacent_find(sorted_.begin(), sorted_.end());
  if (twice == sorted_.end()) return {};
  const auto first = std::find(experts.begin(), experts.end(), *twice);
  const auto second = std::find(first + 1, experts.end(), *twice);
  return Wrong{fmt::format("e{}", second - experts.begin()),
               fmt::format("expert {} is in the line twice", *twice)};
}

// where a token begins.
std::optional<Wrong> RoutingRules::check_position(const RoutingToken& token) const {
  const auto before = last_pos_.find(token.seq);
  if (before == last_pos_.end()) return {};
  const std::uint64_t expected = std::uint64_t{before->second} + 1;
  if (token.pos == expected) return {};
  return Wrong{"pos",
               fmt::format("{} where sequence {} goes on with {}", token.pos, token.seq, expected)};
}

// May find out that the first token has ended.
std::optional<Wrong> RoutingRules::check_layer(const RoutingRow& row) {
  if (tokens_ == 0) return {};
  if (!layers_known_) {
    if (row.token == token_) {
      if (row.layer > layers_.back()) return {};
      return Wrong{"layer",
                   fmt::format("{} behind {}: layers out of order", row.layer, layers_.back())};
    }
    layers_known_ = true;
    next_layer_ = 0;
  }
  if (next_layer_ == 0) {
    if (auto wrong = check_position(row.token)) return wrong;
  } else if (row.token != token_) {
    const char* column = row.token.seq != token_.seq   ? "seq"
                         : row.token.pos != token_.pos ? "pos"
                                                       : "token_id";
    return Wrong{column, fmt::format("another token begins before layer {} of the one at seq {}, "
                                     "pos {}: a line is missing",
                                     layers_[next_layer_], token_.seq, token_.pos)};
  }
  if (row.layer == layers_[next_layer_]) return {};
  return Wrong{"layer", fmt::format("{} where the first token has layer {}: layers out of order",
                                    row.layer, layers_[next_layer_])};
}

std::optional<Wrong> RoutingRules::take(const RoutingRow& row) {
  if (row.experts.size() != used_) {
    return Wrong{"experts", fmt::format("{} where there must be {}", row.experts.size(), used_)};
  }
  if (auto wrong = check_experts(row.experts)) return wrong;
  if (auto wrong = check_layer(row)) return wrong;
  largest_ = std::max<std::uint32_t>(largest_, sorted_.empty() ? 0 : sorted_.back());
  if (!layers_known_) layers_.push_back(row.layer);
  if (next_layer_ == 0) {
    ++tokens_;
    token_ = row.token;
    last_pos_[row.token.seq] = row.token.pos;
  }
  ++next_layer_;
  if (layers_known_ && next_layer_ == layers_.size()) next_layer_ = 0;
  return {};
}

//
std::optional<Wrong> RoutingRules::end() const {
  if (tokens_ == 0) return Wrong{"seq", "there is no token"};
  if (!layers_known_ || next_layer_ == 0) return {};
  return Wrong{"layer", fmt::format("the file ends before layer {} of the token at seq {}, pos {}",
                                    layers_[next_layer_], token_.seq, token_.pos)};
}

}  // namespace resid

// `expert_lru`, `expert_lfru`, `expert_foresight`: of a mixture-of-experts model, the slices of the
// expert that is worth least go first, of whatever layer; what every token reads goes only when no
// slice is left, by its next use in the declared order.
//
// What an expert is worth is a ranking's to say (expert_ranking.hpp): its last use, how often it
// was used, or how much it will be missed by all that the routers have chosen so far. A use is what
// the engine says of its routing, not a fault: the most used expert never faults. This file knows
// which chunks are candidates, and whom not to take:
//
//   E-1  What was chosen in the last kHeld calls stays while there is another: a layer's slices are
//        read until the next layer speaks, and some may not have come yet. So does what the next
//        layer is expected to choose.
//   E-2  Until a router has spoken there is nothing to go by but age, unless earlier runs have
//   told. E-3  Candidates that are neither slices nor in the order (rows of the embedding, and the
//   seams
//        that two experts share) go by age: first, when no token has used them for kStale tokens
//        or when they hold more than an eighth of the budget; else after the slices. They are
//        small, and a small read costs the disk nearly what a slice does.
//   E-4  With a cap a layer keeps that many experts, and those that E-1 holds: of a layer that has
//        more the one of least worth is surplus, and goes before all others.
//
// The victim is found by a look at each expert that has a candidate, 2 ns each: worths change for a
// whole layer with every token, so that an order kept up to date would cost more than it saves.

#include <algorithm>
#include <memory>
#include <vector>

#include "policy/age_queue.hpp"
#include "policy/declared_policy.hpp"
#include "policy/expert_map.hpp"
#include "policy/expert_usage.hpp"
#include "policy/policies.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kHeld = 2;
constexpr std::size_t kLearned = 64;  // tokens of a batch
constexpr std::uint64_t kStale = 32;
constexpr std::uint64_t kPairsMost = 1ULL << 26;  // 256 MiB
constexpr std::uint64_t kOutsideShare = 8;

using MakeRanking = std::unique_ptr<ExpertRanking> (*)(const ExpertShape&);

class ExpertPolicy final : public DeclaredPolicy {
 public:
  ExpertPolicy(std::string_view name, MakeRanking ranking) : name_(name), make_(ranking) {}
  std::string_view name() const override { return name_; }
  bool ranks_experts() const override { return true; }

  void grow(std::span<const std::uint32_t> bytes) override {
    DeclaredPolicy::grow(bytes);
    slice_ages_.grow(static_cast<std::uint32_t>(bytes.size()));
    bytes_.assign(bytes.begin(), bytes.end());
    used_in_.resize(bytes.size(), 0);
    next_.resize(bytes.size(), kNoChunk);
    prev_.resize(bytes.size(), kNoChunk);
  }

  void declare_experts(const ExpertMap& map) override {
    // What a table of who follows whom would take in a model of absurd shape: by age, then.
    const std::uint64_t pairs =
        std::uint64_t{map.shape.layers} * map.shape.experts * map.shape.experts;
    if (pairs == 0 || pairs > kPairsMost || map.shape.used > kExpertsUsedMost) return;
    // Before any candidate is told: a policy is made anew when chunks are added.
    ranking_ = make_(map.shape);
    places_ = map.places;
    layer_numbers_ = map.layer_numbers;
    experts_.assign(std::size_t{map.shape.layers} * map.shape.experts, Expert{});
    resident_.assign(map.shape.layers, 0);
  }

  void declare_usage(const ExpertUsage& usage) override {
    if (!ranking_ || usage.experts != ranking_->shape().experts) return;
    for (std::size_t i = 0; i < usage.layers.size(); ++i) {
      const std::uint32_t place = place_of(usage.layers[i]);
      if (place == ExpertPlace::kNone || usage.tokens[i] <= 0) continue;
      ranking_->remember(place, usage.of(i), usage.tokens[i]);
      told_ = true;
    }
  }

  // Chunks may come into the order or leave it.
  void declare_sequence(std::span<const ChunkId> sequence) override {
    DeclaredPolicy::declare_sequence(sequence);
    outside_bytes_ = 0;
    for (ChunkId chunk = 0; chunk < bytes_.size(); ++chunk)
      outside_bytes_ += ages_.contains(chunk) ? bytes_[chunk] : 0;
  }

  void set_room(std::uint64_t budget, std::uint64_t /*window*/) override { budget_ = budget; }

  void on_routing(std::uint32_t layer, std::span<const ExpertId> chosen,
                  std::uint32_t used) override {
    const std::uint32_t place = place_of(layer);
    if (!ranking_ || used == 0 || place == ExpertPlace::kNone) return;
    ++calls_;
    for (const ExpertId expert : chosen) {
      if (expert < ranking_->shape().experts)
        experts_[index(place, expert)].held_until = calls_ + kHeld - 1;
    }
    // Of a long prompt the end says enough, and the caller holds a lock.
    const std::size_t learned = std::min(chosen.size() / used, kLearned) * used;
    for (std::span<const ExpertId> left = chosen.last(learned); left.size() >= used;
         left = left.subspan(used)) {
      learn(place, left.first(std::min(used, ranking_->shape().used)));
    }
  }

  void on_expected(std::uint32_t layer, std::span<const ExpertId> experts) override {
    const std::uint32_t place = place_of(layer);
    if (!ranking_ || place == ExpertPlace::kNone) return;
    for (const ExpertId expert : experts) {
      if (expert >= ranking_->shape().experts) continue;
      std::uint64_t& until = experts_[index(place, expert)].held_until;
      until = std::max(until, calls_ + 1);
    }
  }

  void on_fault(ChunkId chunk) override {
    note_use(chunk);
    is_slice(chunk) ? slice_ages_.touch(chunk) : DeclaredPolicy::on_fault(chunk);
  }
  void on_access(ChunkId chunk) override {
    note_use(chunk);
    is_slice(chunk) ? slice_ages_.touch(chunk) : DeclaredPolicy::on_access(chunk);
  }

  void candidate(ChunkId chunk) override {
    if (!is_slice(chunk)) {
      const bool was = known(chunk) && ages_.contains(chunk);
      DeclaredPolicy::candidate(chunk);
      if (!was && known(chunk) && ages_.contains(chunk)) outside_bytes_ += bytes_[chunk];
      return;
    }
    if (slice_ages_.contains(chunk)) return;
    slice_ages_.arrive(chunk);
    slice_ages_.insert(chunk);
    Expert& expert = experts_[index(places_[chunk].layer, places_[chunk].expert)];
    next_[chunk] = expert.first;
    prev_[chunk] = kNoChunk;
    if (expert.first != kNoChunk) {
      prev_[expert.first] = chunk;
    } else if (++resident_[places_[chunk].layer] == cap_ + 1) {
      ++layers_over_;
    }
    expert.first = chunk;
  }

  void withdraw(ChunkId chunk) override {
    if (!is_slice(chunk)) {
      if (known(chunk) && ages_.contains(chunk)) outside_bytes_ -= bytes_[chunk];
      DeclaredPolicy::withdraw(chunk);
      return;
    }
    if (!slice_ages_.contains(chunk)) return;
    slice_ages_.leave(chunk);
    slice_ages_.erase(chunk);
    Expert& expert = experts_[index(places_[chunk].layer, places_[chunk].expert)];
    if (prev_[chunk] != kNoChunk)
      next_[prev_[chunk]] = next_[chunk];
    else
      expert.first = next_[chunk];
    if (next_[chunk] != kNoChunk) prev_[next_[chunk]] = prev_[chunk];
    if (expert.first == kNoChunk && resident_[places_[chunk].layer]-- == cap_ + 1) --layers_over_;
  }

  void set_cap(std::uint32_t experts) override {
    cap_ = experts == 0 ? kUncapped : experts;
    layers_over_ = 0;
    for (const std::uint32_t resident : resident_)
      layers_over_ += resident > cap_ ? 1 : 0;
  }

  ChunkId surplus() override {
    if (layers_over_ == 0 || (calls_ == 0 && !told_)) return kNoChunk;  // E-2
    for (std::uint32_t layer = 0; layer < resident_.size(); ++layer) {
      if (resident_[layer] <= cap_) continue;
      const std::size_t first = index(layer, 0);
      const ChunkId slice = least_worth(first, first + ranking_->shape().experts);
      if (slice != kNoChunk) return slice;
    }
    return kNoChunk;
  }

  ChunkId select_victim() override {
    if (const ChunkId over = surplus(); over != kNoChunk) return over;  // E-4
    const ChunkId outside = ages_.oldest();
    const std::uint64_t stale = kStale * layer_numbers_.size();
    if (outside != kNoChunk &&
        (calls_ - used_in_[outside] > stale || outside_bytes_ > budget_ / kOutsideShare)) {
      return outside;  // E-3
    }
    const ChunkId slice = calls_ == 0 && !told_ ? slice_ages_.oldest() : least_missed();
    return slice != kNoChunk ? slice : DeclaredPolicy::select_victim();
  }

 private:
  void note_use(ChunkId chunk) {
    if (known(chunk)) used_in_[chunk] = calls_;
  }

  void learn(std::uint32_t place, std::span<const ExpertId> token) {
    for (const ExpertId expert : token) {
      if (expert >= ranking_->shape().experts) return;  // no choice of this model's
    }
    ranking_->choose(place, token);
    for (const ExpertId expert : token)
      ranking_->use(place, expert);
  }

  // By position among the layers that have experts; kNone for any other number.
  std::uint32_t place_of(std::uint32_t layer) const {
    const auto at = std::lower_bound(layer_numbers_.begin(), layer_numbers_.end(), layer);
    if (at == layer_numbers_.end() || *at != layer) return ExpertPlace::kNone;
    return static_cast<std::uint32_t>(at - layer_numbers_.begin());
  }

  struct Expert {
    ChunkId first = kNoChunk;      // of its candidates
    std::uint64_t held_until = 0;  // this call, and not beyond
  };
  std::size_t index(std::uint32_t layer, ExpertId expert) const {
    return std::size_t{layer} * ranking_->shape().experts + expert;
  }
  bool is_slice(ChunkId chunk) const {
    return chunk < places_.size() && places_[chunk].layer != ExpertPlace::kNone;
  }

  // Among the experts at these places; kNoChunk where all that have a candidate are held.
  ChunkId least_worth(std::size_t begin, std::size_t end) const {
    const std::span<const double> worth = ranking_->worth();
    const Expert* best = nullptr;
    double least = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const Expert& expert = experts_[i];
      const bool held = calls_ != 0 && expert.held_until >= calls_;  // E-1
      if (expert.first == kNoChunk || held) continue;
      if (best != nullptr && worth[i] >= least) continue;
      best = &expert;
      least = worth[i];
    }
    return best != nullptr ? best->first : kNoChunk;
  }

  ChunkId least_missed() const {
    const ChunkId slice = least_worth(0, experts_.size());
    return slice != kNoChunk ? slice : slice_ages_.oldest();
  }

  static constexpr std::uint32_t kUncapped = 0xfffffffeU;

  const std::string_view name_;
  const MakeRanking make_;
  std::unique_ptr<ExpertRanking> ranking_;  // null: a model without experts
  std::vector<ExpertPlace> places_;
  std::vector<std::uint32_t> layer_numbers_;
  std::vector<Expert> experts_;          // by layer and expert
  std::vector<std::uint32_t> resident_;  // by layer: experts that have a candidate
  std::uint32_t cap_ = kUncapped;        // of these
  std::uint32_t layers_over_ = 0;        // layers that have more
  std::vector<ChunkId> next_, prev_;     // candidates of one expert
  std::vector<std::uint32_t> bytes_;     // by chunk
  std::vector<std::uint64_t> used_in_;   // by chunk: the call of its last use
  AgeQueue slice_ages_;                  // members: the candidates that are slices
  std::uint64_t outside_bytes_ = 0;      // of candidates that are neither slices nor in the order
  std::uint64_t budget_ = 0;
  std::uint64_t calls_ = 0;
  bool told_ = false;  // of earlier runs
};

std::unique_ptr<Policy> make(std::string_view name, MakeRanking ranking) {
  return std::make_unique<ExpertPolicy>(name, ranking);
}

}  // namespace

std::unique_ptr<Policy> make_expert_lru() {
  return make("expert_lru", make_expert_lru);
}
std::unique_ptr<Policy> make_expert_lfru() {
  return make("expert_lfru", make_expert_lfru);
}
std::unique_ptr<Policy> make_expert_foresight() {
  return make("expert_foresight", make_expert_foresight);
}

}  // namespace resid

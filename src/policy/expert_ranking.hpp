#pragma once
// Whom an expert cache gives up first. Plain classes without I/O, lock or clock, for the live pager
// and for the simulation on paper alike.
//
// A ranking covers all layers of a model, since what one layer chose says something about the
// others. It is told every choice of every router, whatever is resident, and keeps a worth for
// each expert; a cache (expert_cache.hpp) gives up the one of least worth.
//
// X-1 Causal: a worth depends on choices that were told, on nothing else. At the time of a miss
//     these are all layers of earlier tokens, and of this token the layers above and this one.
// X-2 Memory is taken by the constructor alone: nothing that is called later allocates (I-13).
// X-3 The order of calls: choose(layer) once a token and layer, layers upwards, then use() for each
//     of the chosen, in the order in which they are needed. An engine that leaves layers out (a
//     layer without experts, a token that ends early) breaks nothing.
// X-4 Worths of different layers are comparable: a pool may hold experts of all layers.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/expert_id.hpp"
#include "base/status.hpp"

namespace resid {

struct ExpertShape {
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;  // of each layer
  std::uint32_t used = 0;     // by a token in a layer
};

class ExpertRanking {
 public:
  explicit ExpertRanking(const ExpertShape& shape)
      : shape_(shape), worth_(std::size_t{shape.layers} * shape.experts, 0.0) {}
  virtual ~ExpertRanking() = default;
  ExpertRanking(const ExpertRanking&) = delete;
  ExpertRanking& operator=(const ExpertRanking&) = delete;

  // The router of `layer` has chosen, in falling order of weight; none of them was used yet.
  virtual void choose(std::uint32_t layer, std::span<const ExpertId> chosen) = 0;
  // One of them is used now.
  virtual void use(std::uint32_t layer, ExpertId expert) = 0;

  // What is known from before the first choice of `layer`: its experts were chosen `uses` times in
  // `tokens` tokens. A beginning only: what is chosen from now on counts as ever. At most once a
  // layer, before its first choose().
  virtual void remember(std::uint32_t layer, std::span<const float> uses, double tokens) = 0;

  // By expert of the layer; of all layers one after another.
  std::span<const double> worth(std::uint32_t layer) const {
    return std::span(worth_).subspan(std::size_t{layer} * shape_.experts, shape_.experts);
  }
  std::span<const double> worth() const { return worth_; }

  const ExpertShape& shape() const { return shape_; }

 protected:
  double& at(std::uint32_t layer, ExpertId expert) {
    return worth_[std::size_t{layer} * shape_.experts + expert];
  }

  const ExpertShape shape_;
  std::vector<double> worth_;
};

// "lru", "lfru", "foresight".
std::span<const std::string_view> expert_ranking_names();
// usage for an unknown name, naming those there are; out_of_memory.
Result<std::unique_ptr<ExpertRanking>> make_expert_ranking(std::string_view name,
                                                           const ExpertShape& shape);

// The makers behind it, one a file. Throw std::bad_alloc.
std::unique_ptr<ExpertRanking> make_expert_lru(const ExpertShape& shape);
std::unique_ptr<ExpertRanking> make_expert_lfru(const ExpertShape& shape);
std::unique_ptr<ExpertRanking> make_expert_foresight(const ExpertShape& shape);

}  // namespace resid

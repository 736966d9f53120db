#pragma once
// Which experts the next layer will likely choose, said while this layer is still at work.
//
// A router is a small matrix in front of a layer's experts; its input is the state of the token,
// which a layer changes little. So the next layer's router, applied to this layer's state, names
// most of what that layer is going to choose:
//
//     chance(expert) = logistic(scale * z + offset),   z = (score - threshold) / deviation
//
// where the scores are the product of state and matrix, the threshold lies between the last that
// would be chosen and the first that would not, and the deviation is that of the scores: so nothing
// depends on a model's own size of numbers. Whoever reads by it can weigh a chance against the cost
// of a read in vain.
//
// The matrix starts as the next router's own, with the norms of both layers taken into account, and
// learns from then on: when the layer has chosen, the error of each chance corrects the matrix
// along the state (normalised least mean squares), and scale and offset keep the chances honest. On
// the model in `models/` the four likeliest of 32 hold 73 % of the true choices at the start, 83 %
// after some thousand tokens; what is gained most is the first layer, 42 to 83 %.
//
//   L-1  Only steps inside one file are looked over; at the border of two parts of a split model
//        there is no guess.
//   L-2  guess() and learn() allocate nothing and know no pager. One thread at a time.
//   L-3  A guess is of use to nobody but whoever prefetches: it changes no result.
//
// Memory: inputs x experts numbers of 4 bytes a layer, 50 MB for 48 layers of 128 experts behind
// 2048 inputs. Time: that matrix is read once to guess and once more, and written, to learn.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/expert_id.hpp"
#include "model/expert_index.hpp"
#include "model/model.hpp"

namespace resid {

// What a layer's experts are applied to, one row a token: `width` floats, `stride` bytes apart.
struct HiddenState {
  const float* rows = nullptr;
  std::uint64_t stride = 0;
  std::uint32_t width = 0;
  std::uint32_t tokens = 0;
};

struct Likely {
  ExpertId expert = 0;
  float chance = 0;  // that some token of the batch chooses it
};

class RouterLookahead {
 public:
  // Of a batch the last rows are looked at; a prompt that is longer wants nearly every expert.
  static constexpr std::uint32_t kRows = 4;

  // For the layers of one file, whose descriptor is `fd`; null where nothing can be looked ahead
  // in: no two layers with experts, a router of unknown form, or more than `most` bytes of memory.
  static std::unique_ptr<RouterLookahead> make(const ModelFile& file, const ExpertIndex& experts,
                                               int fd, std::uint64_t most);

  // The layer that follows `layer` and can be guessed; kNoLayer when there is none.
  std::int32_t next(std::int32_t layer) const;
  // The experts that the layer after `layer` chooses with a chance of at least `least`, likeliest
  // first. Valid until the next call. None for a longer batch, which is looked at all the same, to
  // learn from.
  std::span<const Likely> guess(std::int32_t layer, const HiddenState& state, float least);
  // What `layer` chose, `used` experts a token, after the guess from the layer before it.
  struct Tally {
    std::uint32_t asked = 0;  // choices
    std::uint32_t right = 0;  // of these, among as many likeliest ones
  };
  Tally learn(std::int32_t layer, std::span<const ExpertId> chosen, std::uint32_t used);

  // No guess waits to be judged any more.
  void forget() {
    for (Step& step : steps_)
      step.rows = 0;
  }

  std::uint64_t bytes() const { return bytes_; }

 private:
  // From one layer to the next that has experts.
  struct Step {
    std::int32_t from = kNoLayer;
    std::int32_t to = kNoLayer;
    std::vector<float> matrix;  // by input and expert
    float scale = 4.5F;
    float offset = -0.3F;
    std::uint32_t right = 0;  // guesses so far that were right as they were
    // The guess that waits to be judged.
    std::uint32_t rows = 0;
    std::vector<float> states;   // by row and input
    std::vector<float> margins;  // by row and expert: z
    std::vector<float> chances;  // likewise
  };
  RouterLookahead(std::uint32_t width, std::uint32_t experts, std::uint32_t used)
      : width_(width), experts_(experts), used_(used), scratch_(experts), best_(experts) {
    likely_.reserve(experts);
  }
  Step* step_from(std::int32_t layer);
  Step* step_to(std::int32_t layer);
  void judge_row(Step& step, std::uint32_t row);
  // `right`: all of the chosen were among the likeliest.
  void correct(Step& step, std::uint32_t row, std::span<const ExpertId> chosen, bool right);

  const std::uint32_t width_;
  const std::uint32_t experts_;
  const std::uint32_t used_;
  std::uint64_t bytes_ = 0;
  std::vector<Step> steps_;  // rising
  std::vector<float> scratch_;
  std::vector<float> best_;  // by expert: the chance that any row gives it
  std::vector<Likely> likely_;
};

}  // namespace resid

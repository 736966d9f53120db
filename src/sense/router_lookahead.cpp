#include "sense/router_lookahead.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "model/tensor_floats.hpp"

namespace resid {
namespace {

// Fitted on text of its own; half or twice as much does nearly as well.
constexpr float kRate = 0.4F;  // how much of an error one token takes away
constexpr float kScaleRate = 0.0005F;
constexpr float kOffsetRate = 0.002F;
constexpr float kLeastScale = 0.05F;
// To write the matrix costs as much as to read it. Where a guess was right as it was only one in so
// many corrects it: it comes to the same, in a third less time.
constexpr std::uint32_t kRepeat = 8;

float logistic(float x) {
  return 1 / (1 + std::exp(-x));
}

// out[e] += sum over inputs of state[i] * matrix[i][e]; four inputs at a time, so that a sum is
// loaded and stored once for four.
void multiply(const float* state, std::uint32_t inputs, const float* matrix, std::uint32_t experts,
              float* out) {
  std::uint32_t i = 0;
  for (; i + 4 <= inputs; i += 4) {
    const float* row = matrix + std::size_t{i} * experts;
    const float a = state[i];
    const float b = state[i + 1];
    const float c = state[i + 2];
    const float d = state[i + 3];
    for (std::uint32_t e = 0; e < experts; ++e) {
      out[e] += (a * row[e] + b * row[e + experts]) +
                (c * row[e + 2 * std::size_t{experts}] + d * row[e + 3 * std::size_t{experts}]);
    }
  }
  for (; i < inputs; ++i) {
    const float* row = matrix + std::size_t{i} * experts;
    for (std::uint32_t e = 0; e < experts; ++e)
      out[e] += state[i] * row[e];
  }
}

// A layer's tensor of this role that has the wanted number of elements.
const Tensor* find(const ModelFile& file, std::int32_t layer, Role role, std::uint64_t elements) {
  for (const Tensor& t : file.tensors) {
    if (t.layer != layer || t.role != role) continue;
    std::uint64_t count = 1;
    for (const std::uint64_t dim : t.dims)
      count *= dim;
    if (count == elements) return &t;
  }
  return nullptr;
}

// A router: as many columns as experts. GGUF has the fastest dimension first.
const Tensor* find_router(const ModelFile& file, std::int32_t layer, std::uint32_t experts) {
  for (const Tensor& t : file.tensors) {
    if (t.layer == layer && t.role == Role::router && t.dims.size() == 2 && t.dims[1] == experts) {
      return &t;
    }
  }
  return nullptr;
}

std::vector<float> floats_of(int fd, const Tensor* tensor) {
  if (tensor == nullptr) return {};
  auto read = read_floats(fd, *tensor);
  return read ? std::move(*read) : std::vector<float>{};
}

// What the weights of the norm in front of the next router would have made of an input that this
// layer's norm has weighed. Where one is not known the matrix learns it.
std::vector<float> norm_ratio(const std::vector<float>& mine, const std::vector<float>& next,
                              std::uint32_t width) {
  std::vector<float> ratio(width, 1.0F);
  if (mine.size() != width || next.size() != width) return ratio;
  for (std::uint32_t i = 0; i < width; ++i)
    ratio[i] = std::fabs(mine[i]) > 1e-6F ? next[i] / mine[i] : 0;
  return ratio;
}

}  // namespace

std::unique_ptr<RouterLookahead> RouterLookahead::make(const ModelFile& file,
                                                       const ExpertIndex& experts, int fd,
                                                       std::uint64_t most) {
  const auto layers = experts.first_stacks();
  if (file.format != Format::gguf || layers.size() < 2 || file.experts_used == 0) return nullptr;
  const std::uint32_t count = layers.front().experts;
  const Tensor* first = find_router(file, layers.front().layer, count);
  if (first == nullptr || first->dims[0] == 0 || count < 2 || file.experts_used >= count) {
    return nullptr;
  }
  const std::uint64_t width = first->dims[0];
  const std::uint64_t step_bytes =
      (width * count + kRows * (width + 2 * std::uint64_t{count})) * sizeof(float);
  if (width > 1U << 20 || (layers.size() - 1) * step_bytes > most) return nullptr;
  std::unique_ptr<RouterLookahead> made(
      new RouterLookahead(static_cast<std::uint32_t>(width), count, file.experts_used));
  std::vector<float> norm = floats_of(fd, find(file, layers.front().layer, Role::ffn_norm, width));
  for (std::size_t i = 1; i < layers.size(); ++i) {
    const std::int32_t to = layers[i].layer;
    // Layers for multi-token prediction have routers that never speak in an ordinary pass.
    const std::uint32_t last = file.layers - std::min(file.layers, file.draft_layers);
    if (file.draft_layers != 0 && to >= static_cast<std::int32_t>(last)) break;
    std::vector<float> next_norm = floats_of(fd, find(file, to, Role::ffn_norm, width));
    const std::vector<float> ratio = norm_ratio(norm, next_norm, static_cast<std::uint32_t>(width));
    norm = std::move(next_norm);
    const Tensor* router = find_router(file, to, count);
    if (layers[i].experts != count || router == nullptr || router->dims[0] != width) continue;
    const std::vector<float> weights = floats_of(fd, router);
    if (weights.size() != width * count) continue;
    Step step;
    step.from = layers[i - 1].layer;
    step.to = to;
    step.matrix.resize(weights.size());
    for (std::size_t e = 0; e < count; ++e) {
      for (std::size_t in = 0; in < width; ++in)
        step.matrix[in * count + e] = weights[e * width + in] * ratio[in];
    }
    step.states.resize(kRows * width);
    step.margins.resize(std::size_t{kRows} * count);
    step.chances.resize(std::size_t{kRows} * count);
    made->bytes_ += step_bytes;
    made->steps_.push_back(std::move(step));
  }
  return made->steps_.empty() ? nullptr : std::move(made);
}

RouterLookahead::Step* RouterLookahead::step_from(std::int32_t layer) {
  const auto at = std::lower_bound(steps_.begin(), steps_.end(), layer,
                                   [](const Step& s, std::int32_t l) { return s.from < l; });
  return at != steps_.end() && at->from == layer ? &*at : nullptr;
}

RouterLookahead::Step* RouterLookahead::step_to(std::int32_t layer) {
  const auto at = std::lower_bound(steps_.begin(), steps_.end(), layer,
                                   [](const Step& s, std::int32_t l) { return s.to < l; });
  return at != steps_.end() && at->to == layer ? &*at : nullptr;
}

std::int32_t RouterLookahead::next(std::int32_t layer) const {
  const auto at = std::lower_bound(steps_.begin(), steps_.end(), layer,
                                   [](const Step& s, std::int32_t l) { return s.from < l; });
  return at != steps_.end() && at->from == layer ? at->to : kNoLayer;
}

void RouterLookahead::judge_row(Step& step, std::uint32_t row) {
  float* z = step.margins.data() + std::size_t{row} * experts_;
  float* chance = step.chances.data() + std::size_t{row} * experts_;
  std::fill_n(z, experts_, 0.0F);
  multiply(step.states.data() + std::size_t{row} * width_, width_, step.matrix.data(), experts_, z);
  float sum = 0;
  float squares = 0;
  for (std::uint32_t e = 0; e < experts_; ++e) {
    sum += z[e];
    squares += z[e] * z[e];
  }
  const auto n = static_cast<float>(experts_);
  const float variance = squares / n - (sum / n) * (sum / n);
  std::copy_n(z, experts_, scratch_.begin());
  const auto first_out = scratch_.begin() + used_;
  std::nth_element(scratch_.begin(), first_out, scratch_.end(), std::greater<>());
  const float threshold = (*first_out + *std::min_element(scratch_.begin(), first_out)) / 2;
  const float scale = 1 / std::sqrt(std::max(variance, 1e-12F));
  for (std::uint32_t e = 0; e < experts_; ++e) {
    z[e] = (z[e] - threshold) * scale;
    chance[e] = logistic(step.scale * z[e] + step.offset);
  }
}

std::span<const Likely> RouterLookahead::guess(std::int32_t layer, const HiddenState& state,
                                               float least) {
  likely_.clear();
  Step* step = step_from(layer);
  if (step == nullptr) return {};
  step->rows = 0;
  if (state.width != width_ || state.tokens == 0) return {};
  const std::uint32_t rows = std::min(state.tokens, kRows);
  std::fill(best_.begin(), best_.end(), 0.0F);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const char* from = reinterpret_cast<const char*>(state.rows) +
                       std::uint64_t{state.tokens - rows + row} * state.stride;
    std::memcpy(step->states.data() + std::size_t{row} * width_, from, width_ * sizeof(float));
    judge_row(*step, row);
    const float* chance = step->chances.data() + std::size_t{row} * experts_;
    for (std::uint32_t e = 0; e < experts_; ++e)
      best_[e] = 1 - (1 - best_[e]) * (1 - chance[e]);
  }
  step->rows = rows;
  if (state.tokens > kRows) return {};
  for (std::uint32_t e = 0; e < experts_; ++e) {
    if (best_[e] >= least) likely_.push_back({static_cast<ExpertId>(e), best_[e]});
  }
  std::sort(likely_.begin(), likely_.end(),
            [](const Likely& a, const Likely& b) { return a.chance > b.chance; });
  return likely_;
}

void RouterLookahead::correct(Step& step, std::uint32_t row, std::span<const ExpertId> chosen,
                              bool right) {
  const float* state = step.states.data() + std::size_t{row} * width_;
  const float* z = step.margins.data() + std::size_t{row} * experts_;
  const float* chance = step.chances.data() + std::size_t{row} * experts_;
  std::vector<float>& error = scratch_;
  for (std::uint32_t e = 0; e < experts_; ++e)
    error[e] = -chance[e];
  for (const ExpertId expert : chosen)
    error[expert] += 1;
  float length = 0;
  for (std::uint32_t i = 0; i < width_; ++i)
    length += state[i] * state[i];
  float scale_slope = 0;
  float offset_slope = 0;
  for (std::uint32_t e = 0; e < experts_; ++e) {
    scale_slope += error[e] * z[e];
    offset_slope += error[e];
  }
  // A state of zeros, or one that has overflown, teaches nothing.
  if (!(length > 0) || !std::isfinite(length) || !std::isfinite(scale_slope)) return;
  step.scale = std::max(kLeastScale, step.scale + kScaleRate * scale_slope);
  step.offset += kOffsetRate * offset_slope;
  if (right && ++step.right % kRepeat != 0) return;
  const float rate = kRate / length;
  for (std::uint32_t i = 0; i < width_; ++i) {
    const float by = state[i] * rate;
    float* row_of = step.matrix.data() + std::size_t{i} * experts_;
    for (std::uint32_t e = 0; e < experts_; ++e)
      row_of[e] += by * error[e];
  }
}

RouterLookahead::Tally RouterLookahead::learn(std::int32_t layer, std::span<const ExpertId> chosen,
                                              std::uint32_t used) {
  Tally tally;
  Step* step = step_to(layer);
  if (step == nullptr || used == 0) return tally;
  const std::uint32_t rows = std::exchange(step->rows, 0);
  const std::size_t tokens = chosen.size() / used;
  if (rows == 0 || rows != std::min<std::size_t>(tokens, kRows)) return tally;
  for (const ExpertId expert : chosen) {
    if (expert >= experts_) return tally;
  }
  for (std::uint32_t row = 0; row < rows; ++row) {
    const auto mine = chosen.subspan((tokens - rows + row) * used, used);
    const float* z = step->margins.data() + std::size_t{row} * experts_;
    std::uint32_t right = 0;
    for (const ExpertId expert : mine)
      right += z[expert] > 0 ? 1 : 0;
    tally.asked += used;
    tally.right += right;
    correct(*step, row, mine, right == used);
  }
  return tally;
}

}  // namespace resid

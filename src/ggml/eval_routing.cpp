#include "ggml/eval_routing.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/expert_id.hpp"
#include "ggml/next.hpp"

namespace resid::ggml {
namespace {

// enum ggml_backend_dev_type
constexpr int kCpu = 0;
constexpr int kAccel = 3;  // computes on the host's memory, beside the CPU

constexpr std::int64_t kTokensMost = 1 << 22;

// The layer whose chosen experts a node of this name holds; -1: it holds something else.
std::int32_t layer_of(std::string_view name) {
  constexpr std::string_view kChosen = "ffn_moe_topk-";
  if (!name.starts_with(kChosen)) return -1;
  name.remove_prefix(kChosen.size());
  std::int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc{} && end == name.data() + name.size() ? layer : -1;
}

}  // namespace

bool EvalFunctions::find(const void* address) {
  return find_beside(address, "ggml_backend_sched_set_eval_callback", set_eval_callback) &&
         find_beside(address, "ggml_backend_sched_get_tensor_backend", sched_get_tensor_backend) &&
         find_beside(address, "ggml_backend_get_device", get_device) &&
         find_beside(address, "ggml_backend_dev_type", dev_type) &&
         find_beside(address, "ggml_backend_tensor_get", tensor_get) &&
         find_beside(address, "ggml_graph_get_tensor", graph_get_tensor) &&
         find_beside(address, "ggml_get_name", get_name) &&
         find_beside(address, "ggml_get_data", get_data) &&
         find_beside(address, "ggml_op_desc", op_desc) &&
         find_beside(address, "ggml_nbytes", nbytes) &&
         find_beside(address, "ggml_element_size", element_size) &&
         find_beside(address, "ggml_nelements", nelements) &&
         find_beside(address, "ggml_nrows", nrows) &&
         find_beside(address, "ggml_is_contiguous_rows", is_contiguous_rows);
}

EvalRouting::Watched* EvalRouting::find(void* sched) {
  const std::lock_guard guard(mutex_);
  const auto at = watched_.find(sched);
  return at == watched_.end() ? nullptr : at->second.get();
}

void EvalRouting::program_has_set(void* sched, EvalCallback callback, void* user_data) {
  Watched* w = find(sched);
  if (w == nullptr) {
    auto made = std::make_unique<Watched>();
    w = made.get();
    const std::lock_guard guard(mutex_);
    watched_[sched] = std::move(made);
  }
  w->owner = this;
  w->sched = sched;
  w->callback = callback;
  w->user_data = user_data;
  if (!w->stacks.empty()) ggml_.set_eval_callback(sched, answer, w);
}

void EvalRouting::graph_is_ready(void* sched, const void* graph) {
  Watched* w = find(sched);
  // A callback that we have not seen set cannot be chained (C-1).
  if (w == nullptr) return;
  const bool was_ours = !w->stacks.empty();
  w->stacks.clear();
  w->stopped = nullptr;
  w->on_a_gpu = nullptr;
  for (const std::string& name : listener_.stack_names()) {
    // C-2: another model's tensor of this name lies elsewhere.
    const void* weight = ggml_.graph_get_tensor(graph, name.c_str());
    const void* data = weight == nullptr ? nullptr : ggml_.get_data(weight);
    const Stack stack = data == nullptr ? Stack{} : listener_.stack_at(data);
    if (stack.layer >= 0) w->stacks.push_back(stack);
  }
  if (!w->stacks.empty()) {
    ggml_.set_eval_callback(sched, answer, w);
  } else if (was_ours) {
    ggml_.set_eval_callback(sched, w->callback, w->user_data);
  }
}

void EvalRouting::forget(void* sched) {
  const std::lock_guard guard(mutex_);
  watched_.erase(sched);
}

bool EvalRouting::answer(void* tensor, bool ask, void* watched) {
  auto& w = *static_cast<Watched*>(watched);
  return ask ? w.owner->asked(w, tensor) : w.owner->computed(w, tensor);
}

bool EvalRouting::asked(Watched& w, void* tensor) {
  w.program_wants = w.callback != nullptr && w.callback(tensor, true, w.user_data);
  if (w.on_a_gpu != nullptr) product_comes_up(w, tensor);
  const std::int32_t layer = layer_of(ggml_.get_name(tensor));
  const bool wanted = layer >= 0 && std::any_of(w.stacks.begin(), w.stacks.end(),
                                                [&](const Stack& s) { return s.layer == layer; });
  if (!wanted) return w.program_wants;
  if (on_a_cpu(w, tensor)) {
    w.stopped = tensor;
    return true;
  }
  w.on_a_gpu = tensor;  // C-3
  return w.program_wants;
}

bool EvalRouting::computed(Watched& w, void* tensor) {
  // C-1: and the program first, since it may change what was chosen.
  const bool goes_on = !w.program_wants || w.callback(tensor, false, w.user_data);
  const bool ours = w.stopped == tensor;
  w.stopped = nullptr;
  if (ours && goes_on) tell(w, tensor);
  return goes_on;
}

void EvalRouting::product_comes_up(Watched& w, void* tensor) {
  if (std::string_view(ggml_.op_desc(tensor)) != "MUL_MAT_ID") return;
  void* chosen = w.on_a_gpu;
  w.on_a_gpu = nullptr;
  // Asked for at the start of a piece on another device, when the piece before it is computed and
  // waited for. On the same device the ids may not be there, and the weights have been copied.
  void* here = ggml_.sched_get_tensor_backend(w.sched, tensor);
  void* there = ggml_.sched_get_tensor_backend(w.sched, chosen);
  if (here != nullptr && there != nullptr && here != there) tell(w, chosen);
}

void EvalRouting::tell(Watched& w, const void* chosen) {
  const std::int64_t ids = ggml_.nelements(chosen);
  const std::int64_t tokens = ggml_.nrows(chosen);
  if (ids <= 0 || tokens <= 0 || tokens > kTokensMost || ids % tokens != 0) return;
  // 32 bit numbers, side by side; rows may lie apart, as a view of a longer row's beginning does.
  if (ggml_.element_size(chosen) != sizeof(std::int32_t) || !ggml_.is_contiguous_rows(chosen)) {
    return;
  }
  const std::int64_t used = ids / tokens;
  if (used > kExpertsUsedMost) return;
  const std::size_t row = static_cast<std::size_t>(used) * sizeof(std::int32_t);
  const std::size_t bytes = ggml_.nbytes(chosen);
  std::size_t stride = row;
  if (bytes < row) return;
  if (tokens > 1) {
    const auto gaps = static_cast<std::size_t>(tokens) - 1;
    stride = (bytes - row) / gaps;
    if (stride < row || stride > kExpertsMost * sizeof(std::int32_t) ||
        stride * gaps != bytes - row) {
      return;
    }
  }
  try {
    w.ids.resize(bytes);
  } catch (...) {
    return;  // slices come by their faults
  }
  ggml_.tensor_get(chosen, w.ids.data(), 0, bytes);
  const std::int32_t layer = layer_of(ggml_.get_name(chosen));
  for (const Stack& stack : w.stacks) {
    if (stack.layer != layer) continue;
    resid_routed call{};
    call.stack = stack.address;
    call.experts = stack.experts;
    call.used = static_cast<std::uint32_t>(used);
    call.tokens = static_cast<std::uint32_t>(tokens);
    call.used_stride = sizeof(std::int32_t);
    call.token_stride = stride;
    call.ids = w.ids.data();
    listener_.routed(call);
  }
}

bool EvalRouting::on_a_cpu(Watched& w, void* tensor) const {
  void* backend = ggml_.sched_get_tensor_backend(w.sched, tensor);
  void* device = backend == nullptr ? nullptr : ggml_.get_device(backend);
  if (device == nullptr) return false;
  const int type = ggml_.dev_type(device);
  return type == kCpu || type == kAccel;
}

}  // namespace resid::ggml

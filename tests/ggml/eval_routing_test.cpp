// Routing by the evaluation callback, on a scheduler that does what ggml's does: it asks of every
// node whether it is wanted, computes up to the wanted one, and shows it.

#include "ggml/eval_routing.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace resid::ggml {
namespace {

struct Device {
  int type = 0;  // 0 the CPU, 1 a GPU
};

struct Node {
  std::string name;
  std::string op = "ADD";
  Device* device = nullptr;
  // As computed: rows of `row` numbers, of which the first `used` are shown.
  std::vector<std::int32_t> data{};
  std::int64_t used = 1;
  std::int64_t tokens = 1;
  std::size_t row = 1;
  std::size_t element = sizeof(std::int32_t);
  bool computed = false;
};

struct Graph {
  std::vector<std::vector<Node*>> pieces;
  std::vector<Node*> weights;
};

struct Scheduler {
  EvalCallback callback = nullptr;
  void* user_data = nullptr;

  void compute(const Graph& graph) {
    for (const auto& piece : graph.pieces) {
      for (Node* n : piece)
        n->computed = false;
    }
    for (const auto& piece : graph.pieces) {
      for (std::size_t first = 0; first < piece.size(); ++first) {
        std::size_t last = first;
        bool wanted = ask(piece[last]);
        while (!wanted && last + 1 < piece.size())
          wanted = ask(piece[++last]);
        for (std::size_t i = first; i <= last; ++i)
          piece[i]->computed = true;
        if (wanted && !callback(piece[last], false, user_data)) break;
        first = last;
      }
    }
  }
  bool ask(Node* node) const { return callback != nullptr && callback(node, true, user_data); }
};

Node& node(const void* n) {
  return *static_cast<Node*>(const_cast<void*>(n));
}

EvalFunctions functions() {
  EvalFunctions f{};
  f.set_eval_callback = [](void* sched, EvalCallback callback, void* user_data) {
    *static_cast<Scheduler*>(sched) = {callback, user_data};
  };
  f.sched_get_tensor_backend = [](void*, void* n) -> void* { return node(n).device; };
  f.get_device = [](void* backend) { return backend; };
  f.dev_type = [](void* device) { return static_cast<Device*>(device)->type; };
  f.tensor_get = [](const void* n, void* into, std::size_t offset, std::size_t bytes) {
    EXPECT_TRUE(node(n).computed) << node(n).name << " is read before it is computed";
    ASSERT_LE(offset + bytes, node(n).data.size() * sizeof(std::int32_t));
    std::memcpy(into, reinterpret_cast<const char*>(node(n).data.data()) + offset, bytes);
  };
  f.graph_get_tensor = [](const void* graph, const char* name) -> void* {
    for (Node* weight : static_cast<const Graph*>(graph)->weights) {
      if (weight->name == name) return weight;
    }
    return nullptr;
  };
  f.get_name = [](const void* n) { return node(n).name.c_str(); };
  f.get_data = [](const void* n) -> void* { return node(n).data.data(); };
  f.op_desc = [](const void* n) { return node(n).op.c_str(); };
  f.nbytes = [](const void* n) {
    const Node& t = node(n);
    return ((static_cast<std::size_t>(t.tokens) - 1) * t.row + static_cast<std::size_t>(t.used)) *
           sizeof(std::int32_t);
  };
  f.element_size = [](const void* n) { return node(n).element; };
  f.nelements = [](const void* n) { return node(n).used * node(n).tokens; };
  f.nrows = [](const void* n) { return node(n).tokens; };
  f.is_contiguous_rows = [](const void*) { return true; };
  return f;
}

struct Told {
  std::int32_t layer = -1;
  const void* stack = nullptr;
  std::vector<std::vector<std::int32_t>> tokens;
};

struct Listener final : RoutingListener {
  std::vector<std::string> stack_names() override {
    std::vector<std::string> names;
    for (const auto& [weight, layer] : known)
      names.push_back(weight->name);
    return names;
  }
  Stack stack_at(const void* address) override {
    for (const auto& [weight, layer] : known) {
      if (weight->data.data() == address) return {layer, 8, address};
    }
    return {};
  }
  void routed(const resid_routed& call) noexcept override {
    Told t;
    t.stack = call.stack;
    t.layer = stack_at(call.stack).layer;
    for (std::uint32_t row = 0; row < call.tokens; ++row) {
      auto& ids = t.tokens.emplace_back(call.used);
      for (std::uint32_t u = 0; u < call.used; ++u) {
        std::memcpy(
            &ids[u],
            static_cast<const char*>(call.ids) + row * call.token_stride + u * call.used_stride,
            sizeof(std::int32_t));
      }
    }
    told.push_back(std::move(t));
  }
  std::vector<std::pair<Node*, std::int32_t>> known;
  std::vector<Told> told;
};

// A program's callback that writes down its calls.
struct Program {
  static bool call(void* n, bool ask, void* self) {
    auto& p = *static_cast<Program*>(self);
    p.calls.push_back((ask ? "? " : "! ") + node(n).name);
    if (ask) return std::find(p.wants.begin(), p.wants.end(), node(n).name) != p.wants.end();
    if (!p.rewrite.empty()) node(n).data = p.rewrite;
    return node(n).name != p.ends_at;
  }
  std::vector<std::string> wants{};
  std::string ends_at{};
  std::vector<std::int32_t> rewrite{};
  std::vector<std::string> calls{};
};

class EvalRoutingTest : public testing::Test {
 protected:
  void SetUp() override {
    listener_.known = {{&gate0_, 0}, {&gate1_, 1}};
    graph_.weights = {&gate0_, &gate1_};
    graph_.pieces = {{&norm_, &topk0_, &weights0_, &product0_, &topk1_, &product1_, &out_}};
    for (const auto& piece : graph_.pieces) {
      for (Node* n : piece)
        n->device = &cpu_;
    }
  }
  void run(Program* program = nullptr) {
    const EvalCallback callback = program == nullptr ? nullptr : &Program::call;
    sched_ = {callback, program};
    routing_.program_has_set(&sched_, callback, program);
    routing_.graph_is_ready(&sched_, &graph_);
    sched_.compute(graph_);
  }
  // What the program's callback sees without us.
  std::vector<std::string> alone(Program program) {
    Scheduler plain{&Program::call, &program};
    plain.compute(graph_);
    return program.calls;
  }

  Device cpu_{0};
  Device gpu_{1};
  Node gate0_{.name = "blk.0.ffn_gate_exps.weight", .data = {0}};
  Node gate1_{.name = "blk.1.ffn_gate_exps.weight", .data = {0}};
  Node norm_{.name = "ffn_norm-0"};
  Node topk0_{.name = "ffn_moe_topk-0", .data = {5, 2}, .used = 2, .row = 2};
  Node weights0_{.name = "ffn_moe_weights-0"};
  Node product0_{.name = "ffn_moe_gate-0", .op = "MUL_MAT_ID"};
  Node topk1_{.name = "ffn_moe_topk-1", .data = {7, 0}, .used = 2, .row = 2};
  Node product1_{.name = "ffn_moe_gate-1", .op = "MUL_MAT_ID"};
  Node out_{.name = "l_out-1"};
  Graph graph_;
  Listener listener_;
  Scheduler sched_;
  EvalRouting routing_{functions(), listener_};
};

TEST_F(EvalRoutingTest, every_layer_is_told_of_once) {
  run();
  ASSERT_EQ(listener_.told.size(), 2U);
  EXPECT_EQ(listener_.told[0].layer, 0);
  EXPECT_EQ(listener_.told[0].stack, gate0_.data.data());
  EXPECT_EQ(listener_.told[0].tokens, (std::vector<std::vector<std::int32_t>>{{5, 2}}));
  EXPECT_EQ(listener_.told[1].layer, 1);
  EXPECT_EQ(listener_.told[1].tokens, (std::vector<std::vector<std::int32_t>>{{7, 0}}));
  sched_.compute(graph_);  // a graph that is used again
  EXPECT_EQ(listener_.told.size(), 4U);
}

TEST_F(EvalRoutingTest, rows_that_lie_apart_are_read_as_rows) {
  topk0_.data = {5, 2, 90, 91, 3, 1, 92, 93, 4, 6};
  topk0_.tokens = 3;
  topk0_.row = 4;
  run();
  ASSERT_EQ(listener_.told.size(), 2U);
  EXPECT_EQ(listener_.told[0].tokens,
            (std::vector<std::vector<std::int32_t>>{{5, 2}, {3, 1}, {4, 6}}));
}

TEST_F(EvalRoutingTest, what_are_no_numbers_of_32_bits_is_not_told) {
  topk0_.element = 2;
  run();
  ASSERT_EQ(listener_.told.size(), 1U);
  EXPECT_EQ(listener_.told[0].layer, 1);
}

TEST_F(EvalRoutingTest, a_name_that_is_only_like_it_is_not_wanted) {
  topk0_.name = "ffn_moe_topk-0 (view)";
  topk1_.name = "ffn_moe_topk-";
  run();
  EXPECT_TRUE(listener_.told.empty());
}

TEST_F(EvalRoutingTest, the_programs_callback_sees_its_own_calls_and_no_others) {
  for (const std::vector<std::string>& wants :
       {std::vector<std::string>{},
        {"ffn_moe_topk-0"},
        {"ffn_moe_weights-0", "l_out-1"},
        {"ffn_norm-0", "ffn_moe_topk-0", "ffn_moe_topk-1", "ffn_moe_gate-1"}}) {
    Program program{.wants = wants};
    const auto expected = alone(program);
    listener_.told.clear();
    run(&program);
    EXPECT_EQ(program.calls, expected);
    EXPECT_EQ(listener_.told.size(), 2U);
  }
}

TEST_F(EvalRoutingTest, when_the_program_ends_the_computation_it_ends_and_nothing_is_told) {
  Program program{.wants = {"ffn_moe_topk-0", "ffn_moe_weights-0"}, .ends_at = "ffn_moe_topk-0"};
  const auto expected = alone(program);
  run(&program);
  EXPECT_EQ(program.calls, expected);
  EXPECT_FALSE(weights0_.computed);
  EXPECT_TRUE(listener_.told.empty());
}

TEST_F(EvalRoutingTest, what_the_program_makes_of_the_choice_is_what_is_told) {
  Program program{.wants = {"ffn_moe_topk-0"}, .rewrite = {1, 4}};
  run(&program);
  ASSERT_EQ(listener_.told.size(), 2U);
  EXPECT_EQ(listener_.told[0].tokens, (std::vector<std::vector<std::int32_t>>{{1, 4}}));
}

TEST_F(EvalRoutingTest, a_graph_of_another_model_is_left_alone) {
  Node elsewhere{.name = gate0_.name, .data = {0}};  // the same name, in memory of its own
  graph_.weights = {&elsewhere};
  Program program;
  run(&program);
  EXPECT_TRUE(listener_.told.empty());
  EXPECT_EQ(sched_.callback, &Program::call);
  EXPECT_EQ(sched_.user_data, &program);
}

TEST_F(EvalRoutingTest, the_programs_callback_comes_back_when_experts_are_no_longer_read) {
  Program program;
  run(&program);
  EXPECT_NE(sched_.callback, &Program::call);
  graph_.weights.clear();
  routing_.graph_is_ready(&sched_, &graph_);
  EXPECT_EQ(sched_.callback, &Program::call);
  EXPECT_EQ(sched_.user_data, &program);
}

TEST_F(EvalRoutingTest, a_callback_that_is_set_behind_the_graph_is_chained_as_well) {
  run();
  Program program{.wants = {"l_out-1"}};
  sched_ = {&Program::call, &program};
  routing_.program_has_set(&sched_, &Program::call, &program);
  listener_.told.clear();
  const auto expected = alone(program);
  sched_.compute(graph_);
  EXPECT_EQ(program.calls, expected);
  EXPECT_EQ(listener_.told.size(), 2U);
}

TEST_F(EvalRoutingTest, a_scheduler_that_was_freed_is_forgotten) {
  Program program;
  run(&program);
  routing_.forget(&sched_);
  sched_ = {};  // another one at the same place, whose program sets no callback
  routing_.graph_is_ready(&sched_, &graph_);
  EXPECT_EQ(sched_.callback, nullptr);
}

// The router on a GPU, as with `--n-cpu-moe`: pieces end where the device changes.
class EvalRoutingBesideAGpu : public EvalRoutingTest {
 protected:
  void SetUp() override {
    EvalRoutingTest::SetUp();
    graph_.pieces = {{&norm_, &topk0_, &weights0_}, {&product0_}, {&topk1_}, {&product1_}, {&out_}};
    for (Node* n : {&norm_, &topk0_, &weights0_, &topk1_, &out_})
      n->device = &gpu_;
  }
};

TEST_F(EvalRoutingBesideAGpu, no_stop_is_made_inside_the_gpus_piece) {
  run();
  ASSERT_EQ(listener_.told.size(), 2U);
  EXPECT_EQ(listener_.told[0].layer, 0);
  EXPECT_EQ(listener_.told[1].layer, 1);
  EXPECT_FALSE(sched_.ask(&topk0_));
}

TEST_F(EvalRoutingBesideAGpu, the_programs_callback_sees_its_own_calls_and_no_others) {
  Program program{.wants = {"ffn_moe_topk-0", "ffn_moe_gate-1"}};
  const auto expected = alone(program);
  run(&program);
  EXPECT_EQ(program.calls, expected);
  EXPECT_EQ(listener_.told.size(), 2U);
}

TEST_F(EvalRoutingBesideAGpu, a_product_that_the_gpu_computes_itself_is_not_told_of) {
  product0_.device = &gpu_;
  run();
  ASSERT_EQ(listener_.told.size(), 1U);
  EXPECT_EQ(listener_.told[0].layer, 1);
}

}  // namespace
}  // namespace resid::ggml

// A libllama program with an evaluation callback of its own, for the tests: it prints what it
// computed and a digest of every call that its callback got and every byte that it was shown.
//
//   observe --model FILE [--beside FILE] [--prompt TEXT] [-n TOKENS] [-t THREADS]
//           [--plugin FILE]    load this CPU plug-in by itself, so that llama.cpp loads none
//           [--callback]       set the callback
//           [--end-at K]       end the computation at the K-th node that is shown
//
// `--beside`: a second model takes turns with the first, token by token.

#include <CLI/CLI.hpp>

#include <dlfcn.h>
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "observe: %s\n", what);
  std::exit(1);
}

class Digest {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i)
      value_ = (value_ ^ at[i]) * 0x100000001b3ULL;
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

struct Observer {
  std::uint64_t asks = 0;
  std::uint64_t shown = 0;
  std::uint64_t end_at = 0;
  Digest calls;
  Digest data;
  std::vector<char> bytes;
};

// Among them half of the nodes that a sensor for routing wants as well, and others between them.
bool wants(std::string_view name) {
  if (name.starts_with("ffn_moe_topk-")) return (name.back() - '0') % 2 == 0;
  return name.starts_with("l_out-") || name.starts_with("ffn_moe_weights-");
}

bool observe(ggml_tensor* tensor, bool ask, void* user_data) {
  auto& o = *static_cast<Observer*>(user_data);
  const std::string_view name = ggml_get_name(tensor);
  o.calls.add(ask ? "?" : "!");
  o.calls.add(name);
  if (ask) {
    ++o.asks;
    return wants(name);
  }
  if (!wants(name)) fail("a node is shown that was not asked for");
  o.bytes.resize(ggml_nbytes(tensor));
  ggml_backend_tensor_get(tensor, o.bytes.data(), 0, o.bytes.size());
  // A row of experts lies in a longer one, the rest of which nobody reads.
  if (name.starts_with("ffn_moe_topk-")) {
    const std::size_t row = static_cast<std::size_t>(tensor->ne[0]) * sizeof(std::int32_t);
    for (std::int64_t t = 0; t < tensor->ne[1]; ++t)
      o.data.add(o.bytes.data() + static_cast<std::size_t>(t) * tensor->nb[1], row);
  } else {
    o.data.add(o.bytes.data(), o.bytes.size());
  }
  return ++o.shown != o.end_at;
}

void load_plugins(const std::string& plugin) {
  if (!plugin.empty()) {
    if (ggml_backend_load(plugin.c_str()) == nullptr) fail("the plug-in cannot be loaded");
    return;
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&ggml_backend_load_all_from_path), &info) == 0) return;
  const std::string path = info.dli_fname;
  ggml_backend_load_all_from_path(path.substr(0, path.rfind('/') + 1).c_str());
}

// One model and its text; greedy.
class Writer {
 public:
  Writer(const std::string& file, const std::string& prompt, int n, int threads,
         Observer* observer) {
    llama_model_params model_params = llama_model_default_params();
    model_params.use_extra_bufts = false;
    model_ = llama_model_load_from_file(file.c_str(), model_params);
    if (model_ == nullptr) fail("the model cannot be loaded");
    vocab_ = llama_model_get_vocab(model_);
    prompt_.resize(prompt.size() + 8);
    const int got = llama_tokenize(vocab_, prompt.data(), static_cast<int>(prompt.size()),
                                   prompt_.data(), static_cast<int>(prompt_.size()), true, true);
    if (got <= 0) fail("the prompt gives no tokens");
    prompt_.resize(static_cast<std::size_t>(got));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(got + n);
    params.n_threads = threads;
    params.n_threads_batch = threads;
    if (observer != nullptr) {
      params.cb_eval = observe;
      params.cb_eval_user_data = observer;
    }
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) fail("there is no context");
    batch_ = llama_batch_get_one(prompt_.data(), got);
  }
  ~Writer() {
    llama_free(context_);
    llama_model_free(model_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  llama_token next() {
    if (llama_decode(context_, batch_) != 0) fail("decoding failed");
    const float* logits = llama_get_logits_ith(context_, -1);
    token_ = static_cast<llama_token>(
        std::max_element(logits, logits + llama_vocab_n_tokens(vocab_)) - logits);
    batch_ = llama_batch_get_one(&token_, 1);
    return token_;
  }

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  const llama_vocab* vocab_ = nullptr;
  std::vector<llama_token> prompt_;
  llama_token token_ = 0;
  llama_batch batch_{};
};

}  // namespace

int main(int argc, char** argv) {
  std::string model;
  std::string beside;
  std::string prompt = "The kernel";
  std::string plugin;
  int n = 16;
  int threads = 1;
  bool callback = false;
  Observer observer;
  CLI::App app("Shows what an evaluation callback sees", "observe");
  app.add_option("--model", model)->required();
  app.add_option("--beside", beside);
  app.add_option("--prompt", prompt);
  app.add_option("--plugin", plugin);
  app.add_option("-n", n);
  app.add_option("-t", threads);
  app.add_flag("--callback", callback);
  app.add_option("--end-at", observer.end_at);
  CLI11_PARSE(app, argc, argv);

  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  load_plugins(plugin);
  llama_backend_init();
  {
    Observer* const seen = callback ? &observer : nullptr;
    Writer first(model, prompt, n, threads, seen);
    if (beside.empty()) {
      for (int i = 0; i < n; ++i)
        std::printf("%d ", first.next());
    } else {
      Writer second(beside, prompt, n, threads, seen);
      for (int i = 0; i < n; ++i) {
        std::printf("%d ", first.next());
        std::printf("%d ", second.next());
      }
    }
  }
  std::printf("\nasked %llu shown %llu calls %016llx data %016llx\n",
              static_cast<unsigned long long>(observer.asks),
              static_cast<unsigned long long>(observer.shown),
              static_cast<unsigned long long>(observer.calls.value()),
              static_cast<unsigned long long>(observer.data.value()));
  llama_backend_free();
  return 0;
}

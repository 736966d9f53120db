// A plain llama.h program: a prompt in, its continuation out. It knows nothing of residctl; it is
// what the demo and the tests put under the pager, so its text on stdout must depend on the weights
// and the arguments alone. Timings go to stderr and, with --timings, to a JSON file.

#include <CLI/CLI.hpp>

#include <dlfcn.h>
#include <llama.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

struct Options {
  std::string model;
  std::string prompt;
  std::string timings;
  std::string follow;
  int n = 64;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  int context = 0;  // tokens; 0 = as many as prompt and continuation need
  unsigned seed = 1;
  float temp = 0.0F;  // 0 = greedy
  float top_p = 1.0F;
  float repeat_penalty = 1.0F;
  bool repack = true;
};

[[noreturn]] void fail(int code, const std::string& what, const std::string& why,
                       const std::string& todo) {
  std::fprintf(stderr, "generate: %s : %s : %s\n", what.c_str(), why.c_str(), todo.c_str());
  std::exit(code);
}

Options parse(int argc, char** argv) {
  Options o;
  // The same switch, by the same name and values, as in llama.cpp's own programs.
  const char* repack = std::getenv("LLAMA_ARG_REPACK");
  const std::string_view value = repack == nullptr ? "" : repack;
  bool no_repack = value == "0" || value == "false" || value == "off" || value == "disabled";

  CLI::App app(
      "Prints the continuation of a prompt, alone, on stdout; greedy unless --temp is above 0",
      "generate");
  app.add_option("-m,--model", o.model, "GGUF file")->required();
  app.add_option("-p,--prompt", o.prompt, "text to continue")->required();
  app.add_option("-n", o.n, "tokens to generate")->check(CLI::Range(1, 1 << 20));
  app.add_option("-t", o.threads, "threads")->check(CLI::Range(1, 512));
  app.add_option("-c", o.context, "context in tokens; 0 = as needed")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--seed", o.seed, "for --temp above 0");
  app.add_option("--temp", o.temp, "temperature")->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-p", o.top_p, "nucleus")->check(CLI::Range(0.0, 1.0));
  app.add_option("--repeat-penalty", o.repeat_penalty, "1 = none")->check(CLI::Range(0.01, 100.0));
  app.add_option("--timings", o.timings, "JSON file to write the timings and token ids to");
  app.add_option(
      "--follow", o.follow,
      "go on with the words of this text file instead of those that come out, in windows "
      "of -c tokens; for what depends on real text");
  app.add_flag("--no-repack", no_repack, "compute on the weights as they are in the file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    fail(2, "arguments", error.what(), "see generate --help");
  }
  o.repack = !no_repack;
  return o;
}

// Where CPU code is built as plug-ins they lie beside libggml, while ggml itself looks only beside
// the program and in the current folder.
void load_backends() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&ggml_backend_load_all_from_path), &info) != 0 &&
      info.dli_fname != nullptr) {
    const std::string path = info.dli_fname;
    ggml_backend_load_all_from_path(path.substr(0, path.rfind('/') + 1).c_str());
  }
  if (ggml_backend_dev_count() == 0) {
    fail(1, "llama.cpp", "it offers no device to compute on",
         "check that libggml-cpu lies beside libggml");
  }
}

std::vector<llama_token> tokenize(const llama_vocab* vocab, const std::string& text) {
  const int length = static_cast<int>(text.size());
  std::vector<llama_token> tokens(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), length, tokens.data(),
                               static_cast<int>(tokens.size()), true, true);
  if (n <= 0) fail(2, "--prompt", "it gives no tokens", "use another text");
  tokens.resize(static_cast<std::size_t>(n));
  return tokens;
}

std::vector<llama_token> read_tokens(const llama_vocab* vocab, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail(2, path, "it cannot be read", "name a text file");
  return tokenize(vocab, text);
}

// The bytes of a token; nothing for special ones.
std::string piece(const llama_vocab* vocab, llama_token token) {
  std::string bytes(64, '\0');
  int n =
      llama_token_to_piece(vocab, token, bytes.data(), static_cast<int>(bytes.size()), 0, false);
  if (n < 0) {
    bytes.resize(static_cast<std::size_t>(-n));
    n = llama_token_to_piece(vocab, token, bytes.data(), static_cast<int>(bytes.size()), 0, false);
  }
  bytes.resize(static_cast<std::size_t>(std::max(n, 0)));
  return bytes;
}

using Sampler = std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)>;

Sampler make_sampler(const Options& o, const llama_vocab* vocab) {
  Sampler chain(llama_sampler_chain_init(llama_sampler_chain_default_params()),
                &llama_sampler_free);
  if (o.repeat_penalty != 1.0F) {
    llama_sampler_chain_add(
        chain.get(), llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), 64, o.repeat_penalty,
                                                  0.0F, 0.0F));
  }
  if (o.temp > 0.0F) {
    llama_sampler_chain_add(chain.get(), llama_sampler_init_top_p(o.top_p, 1));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_temp(o.temp));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_dist(o.seed));
  } else {
    llama_sampler_chain_add(chain.get(), llama_sampler_init_greedy());
  }
  return chain;
}

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Timings {
  double load_s = 0;
  double ttft_s = 0;  // from the prompt's first token going in to the first token coming out
  double rest_s = 0;  // for the tokens after the first
  std::vector<llama_token> ids;
  std::vector<double> token_s;                  // each token's own
  std::vector<std::uint64_t> token_read_bytes;  // read from disks meanwhile, by all threads

  double tok_s() const {
    return ids.size() > 1 && rest_s > 0 ? static_cast<double>(ids.size() - 1) / rest_s : 0;
  }
};

// What this process has had read from disks so far (/proc/PID/io, proc(5)); 0 where that is hidden.
std::uint64_t disk_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;) {
    std::uint64_t value = 0;
    io >> value;
    if (key == "read_bytes:") return value;
  }
  return 0;
}

template <class T>
std::string list(const std::vector<T>& values) {
  std::string text;
  for (const T value : values)
    text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

void report(const Timings& t, const std::string& file) {
  std::fprintf(stderr, "generate: load %.2f s, ttft %.3f s, %zu tokens, %.2f tok/s\n", t.load_s,
               t.ttft_s, t.ids.size(), t.tok_s());
  if (file.empty()) return;
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) fail(1, file, std::strerror(errno), "name a file that can be written");
  const int written = std::fprintf(
      out,
      "{\"load_s\":%.6f,\"ttft_s\":%.6f,\"tokens\":%zu,\"tok_s\":%.3f,\"token_ids\":[%s],"
      "\"token_s\":[%s],\"token_read_bytes\":[%s]}\n",
      t.load_s, t.ttft_s, t.ids.size(), t.tok_s(), list(t.ids).c_str(), list(t.token_s).c_str(),
      list(t.token_read_bytes).c_str());
  if (std::fclose(out) != 0 || written < 0) fail(1, file, std::strerror(errno), "free some space");
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  load_backends();

  Timings t;
  const auto start = std::chrono::steady_clock::now();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = o.repack;
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(o.model.c_str(), model_params), &llama_model_free);
  if (!model) fail(1, o.model, "llama.cpp cannot load it", "its own message is above");
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  std::vector<llama_token> prompt = tokenize(vocab, o.prompt);

  std::vector<llama_token> text;
  if (!o.follow.empty()) text = read_tokens(vocab, o.follow);
  const std::size_t window = o.context != 0 ? static_cast<std::size_t>(o.context) : 512;
  const std::size_t all = prompt.size() + static_cast<std::size_t>(o.n);
  const std::size_t needed = text.empty() ? all : std::min(all, std::max(window, prompt.size()));
  if (o.context != 0 && static_cast<std::size_t>(o.context) < needed) {
    fail(2, "-c " + std::to_string(o.context), std::to_string(needed) + " tokens are needed",
         "raise -c or lower -n");
  }
  llama_context_params context_params = llama_context_default_params();
  context_params.n_ctx =
      o.context != 0 ? static_cast<std::uint32_t>(o.context) : static_cast<std::uint32_t>(needed);
  context_params.n_batch = static_cast<std::uint32_t>(prompt.size());
  context_params.n_threads = o.threads;
  context_params.n_threads_batch = o.threads;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), context_params), &llama_free);
  if (!context) fail(1, "llama.cpp", "it cannot make a context", "lower -n or -c");
  t.load_s = since(start);

  const Sampler sampler = make_sampler(o, vocab);
  for (const llama_token token : prompt)
    llama_sampler_accept(sampler.get(), token);
  auto lap = std::chrono::steady_clock::now();
  auto token_began = lap;
  std::uint64_t read_before = disk_bytes();
  llama_batch batch = llama_batch_get_one(prompt.data(), static_cast<int>(prompt.size()));
  llama_token token = 0;
  std::size_t in_window = prompt.size();
  while (t.ids.size() < static_cast<std::size_t>(o.n)) {
    if (llama_decode(context.get(), batch) != 0)
      fail(1, "llama.cpp", "decoding failed", "its own message is above");
    token = llama_sampler_sample(sampler.get(), context.get(), -1);
    if (t.ids.empty()) {
      t.ttft_s = since(lap);
      lap = std::chrono::steady_clock::now();
    }
    if (!text.empty()) {
      if (t.ids.size() == text.size()) break;
      token = text[t.ids.size()];
      if (in_window++ == needed) {
        llama_memory_clear(llama_get_memory(context.get()), true);
        in_window = 1;
      }
    } else if (llama_vocab_is_eog(vocab, token)) {
      break;
    }
    t.ids.push_back(token);
    t.token_s.push_back(since(token_began));
    const std::uint64_t read = disk_bytes();
    t.token_read_bytes.push_back(read - read_before);
    read_before = read;
    token_began = std::chrono::steady_clock::now();
    const std::string bytes = piece(vocab, token);
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
    batch = llama_batch_get_one(&token, 1);
  }
  t.rest_s = since(lap);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail(1, "stdout", std::strerror(errno), "free some space");
  report(t, o.timings);
  return 0;
}

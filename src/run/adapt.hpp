#pragma once
// What has to change in a program's command line and environment so that it maps its model and
// reads the mapping.

#include <functional>
#include <string>
#include <vector>

namespace resid::run {

// True when the program is one of llama.cpp's, by its file name.
bool is_llama(const std::string& program);

struct Adapted {
  std::vector<std::string> arguments;
  std::vector<std::string> reasons;  // one line for each change
};

// `arguments[0]` is the program. Only llama.cpp programs are touched: what makes them read() the
// model instead of mapping it, or copy it out of the mapping, is left out. Facts: common/arg.cpp
// and tools/llama-bench of the pinned llama.cpp, where `--mlock`, `--direct-io` and their negations
// all replace the load mode and so end the mapping.
Adapted adapt_arguments(std::vector<std::string> arguments);

// A change of one environment variable.
struct Change {
  std::string name;
  std::string value;
  bool remove = false;
  std::string reason;  // empty: not worth telling
};

// What of ours enters a program.
struct Libraries {
  std::string preload;
  std::string ggml_backend;  // empty: none
};

// The changes for a program of any name: scripts start llama.cpp programs too. `get` as ::getenv.
// `aside`: the model will be mapped plainly, and may be copied into another layout as ever.
std::vector<Change> adapt_environment(const std::function<const char*(const char*)>& get,
                                      const Libraries& libraries, const std::string& run_page,
                                      bool aside = false);

// LD_PRELOAD with `library` in front, behind nothing: what was there stays in effect. The list may
// be separated by spaces or colons (ld.so(8)).
std::string merge_preload(const char* existing, const std::string& library);

}  // namespace resid::run

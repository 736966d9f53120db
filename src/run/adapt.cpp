#include "run/adapt.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "control/run_page.hpp"

namespace resid::run {
namespace {

// Load modes that map the file and read the mapping.
bool maps(std::string_view mode) {
  return mode == "auto" || mode == "mmap" || mode == "mmap+mlock";
}

bool all_map(const std::string& modes) {
  std::istringstream list(modes);
  for (std::string mode; std::getline(list, mode, ',');) {
    if (!maps(mode)) return false;
  }
  return true;
}

// llama.cpp accepts underscores in long options.
std::string canonical(std::string option) {
  if (option.starts_with("--")) std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

bool truthy(std::string_view value) {
  return value == "on" || value == "enabled" || value == "true" || value == "1";
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Options whose value is free text or a path and must not be taken for an option.
bool takes_text(const std::string& option) {
  static constexpr std::array<std::string_view, 10> kOptions{
      "-m",   "--model",         "-p", "--prompt", "-f", "--file",
      "-sys", "--system-prompt", "-o", "--output"};
  return std::find(kOptions.begin(), kOptions.end(), option) != kOptions.end();
}

}  // namespace

bool is_llama(const std::string& program) {
  return base_name(program).starts_with("llama");
}

Adapted adapt_arguments(std::vector<std::string> arguments) {
  Adapted out;
  if (arguments.empty() || !is_llama(arguments[0])) {
    out.arguments = std::move(arguments);
    return out;
  }
  // llama-bench gives these options a value; the other programs do not.
  const bool bench = base_name(arguments[0]).starts_with("llama-bench");
  const auto drop = [&](std::size_t first, std::size_t count, std::string_view why) {
    std::string text = arguments[first];
    if (count > 1) text += " " + arguments[first + 1];
    out.reasons.push_back(fmt::format("{} is left out: {}", text, why));
  };
  constexpr std::string_view kReads = "the model would be read into memory of its own, not mapped";
  constexpr std::string_view kLocks = "it replaces the mapping; the budget decides what stays";
  constexpr std::string_view kRepacks = "the weights would be copied out of the mapping";

  out.arguments.push_back(arguments[0]);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string option = canonical(arguments[i]);
    const bool has_value = i + 1 < arguments.size();
    if (takes_text(option) && has_value) {
      out.arguments.push_back(arguments[i]);
      out.arguments.push_back(arguments[++i]);
    } else if ((option == "-lm" || option == "--load-mode") && has_value &&
               !all_map(arguments[i + 1])) {
      drop(i++, 2, kReads);
    } else if (bench && (option == "-mmp" || option == "--mmap") && has_value) {
      if (arguments[i + 1].find('0') != std::string::npos) {
        drop(i++, 2, kReads);
      } else {
        out.arguments.push_back(arguments[i]);
      }
    } else if (option == "-dio" || option == "--direct-io") {
      const std::size_t count = bench && has_value ? 2 : 1;
      drop(i, count, kReads);
      i += count - 1;
    } else if (option == "--no-mmap" || option == "-ndio" || option == "--no-direct-io") {
      drop(i, 1, kReads);
    } else if (option == "--mlock") {
      drop(i, 1, kLocks);
    } else if (option == "--repack") {
      drop(i, 1, kRepacks);
    } else {
      out.arguments.push_back(arguments[i]);
    }
  }
  return out;
}

std::string merge_preload(const char* existing, const std::string& library) {
  std::string out = library;
  std::string rest = existing == nullptr ? "" : existing;
  std::replace(rest.begin(), rest.end(), ' ', ':');
  std::istringstream list(rest);
  for (std::string entry; std::getline(list, entry, ':');) {
    if (!entry.empty() && entry != library) out += ":" + entry;
  }
  return out;
}

std::vector<Change> adapt_environment(const std::function<const char*(const char*)>& get,
                                      const Libraries& libraries, const std::string& run_page,
                                      bool aside) {
  std::vector<Change> out;
  out.push_back({"LD_PRELOAD", merge_preload(get("LD_PRELOAD"), libraries.preload), false, {}});
  out.push_back({kRunPageVariable, run_page, false, {}});
  // Any value of LLAMA_ARG_NO_X, even 0, means "X is off" (common/arg.cpp).
  const auto remove = [&](const char* name, auto&& harmful) {
    const char* value = get(name);
    if (value == nullptr || !harmful(std::string(value))) return;
    out.push_back(
        {.name = name,
         .value = {},
         .remove = true,
         .reason = fmt::format("{}={} is left out: the model would not be mapped", name, value)});
  };
  const auto always = [](const std::string&) { return true; };
  remove("LLAMA_ARG_NO_MMAP", always);
  remove("LLAMA_ARG_MMAP", [](const std::string& value) { return !truthy(value); });
  remove("LLAMA_ARG_DIO", always);
  remove("LLAMA_ARG_NO_DIO", always);
  remove("LLAMA_ARG_MLOCK", [](const std::string& value) { return truthy(value); });
  remove("LLAMA_ARG_LOAD_MODE", [](const std::string& value) { return !maps(value); });
  if (aside) return out;
  // ggml loads one backend from outside, by this variable; where the user has one, it is his.
  if (!libraries.ggml_backend.empty() && get("GGML_BACKEND_PATH") == nullptr) {
    out.push_back({"GGML_BACKEND_PATH", libraries.ggml_backend, false, {}});
  }
  const char* repack = get("LLAMA_ARG_REPACK");
  const bool wanted = repack != nullptr && truthy(repack) && get("LLAMA_ARG_NO_REPACK") == nullptr;
  out.push_back({.name = "LLAMA_ARG_REPACK",
                 .value = "0",
                 .remove = false,
                 .reason = wanted ? "LLAMA_ARG_REPACK is turned off: the weights would be copied "
                                    "out of the mapping"
                                  : ""});
  return out;
}

}  // namespace resid::run

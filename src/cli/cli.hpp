#pragma once
// The frame of the command line. A verb lives in one file, registers itself with one function and
// is listed once, in main.cpp:
//
//   void add_probe(Frame& frame) {
//     struct Options { std::string path; };
//     auto options = std::make_shared<Options>();
//     Verb& verb = frame.add("probe", "Measure what a disk really does");
//     verb.app().add_option("PATH", options->path, "File or folder")->required();
//     const Setting& workers = verb.setting("fetch-workers", count_value(1, 64), "4", "Threads");
//     verb.example("residctl probe /models", "measure the disk that holds /models");
//     verb.action([options, &workers](const Context& context) -> Result<int> { ... return 0; });
//   }
//
// Arguments that belong to one call (a path, a seed) are plain CLI11 options. What a user would
// want to set once and for all is a Setting: it may also come from the environment and from
// residctl.toml, and knows its source.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/status.hpp"
#include "cli/settings.hpp"

namespace resid::cli {

// What a verb is told besides its own options.
struct Context {
  bool json = false;                 // one document on stdout, everything else on stderr
  std::vector<std::string> program;  // what stood behind `--`; only for Verb::takes_program()
};

class Verb {
 public:
  Verb(CLI::App& app, bool& json);
  Verb(const Verb&) = delete;
  Verb& operator=(const Verb&) = delete;

  CLI::App& app() { return app_; }

  // Adds `--key` and returns where its value will be, once the command line has been read. The same
  // key in two verbs must mean the same. `platform` as in SettingSpec.
  const Setting& setting(std::string key, ValueKind kind, std::string built_in,
                         const std::string& description,
                         decltype(SettingSpec::platform) platform = {});

  // A command for the end of --help, and what it does.
  Verb& example(const std::string& command, const std::string& what);

  // Everything behind the first `--` is another program's command line: CLI11 never sees it, so
  // nothing in it is mistaken for an option or a verb. It is handed over in Context::program.
  Verb& takes_program() {
    takes_program_ = true;
    return *this;
  }

  // What the verb does; the value is the exit code. A failure is printed and gives the exit code
  // of its status.
  void action(std::function<Result<int>(const Context&)> act) { act_ = std::move(act); }

  // All settings of the verb, in the order of their addition, for explain_text().
  std::vector<const Setting*> settings() const;

 private:
  friend class Frame;
  struct Slot {
    SettingSpec spec;
    std::optional<std::string> command_line;
    bool flag = false;
    Setting setting;
  };

  CLI::App& app_;
  std::deque<Slot> slots_;  // addresses must last
  std::string examples_;
  bool takes_program_ = false;
  std::function<Result<int>(const Context&)> act_;
};

class Frame {
 public:
  Frame();

  Verb& add(const std::string& name, const std::string& description);
  CLI::App& app() { return app_; }

  // Reads the command line, settles the settings, runs the verb. Returns the exit code; failures
  // are on stderr as `residctl: what : why : what to do`.
  int run(int argc, const char* const* argv);

 private:
  Result<int> dispatch(std::vector<std::string> args);
  Result<void> settle(Verb& verb);
  Verb* find(const std::string& name);
  Failure explain(const CLI::ParseError& error);
  std::vector<std::string> known_keys() const;

  CLI::App app_;
  Context context_;
  std::vector<std::unique_ptr<Verb>> verbs_;
};

// The one of `words` that `word` was probably meant to be, or nothing.
std::optional<std::string> nearest(const std::string& word, std::span<const std::string> words);

// The verbs.
void add_completion(Frame& frame);
void add_inspect(Frame& frame);
void add_opt(Frame& frame);
void add_replay(Frame& frame);
void add_run(Frame& frame);
void add_sweep(Frame& frame);
void add_synth(Frame& frame);

}  // namespace resid::cli

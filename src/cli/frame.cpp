#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/cli.hpp"

namespace resid::cli {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// CLI11 begins its messages with a capital, or with the name of an argument, which must stay.
std::string first_lower(std::string text) {
  const auto lower = [](char c) { return static_cast<char>(c - 'A' + 'a'); };
  const bool word = text.size() > 1 && text[1] >= 'a' && text[1] <= 'z';
  if (word && text[0] >= 'A' && text[0] <= 'Z') text[0] = lower(text[0]);
  return text;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& n : option->get_lnames())
      names.push_back("--" + n);
  }
  return names;
}

}  // namespace

std::optional<std::string> nearest(const std::string& word, std::span<const std::string> words) {
  std::optional<std::string> best;
  // Half of the letters wrong is no slip of the finger.
  std::size_t limit = word.size() / 2;
  for (const std::string& candidate : words) {
    if (!word.empty() && candidate.starts_with(word)) return candidate;
    const std::size_t d = edit_distance(word, candidate);
    if (d > limit || (best && d == limit)) continue;
    limit = d;
    best = candidate;
  }
  return best;
}

Verb::Verb(CLI::App& app, bool& json) : app_(app) {
  app_.add_flag("--json", json, "Write one JSON document to stdout");
}

const Setting& Verb::setting(std::string key, ValueKind kind, std::string built_in,
                             const std::string& description,
                             decltype(SettingSpec::platform) platform) {
  Slot& slot = slots_.emplace_back();
  slot.spec = {std::move(key), std::move(kind), std::move(built_in), std::move(platform)};
  slot.setting.key = slot.spec.key;
  const std::string option = "--" + slot.spec.key;
  if (slot.spec.kind.is_switch) {
    app_.add_flag(option, slot.flag, description);
  } else {
    CLI::Option* added = app_.add_option_function<std::string>(
        option, [&slot](const std::string& value) { slot.command_line = value; }, description);
    added->type_name(slot.spec.kind.label);
    if (!slot.spec.built_in.empty()) added->default_str(slot.spec.built_in);
  }
  return slot.setting;
}

Verb& Verb::example(const std::string& command, const std::string& what) {
  examples_ += fmt::format("  {}\n      {}\n", command, what);
  app_.footer("Examples:\n" + examples_);
  return *this;
}

std::vector<const Setting*> Verb::settings() const {
  std::vector<const Setting*> out;
  out.reserve(slots_.size());
  for (const Slot& slot : slots_)
    out.push_back(&slot.setting);
  return out;
}

Frame::Frame()
    : app_("Authority over which parts of a model's weights are on disk, in RAM and on the GPU.",
           "residctl") {
  app_.set_version_flag("--version", "residctl " RESID_VERSION);
  app_.add_flag("--json", context_.json, "Write one JSON document to stdout");
  app_.require_subcommand(0, 1);
  app_.footer(
      "Settings may also come from the environment (RESIDCTL_RAM for --ram) and from\n"
      "residctl.toml, in the current folder or in $XDG_CONFIG_HOME/residctl/.\n"
      "`residctl VERB --help` shows the options of a verb, with examples.");
}

Verb& Frame::add(const std::string& name, const std::string& description) {
  verbs_.push_back(std::make_unique<Verb>(*app_.add_subcommand(name, description), context_.json));
  return *verbs_.back();
}

Verb* Frame::find(const std::string& name) {
  for (const auto& verb : verbs_) {
    if (verb->app().get_name() == name) return verb.get();
  }
  return nullptr;
}

int Frame::run(int argc, const char* const* argv) {
  int code = 0;
  try {
    auto done = dispatch(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
    if (done) {
      code = *done;
    } else {
      fmt::print(stderr, "{}\n", done.error().line());
      code = exit_code(done.error().status);
    }
  } catch (const std::exception& e) {
    const Failure failure{Status::internal, "residctl", e.what(), {}};
    fmt::print(stderr, "{}\n", failure.line());
    code = exit_code(failure.status);
  }
  // A full disk behind `> report.json` must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const auto failure = fail_errno(Status::write_failed, "standard output", errno);
    fmt::print(stderr, "{}\n", failure.value().line());
    if (code == 0) code = exit_code(Status::write_failed);
  }
  return code;
}

Result<int> Frame::dispatch(std::vector<std::string> args) {
  const auto first = std::find_if(args.begin(), args.end(), [](const std::string& a) {
    return a.empty() || a[0] != '-' || a == "--";
  });
  Verb* verb = first == args.end() ? nullptr : find(*first);
  if (first != args.end() && verb == nullptr) {
    std::vector<std::string> names;
    for (const auto& v : verbs_)
      names.push_back(v->app().get_name());
    const auto meant = nearest(*first, names);
    return fail(Status::usage, "command line", fmt::format("unknown verb '{}'", *first),
                meant ? fmt::format("did you mean `residctl {}`?", *meant)
                      : fmt::format("give one of {}", fmt::join(names, ", ")));
  }
  if (verb != nullptr && verb->takes_program_) {
    const auto mark = std::find(first, args.end(), "--");
    if (mark != args.end()) {
      context_.program.assign(mark + 1, args.end());
      args.erase(mark, args.end());
    }
  }
  try {
    std::reverse(args.begin(), args.end());  // as CLI11 wants them
    app_.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", (verb != nullptr ? verb->app() : app_).help());
    return 0;
  } catch (const CLI::CallForVersion&) {
    fmt::print("{}\n", app_.version());
    return 0;
  } catch (const CLI::ParseError& error) {
    return tl::unexpected(explain(error));
  }
  if (verb == nullptr) {
    fmt::print(stderr, "{}", app_.help());
    return fail(Status::usage, "command line", "no verb", "see above");
  }
  if (auto ok = settle(*verb); !ok) return tl::unexpected(ok.error());
  return verb->act_(context_);
}

Result<void> Frame::settle(Verb& verb) {
  if (verb.slots_.empty()) return {};
  const Environment environment = [](const char* n) { return std::getenv(n); };
  const std::vector<std::string> known = known_keys();
  std::vector<SettingsFile> files;
  for (const std::string& path : settings_paths(environment)) {
    auto file = SettingsFile::read(path, known);
    if (!file) return tl::unexpected(file.error());
    files.push_back(std::move(*file));
  }
  for (Verb::Slot& slot : verb.slots_) {
    if (slot.flag) slot.command_line = "true";
    auto setting = resolve_setting(slot.spec, slot.command_line, environment, files);
    if (!setting) return tl::unexpected(setting.error());
    slot.setting = std::move(*setting);
  }
  return {};
}

// A key of another verb is no mistake: one file serves all verbs.
std::vector<std::string> Frame::known_keys() const {
  std::vector<std::string> keys;
  for (const auto& verb : verbs_) {
    for (const Setting* s : verb->settings())
      keys.push_back(s->key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

Failure Frame::explain(const CLI::ParseError& error) {
  const auto parsed = app_.get_subcommands();
  Verb* verb = parsed.empty() ? nullptr : find(parsed.front()->get_name());
  const std::string command = verb == nullptr ? "residctl" : "residctl " + verb->app().get_name();
  Failure failure{Status::usage, verb == nullptr ? "command line" : verb->app().get_name(),
                  first_lower(error.what()), fmt::format("see `{} --help`", command)};
  const std::vector<std::string> extra = app_.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extra.empty()) return failure;
  const std::string& word = extra.front();
  if (word.starts_with("-")) {
    failure.why = fmt::format("unknown option '{}'", word);
    const auto meant =
        nearest(word.substr(0, word.find('=')), option_names(verb == nullptr ? app_ : verb->app()));
    if (meant) failure.todo = fmt::format("did you mean {}? See `{} --help`", *meant, command);
  } else {
    failure.why = fmt::format("unexpected argument '{}'", word);
  }
  if (verb != nullptr && verb->takes_program_ && !word.starts_with("-")) {
    failure.todo =
        fmt::format("write the program behind two dashes: {} [OPTIONS] -- PROGRAM [ARGS]", command);
  }
  return failure;
}

}  // namespace resid::cli

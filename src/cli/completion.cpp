// Completion scripts, made from the verbs and options as they are registered: there is no list to
// keep up to date.

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/cli.hpp"

namespace resid::cli {
namespace {

struct Word {
  std::string text;
  std::string description;
};

struct Flag : Word {
  bool takes_value = false;
  std::vector<std::string> choices;  // empty: anything
};

struct Entry : Word {
  std::vector<Flag> flags;
  std::vector<std::string> choices;  // of the first positional argument; empty: files
};

// "{a,b,c}" as a type name lists all values.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  std::vector<std::string> out;
  if (type.size() < 3 || type.front() != '{' || type.back() != '}') return out;
  std::string word;
  for (const char c : type.substr(1)) {
    if (c != ',' && c != '}') {
      word += c;
    } else {
      out.push_back(std::move(word));
      word.clear();
    }
  }
  return out;
}

Entry entry_of(const CLI::App& app) {
  Entry entry;
  entry.text = app.get_name();
  entry.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (entry.choices.empty()) entry.choices = choices_of(*option);
      continue;
    }
    for (const std::string& long_name : option->get_lnames()) {
      Flag flag;
      flag.text = "--" + long_name;
      flag.description = option->get_description();
      flag.takes_value = option->get_items_expected_max() > 0;
      flag.choices = choices_of(*option);
      entry.flags.push_back(std::move(flag));
    }
  }
  return entry;
}

std::vector<Entry> verbs_of(const CLI::App& app) {
  std::vector<Entry> verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr))
    verbs.push_back(entry_of(*verb));
  return verbs;
}

template <class Words>
std::string texts(const Words& words) {
  std::string out;
  for (const auto& w : words)
    out += (out.empty() ? "" : " ") + w.text;
  return out;
}

// For a shell's single quotes.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash(const CLI::App& app) {
  const std::vector<Entry> verbs = verbs_of(app);
  const Entry top = entry_of(app);
  std::string out =
      "# bash completion for residctl; load with: source <(residctl completion bash)\n"
      "_residctl() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
      "      # Behind the dashes stands another program's command line.\n"
      "      if ((i + 1 == COMP_CWORD)); then\n"
      "        mapfile -t COMPREPLY < <(compgen -c -- \"$word\")\n"
      "      else\n"
      "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
      "      fi\n"
      "      return\n"
      "    fi\n"
      "    [[ -z $verb && ${COMP_WORDS[i]} != -* ]] && verb=${COMP_WORDS[i]}\n"
      "  done\n"
      "  case $verb/$before in\n";
  for (const Entry& v : verbs) {
    for (const Flag& f : v.flags) {
      if (!f.takes_value) continue;
      out += fmt::format(
          "    {}/{}) mapfile -t COMPREPLY < <(compgen {} -- \"$word\"); return ;;\n", v.text,
          f.text, f.choices.empty() ? "-f" : fmt::format("-W '{}'", fmt::join(f.choices, " ")));
    }
  }
  out += "  esac\n  case $verb in\n";
  out += fmt::format("    '') mapfile -t COMPREPLY < <(compgen -W '{} {}' -- \"$word\") ;;\n",
                     texts(verbs), texts(top.flags));
  for (const Entry& v : verbs) {
    const std::string other =
        v.choices.empty() ? "-f" : fmt::format("-W '{}'", fmt::join(v.choices, " "));
    out += fmt::format(
        "    {}) if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W '{}' -- "
        "\"$word\")\n"
        "       else mapfile -t COMPREPLY < <(compgen {} -- \"$word\"); fi ;;\n",
        v.text, texts(v.flags), other);
  }
  return out + "  esac\n}\ncomplete -o filenames -F _residctl residctl\n";
}

// In _arguments' specifications colons and brackets have a meaning.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh(const CLI::App& app) {
  const std::vector<Entry> verbs = verbs_of(app);
  std::string out =
      "#compdef residctl\n"
      "# zsh completion for residctl; load with: source <(residctl completion zsh)\n"
      "_residctl() {\n"
      "  local -a verbs=(\n";
  for (const Entry& v : verbs) {
    out += fmt::format("    {}\n", single_quoted(v.text + ":" + zsh_text(v.description)));
  }
  out +=
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $verb in\n";
  for (const Entry& v : verbs) {
    out += fmt::format("    {})\n      _arguments", v.text);
    for (const Flag& f : v.flags) {
      std::string spec = f.text + "[" + zsh_text(f.description) + "]";
      if (f.takes_value) {
        spec += f.choices.empty() ? ":value:_files"
                                  : fmt::format(":value:({})", fmt::join(f.choices, " "));
      }
      out += " \\\n        " + single_quoted(spec);
    }
    out +=
        " \\\n        " +
        single_quoted(v.choices.empty() ? "*:file:_files"
                                        : fmt::format("1:value:({})", fmt::join(v.choices, " ")));
    out += " ;;\n";
  }
  return out + "  esac\n}\ncompdef _residctl residctl\n";
}

std::string fish(const CLI::App& app) {
  std::string out =
      "# fish completion for residctl; load with: residctl completion fish | source\n";
  for (const Flag& f : entry_of(app).flags) {
    out += fmt::format("complete -c residctl -n __fish_use_subcommand -l {} -d {}\n",
                       f.text.substr(2), single_quoted(f.description));
  }
  for (const Entry& v : verbs_of(app)) {
    out += fmt::format("complete -c residctl -n __fish_use_subcommand -f -a {} -d {}\n", v.text,
                       single_quoted(v.description));
    const std::string here = single_quoted("__fish_seen_subcommand_from " + v.text);
    for (const Flag& f : v.flags) {
      out += fmt::format("complete -c residctl -n {} -l {} -d {}", here, f.text.substr(2),
                         single_quoted(f.description));
      if (f.takes_value) out += " -r";
      if (!f.choices.empty()) out += fmt::format(" -f -a '{}'", fmt::join(f.choices, " "));
      out += '\n';
    }
    if (!v.choices.empty()) {
      out +=
          fmt::format("complete -c residctl -n {} -f -a '{}'\n", here, fmt::join(v.choices, " "));
    }
  }
  return out;
}

}  // namespace

void add_completion(Frame& frame) {
  auto shell = std::make_shared<std::string>();
  Verb& verb = frame.add("completion", "Print a completion script for a shell");
  verb.app().add_option("SHELL", *shell, "Which shell")->required()->type_name("{bash,zsh,fish}");
  verb.example("source <(residctl completion bash)", "complete verbs and options in this shell");
  verb.example("residctl completion fish > ~/.config/fish/completions/residctl.fish",
               "keep it for every shell to come");
  const CLI::App& app = frame.app();
  verb.action([shell, &app](const Context&) -> Result<int> {
    if (*shell == "bash") {
      fmt::print("{}", bash(app));
    } else if (*shell == "zsh") {
      fmt::print("{}", zsh(app));
    } else if (*shell == "fish") {
      fmt::print("{}", fish(app));
    } else {
      return fail(Status::usage, "completion", fmt::format("unknown shell '{}'", *shell),
                  "give bash, zsh or fish");
    }
    return 0;
  });
}

}  // namespace resid::cli

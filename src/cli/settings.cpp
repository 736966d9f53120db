#include "cli/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "policy/policy.hpp"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace resid::cli {
namespace {

constexpr const char* kFileName = "residctl.toml";

std::optional<std::uint64_t> to_count(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

// "true", "false", or nothing.
std::string_view to_switch(std::string_view text) {
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (text == yes) return "true";
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (text == no) return "false";
  }
  return {};
}

Result<void> check_count(const std::string& value, const std::string& origin, std::uint64_t low,
                         std::uint64_t high) {
  const auto n = to_count(value);
  if (n && *n >= low && *n <= high) return {};
  return fail(
      Status::usage, origin,
      n ? fmt::format("{} is out of range", *n) : fmt::format("'{}' is not a whole number", value),
      fmt::format("give {} to {}", low, high));
}

// The text of a TOML value as it would be written on the command line; nothing for tables, arrays
// and dates.
std::optional<std::string> value_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  return std::nullopt;
}

}  // namespace

std::string_view name(Source source) {
  switch (source) {
    case Source::command_line:
      return "command line";
    case Source::environment:
      return "environment";
    case Source::file:
      return "file";
    case Source::platform:
      return "platform";
    case Source::built_in:
      return "built-in";
  }
  return "built-in";
}

ValueKind text_value(std::string label) {
  return {std::move(label), {}, false};
}

ValueKind size_value() {
  return {"SIZE",
          [](const std::string& value, const std::string& origin) -> Result<void> {
            if (auto size = parse_size(value, origin); !size) return tl::unexpected(size.error());
            return {};
          },
          false};
}

ValueKind bytes_value() {
  return {"SIZE",
          [](const std::string& value, const std::string& origin) -> Result<void> {
            if (auto size = parse_bytes(value, origin); !size) return tl::unexpected(size.error());
            return {};
          },
          false};
}

ValueKind count_value(std::uint64_t low, std::uint64_t high) {
  return {"N",
          [=](const std::string& value, const std::string& origin) {
            return check_count(value, origin, low, high);
          },
          false};
}

ValueKind choice_value(std::vector<std::string> choices) {
  std::string label = fmt::format("{{{}}}", fmt::join(choices, ","));
  return {std::move(label),
          [choices = std::move(choices)](const std::string& value,
                                         const std::string& origin) -> Result<void> {
            if (std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
            return fail(Status::usage, origin, fmt::format("'{}' is not known", value),
                        fmt::format("give one of {}", fmt::join(choices, ", ")));
          },
          false};
}

ValueKind policy_value() {
  std::vector<std::string> choices(policy_names().begin(), policy_names().end());
  choices.emplace_back("auto");
  return choice_value(std::move(choices));
}

ValueKind switch_value() {
  return {"",
          [](const std::string& value, const std::string& origin) -> Result<void> {
            if (!to_switch(value).empty()) return {};
            return fail(Status::usage, origin, fmt::format("'{}' is neither true nor false", value),
                        "give true or false");
          },
          true};
}

ValueKind count_or_value(std::uint64_t low, std::uint64_t high, std::vector<std::string> words) {
  std::string label = fmt::format("N|{}", fmt::join(words, "|"));
  return {std::move(label),
          [=](const std::string& value, const std::string& origin) -> Result<void> {
            if (std::find(words.begin(), words.end(), value) != words.end()) return {};
            auto ok = check_count(value, origin, low, high);
            if (!ok) ok.error().todo += fmt::format(", or {}", fmt::join(words, ", "));
            return ok;
          },
          false};
}

std::uint64_t Setting::count() const {
  return to_count(value).value_or(0);
}

Result<SettingsFile> SettingsFile::read(const std::string& path,
                                        std::span<const std::string> known) {
  SettingsFile file;
  if (::access(path.c_str(), F_OK) != 0) return file;
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return fail(Status::usage, fmt::format("{}:{}", path, error.source().begin.line),
                std::string(error.description()), "write settings as `key = value`, in TOML");
  }
  for (const auto& [toml_key, node] : parsed.table()) {
    const std::string key(toml_key.str());
    const std::string origin = fmt::format("{}:{}", path, toml_key.source().begin.line);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return fail(Status::usage, origin, fmt::format("unknown setting '{}'", key),
                  fmt::format("known settings: {}", fmt::join(known, ", ")));
    }
    auto text = value_text(node);
    if (!text) {
      return fail(Status::usage, origin,
                  fmt::format("'{}' is neither text nor number nor true or false", key),
                  fmt::format("write {} = \"...\"", key));
    }
    file.values_[key] = Value{std::move(*text), origin};
  }
  return file;
}

const SettingsFile::Value* SettingsFile::find(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

std::vector<std::string> settings_paths(const Environment& environment) {
  std::vector<std::string> paths{kFileName};
  const char* config = environment("XDG_CONFIG_HOME");
  const char* home = environment("HOME");
  // A relative $XDG_CONFIG_HOME is to be ignored (XDG Base Directory Specification).
  if (config != nullptr && config[0] == '/') {
    paths.push_back(fmt::format("{}/residctl/{}", config, kFileName));
  } else if (home != nullptr && home[0] == '/') {
    paths.push_back(fmt::format("{}/.config/residctl/{}", home, kFileName));
  }
  return paths;
}

std::string environment_name(std::string_view key) {
  std::string out = "RESIDCTL_";
  for (const char c : key) {
    if (c == '-') {
      out += '_';
    } else {
      out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  return out;
}

const char* field_name(std::string_view key) {
  if (key == "cap") return "CAP";
  return key == "cap-raise" ? "CAP_RAISE" : nullptr;
}

Result<Setting> resolve_setting(const SettingSpec& spec,
                                const std::optional<std::string>& command_line,
                                const Environment& environment,
                                std::span<const SettingsFile> files) {
  Setting setting{spec.key, spec.built_in, Source::built_in, "built-in"};
  // A failure names where the value stands, and which setting it is.
  std::string place = setting.origin;
  const auto take = [&](std::string value, Source source, std::string origin, std::string where) {
    setting.value = std::move(value);
    setting.source = source;
    setting.origin = std::move(origin);
    place = std::move(where);
  };

  const std::string option = "--" + spec.key;
  std::string variable = environment_name(spec.key);
  const char* from_environment = environment(variable.c_str());
  if (from_environment == nullptr || *from_environment == '\0') {
    if (const char* other = field_name(spec.key)) {
      variable = other;
      from_environment = environment(other);
    }
  }
  const auto in_file = std::find_if(files.begin(), files.end(), [&](const SettingsFile& f) {
    return f.find(spec.key) != nullptr;
  });
  if (command_line) {
    take(*command_line, Source::command_line, option, option);
  } else if (from_environment != nullptr && *from_environment != '\0') {
    take(from_environment, Source::environment, variable, variable);
  } else if (in_file != files.end()) {
    const SettingsFile::Value& value = *in_file->find(spec.key);
    take(value.text, Source::file, value.origin, fmt::format("{}: {}", value.origin, spec.key));
  } else if (spec.platform) {
    if (auto suggested = spec.platform()) {
      take(suggested->first, Source::platform, suggested->second, option);
    }
  }
  const bool given = setting.source != Source::built_in;
  if ((given || setting.is_set()) && spec.kind.check) {
    if (auto ok = spec.kind.check(setting.value, place); !ok) return tl::unexpected(ok.error());
  }
  if (spec.kind.is_switch) {
    setting.value = setting.is_set() ? std::string(to_switch(setting.value)) : "false";
  }
  return setting;
}

std::string explain_text(std::span<const Setting* const> settings) {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  const auto shown = [](const Setting& s) {
    return s.is_set() ? s.value : std::string("(not set)");
  };
  for (const Setting* s : settings) {
    key_width = std::max(key_width, s->key.size());
    value_width = std::max(value_width, shown(*s).size());
  }
  std::string out;
  for (const Setting* s : settings) {
    out += fmt::format("{:<{}}  {:<{}}  {}", s->key, key_width, shown(*s), value_width,
                       name(s->source));
    if (s->source != Source::built_in) out += fmt::format(" ({})", s->origin);
    out += '\n';
  }
  return out;
}

nlohmann::json explain_json(std::span<const Setting* const> settings) {
  nlohmann::json out = nlohmann::json::object();
  for (const Setting* s : settings) {
    out[s->key] = {{"value", s->is_set() ? nlohmann::json(s->value) : nlohmann::json(nullptr)},
                   {"source", name(s->source)},
                   {"origin", s->origin}};
  }
  return out;
}

Result<std::uint64_t> parse_chunk(const std::string& value, const std::string& origin) {
  auto chunk = parse_bytes(value, origin);
  if (!chunk) return chunk;
  if (*chunk % kPage != 0 || *chunk == 0 || *chunk > (1ULL << 30)) {
    return fail(Status::usage, origin,
                fmt::format("{} is not a multiple of 4 KiB between 4 KiB and 1 GiB", value));
  }
  return chunk;
}

}  // namespace resid::cli

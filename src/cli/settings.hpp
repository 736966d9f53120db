#pragma once
// Where the value of a setting comes from. Precedence: command line, environment (RESIDCTL_*),
// residctl.toml in the current folder, residctl.toml in $XDG_CONFIG_HOME/residctl/, what the
// machine suggests, built-in. Every value remembers its source, so that `plan` and `run --explain`
// can show it.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"

namespace resid::cli {

enum class Source : std::uint8_t { command_line, environment, file, platform, built_in };

std::string_view name(Source source);  // "command line", ..., as printed and as in JSON

// Judges a value; `origin` is what the failure should name. Empty: anything goes.
using Check = std::function<Result<void>(const std::string& value, const std::string& origin)>;

// How a value is written, for --help and completion, and how it is checked.
struct ValueKind {
  std::string label;  // "SIZE", "N", "{on,off}"
  Check check;
  bool is_switch = false;  // stands alone on the command line; true or false elsewhere
};

ValueKind text_value(std::string label);
ValueKind size_value();   // 512MiB, 50%
ValueKind bytes_value();  // 512MiB, no percentage
ValueKind count_value(std::uint64_t low, std::uint64_t high);
ValueKind choice_value(std::vector<std::string> choices);
ValueKind policy_value();  // every policy there is, or auto
ValueKind switch_value();
// A number, or one of the words ("auto").
ValueKind count_or_value(std::uint64_t low, std::uint64_t high, std::vector<std::string> words);

// The size of a chunk: whole pages, from one to 1 GiB.
Result<std::uint64_t> parse_chunk(const std::string& value, const std::string& origin);

struct SettingSpec {
  std::string key;  // "chunk-max": --chunk-max, RESIDCTL_CHUNK_MAX, chunk-max = ... in the file
  ValueKind kind;
  std::string built_in;  // empty: unset
  // What this machine suggests, and in a few words why; asked only when nobody else says anything.
  std::function<std::optional<std::pair<std::string, std::string>>()> platform;
};

struct Setting {
  std::string key;
  std::string value;  // empty: unset
  Source source = Source::built_in;
  std::string origin;  // "--chunk-max", "RESIDCTL_CHUNK_MAX", "residctl.toml:3", "built-in"

  bool is_set() const { return !value.empty(); }
  bool is_on() const { return value == "true"; }  // of a switch
  // The value as a number; only after count_value() has accepted it.
  std::uint64_t count() const;
};

// One residctl.toml. Settings are flat: `key = value`, the value a string, a number or a boolean.
class SettingsFile {
 public:
  // A key that is not in `known`, a table, or text that is no TOML is Status::usage, naming file
  // and line. A file that does not exist has no settings.
  static Result<SettingsFile> read(const std::string& path, std::span<const std::string> known);

  struct Value {
    std::string text;
    std::string origin;  // path:line
  };
  const Value* find(const std::string& key) const;

 private:
  std::map<std::string, Value> values_;
};

// As ::getenv, which is the default; tests give their own.
using Environment = std::function<const char*(const char*)>;

// The files to be read, the more important first.
std::vector<std::string> settings_paths(const Environment& environment);

// "chunk-max" -> "RESIDCTL_CHUNK_MAX"
std::string environment_name(std::string_view key);
// What other engines call the same setting, for those who have it in their environment already; it
// counts where RESIDCTL_* says nothing. Null for most.
const char* field_name(std::string_view key);

// The value of one setting and its source. The value has passed spec.kind.check; a switch is "true"
// or "false" whatever spelling was used.
Result<Setting> resolve_setting(const SettingSpec& spec,
                                const std::optional<std::string>& command_line,
                                const Environment& environment,
                                std::span<const SettingsFile> files);

// Each value with its source: a table for people, and {"key":{"value":..,"source":..,"origin":..}}.
std::string explain_text(std::span<const Setting* const> settings);
nlohmann::json explain_json(std::span<const Setting* const> settings);

}  // namespace resid::cli

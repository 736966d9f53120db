// Where a setting's value comes from, and what is said about one that is wrong.

#include "cli/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace resid::cli {
namespace {

using testing::HasSubstr;

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "settings-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string put(const char* name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  SettingsFile file(const char* name, const std::string& text) {
    auto read = SettingsFile::read(put(name, text), known_);
    if (!read) {
      ADD_FAILURE() << read.error().line();
      return {};
    }
    return *read;
  }
  Failure bad_file(const std::string& text) {
    auto read = SettingsFile::read(put("bad.toml", text), known_);
    if (read) {
      ADD_FAILURE() << "was accepted: " << text;
      return {};
    }
    EXPECT_EQ(read.error().status, Status::usage);
    return read.error();
  }
  Environment environment() const {
    return [this](const char* name) -> const char* {
      const auto it = variables_.find(name);
      return it == variables_.end() ? nullptr : it->second.c_str();
    };
  }
  Result<Setting> resolve(const SettingSpec& spec, const std::optional<std::string>& command_line) {
    return resolve_setting(spec, command_line, environment(), files_);
  }

  static SettingSpec chunk_max() { return {"chunk-max", bytes_value(), "2MiB", {}}; }

  std::filesystem::path folder_;
  std::vector<std::string> known_{"chunk-max", "fetch-workers", "policy", "sync-handler"};
  std::map<std::string, std::string> variables_;
  std::vector<SettingsFile> files_;
};

TEST_F(SettingsTest, EverySourceGivesWayToTheOneBeforeIt) {
  SettingSpec spec = chunk_max();
  spec.platform = [] {
    return std::make_optional(std::pair<std::string, std::string>("5MiB", "disk"));
  };
  files_ = {file("residctl.toml", "# ours\nchunk-max = \"3MiB\"\n"),
            file("user.toml", "chunk-max = \"4MiB\"\n")};
  variables_["RESIDCTL_CHUNK_MAX"] = "6MiB";

  auto s = resolve(spec, "7MiB");
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "7MiB");
  EXPECT_EQ(s->source, Source::command_line);
  EXPECT_EQ(s->origin, "--chunk-max");

  s = resolve(spec, std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "6MiB");
  EXPECT_EQ(s->source, Source::environment);
  EXPECT_EQ(s->origin, "RESIDCTL_CHUNK_MAX");

  variables_["RESIDCTL_CHUNK_MAX"] = "";  // as good as absent
  s = resolve(spec, std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "3MiB");
  EXPECT_EQ(s->source, Source::file);
  EXPECT_EQ(s->origin, (folder_ / "residctl.toml").string() + ":2");

  files_.erase(files_.begin());
  s = resolve(spec, std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "4MiB");

  files_.clear();
  s = resolve(spec, std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "5MiB");
  EXPECT_EQ(s->source, Source::platform);
  EXPECT_EQ(s->origin, "disk");

  s = resolve(chunk_max(), std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_EQ(s->value, "2MiB");
  EXPECT_EQ(s->source, Source::built_in);
}

TEST_F(SettingsTest, PlatformMaySuggestNothing) {
  SettingSpec spec = chunk_max();
  spec.platform = []() -> std::optional<std::pair<std::string, std::string>> {
    return std::nullopt;
  };
  EXPECT_EQ(resolve(spec, std::nullopt)->source, Source::built_in);
}

TEST_F(SettingsTest, UnsetIsAValueToo) {
  auto s = resolve({"ram", size_value(), "", {}}, std::nullopt);
  ASSERT_TRUE(s) << s.error().line();
  EXPECT_FALSE(s->is_set());
}

TEST_F(SettingsTest, AWrongValueNamesTheSourceItCameFrom) {
  EXPECT_EQ(resolve(chunk_max(), "5Q").error().what, "--chunk-max");
  variables_["RESIDCTL_CHUNK_MAX"] = "5Q";
  EXPECT_EQ(resolve(chunk_max(), std::nullopt).error().what, "RESIDCTL_CHUNK_MAX");
  variables_.clear();
  files_ = {file("residctl.toml", "\n\nchunk-max = \"5Q\"\n")};
  const Failure f = resolve(chunk_max(), std::nullopt).error();
  EXPECT_EQ(f.status, Status::usage);
  EXPECT_EQ(f.what, (folder_ / "residctl.toml").string() + ":3: chunk-max");
  EXPECT_THAT(f.why, HasSubstr("5Q"));
}

TEST_F(SettingsTest, AnEmptyValueOnTheCommandLineIsWrong) {
  EXPECT_FALSE(resolve(chunk_max(), ""));
}

TEST_F(SettingsTest, FileValuesMayBeTextNumbersAndBooleans) {
  files_ = {file("residctl.toml", "policy = 'lru'\nfetch-workers = 8\nsync-handler = true\n")};
  EXPECT_EQ(resolve({"policy", choice_value({"lru", "auto"}), "auto", {}}, std::nullopt)->value,
            "lru");
  EXPECT_EQ(resolve({"fetch-workers", count_value(1, 64), "4", {}}, std::nullopt)->count(), 8U);
  EXPECT_TRUE(resolve({"sync-handler", switch_value(), "", {}}, std::nullopt)->is_on());
}

TEST_F(SettingsTest, AnUnknownKeyNamesFileAndLine) {
  const Failure f = bad_file("policy = 'lru'\nchunkmax = 3\n");
  EXPECT_EQ(f.what, (folder_ / "bad.toml").string() + ":2");
  EXPECT_THAT(f.why, HasSubstr("chunkmax"));
  EXPECT_THAT(f.todo, HasSubstr("chunk-max"));
}

TEST_F(SettingsTest, ABrokenFileNamesTheLine) {
  EXPECT_EQ(bad_file("policy = 'lru'\npolicy = \n").what, (folder_ / "bad.toml").string() + ":2");
}

TEST_F(SettingsTest, TablesAndArraysAreNoValues) {
  EXPECT_THAT(bad_file("[policy]\nx = 1\n").why, HasSubstr("policy"));
  EXPECT_THAT(bad_file("policy = ['lru']\n").why, HasSubstr("policy"));
  EXPECT_THAT(bad_file("policy = 1979-05-27\n").why, HasSubstr("policy"));
}

TEST_F(SettingsTest, AFileThatDoesNotExistHasNoSettings) {
  auto read = SettingsFile::read(folder_ / "none.toml", known_);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->find("policy"), nullptr);
}

TEST_F(SettingsTest, FilesAreLookedForInTheCurrentFolderFirst) {
  variables_["HOME"] = "/home/u";
  EXPECT_THAT(settings_paths(environment()),
              testing::ElementsAre("residctl.toml", "/home/u/.config/residctl/residctl.toml"));
  variables_["XDG_CONFIG_HOME"] = "/etc/xdg";
  EXPECT_THAT(settings_paths(environment()),
              testing::ElementsAre("residctl.toml", "/etc/xdg/residctl/residctl.toml"));
  variables_["XDG_CONFIG_HOME"] = "relative";
  variables_.erase("HOME");
  EXPECT_THAT(settings_paths(environment()), testing::ElementsAre("residctl.toml"));
}

TEST(ValueKinds, AcceptAndRefuse) {
  struct Case {
    ValueKind kind;
    const char* value;
    bool ok;
  };
  const Case cases[] = {
      {size_value(), "50%", true},
      {size_value(), "6G", true},
      {size_value(), "much", false},
      {bytes_value(), "512MiB", true},
      {bytes_value(), "50%", false},
      {count_value(1, 8), "1", true},
      {count_value(1, 8), "8", true},
      {count_value(1, 8), "0", false},
      {count_value(1, 8), "9", false},
      {count_value(1, 8), "-1", false},
      {count_value(1, 8), "3x", false},
      {count_value(1, 8), "", false},
      {choice_value({"on", "off"}), "on", true},
      {choice_value({"on", "off"}), "On", false},
      {switch_value(), "yes", true},
      {switch_value(), "0", true},
      {switch_value(), "maybe", false},
      {count_or_value(1, 8, {"auto"}), "auto", true},
      {count_or_value(1, 8, {"auto"}), "4", true},
      {count_or_value(1, 8, {"auto"}), "many", false},
  };
  for (const Case& c : cases) {
    auto checked = c.kind.check(c.value, "--x");
    EXPECT_EQ(checked.has_value(), c.ok) << c.kind.label << " " << c.value;
    if (checked) continue;
    EXPECT_EQ(checked.error().what, "--x");
    EXPECT_FALSE(checked.error().todo.empty());
  }
}

TEST(EnvironmentNames, AreUpperCaseWithUnderscores) {
  EXPECT_EQ(environment_name("fetching-timeout-ms"), "RESIDCTL_FETCHING_TIMEOUT_MS");
}

TEST(EnvironmentNames, WhatTheFieldCallsACapCountsBehindOurOwnName) {
  const SettingSpec cap{"cap", count_value(0, 9), "0", {}};
  std::map<std::string, std::string> variables{{"CAP", "4"}};
  const Environment environment = [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  const auto theirs = resolve_setting(cap, std::nullopt, environment, {});
  ASSERT_TRUE(theirs.has_value());
  EXPECT_EQ(theirs->value, "4");
  EXPECT_EQ(theirs->origin, "CAP");
  variables["RESIDCTL_CAP"] = "5";
  EXPECT_EQ(resolve_setting(cap, std::nullopt, environment, {})->value, "5");
  EXPECT_EQ(resolve_setting(cap, "6", environment, {})->value, "6");
  variables = {{"CAP", "many"}};
  const auto bad = resolve_setting(cap, std::nullopt, environment, {});
  ASSERT_FALSE(bad.has_value());
  EXPECT_NE(bad.error().line().find("CAP"), std::string::npos);
  EXPECT_EQ(field_name("ram"), nullptr);
}

TEST(Explain, ShowsEachValueWithItsSource) {
  const Setting ram{"ram", "6GiB", Source::environment, "RESIDCTL_RAM"};
  const Setting cap{"cap", "", Source::built_in, "built-in"};
  const std::vector<const Setting*> settings{&ram, &cap};
  EXPECT_EQ(explain_text(settings),
            "ram  6GiB       environment (RESIDCTL_RAM)\n"
            "cap  (not set)  built-in\n");
  const nlohmann::json json = explain_json(settings);
  EXPECT_EQ(json["ram"]["source"], "environment");
  EXPECT_EQ(json["ram"]["origin"], "RESIDCTL_RAM");
  EXPECT_TRUE(json["cap"]["value"].is_null());
}

}  // namespace
}  // namespace resid::cli

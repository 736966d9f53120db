// What is changed in a program's command line and environment.

#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/adapt.hpp"

namespace resid::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Words = std::vector<std::string>;

TEST(AdaptArguments, leaves_other_programs_alone) {
  const Words words{"/bin/python3", "infer.py", "--no-mmap", "--mlock"};
  const Adapted adapted = adapt_arguments(words);
  EXPECT_EQ(adapted.arguments, words);
  EXPECT_THAT(adapted.reasons, IsEmpty());
}

TEST(AdaptArguments, drops_what_ends_the_mapping_and_says_so) {
  const Adapted adapted = adapt_arguments(
      {"/opt/llama-cli", "-m", "a.gguf", "--no-mmap", "-n", "5", "-dio", "--direct-io", "-ndio",
       "--no-direct-io", "--mlock", "--repack", "--no_mmap", "-lm", "dio", "--load-mode", "none"});
  EXPECT_THAT(adapted.arguments, ElementsAre("/opt/llama-cli", "-m", "a.gguf", "-n", "5"));
  EXPECT_THAT(adapted.reasons, SizeIs(10));
  EXPECT_THAT(adapted.reasons[0], testing::HasSubstr("--no-mmap is left out"));
  EXPECT_THAT(adapted.reasons.back(), testing::HasSubstr("--load-mode none is left out"));
}

TEST(AdaptArguments, keeps_what_maps) {
  const Words words{"llama-server", "--mmap", "-lm", "mmap",
                    "--load-mode",  "auto",   "-nr", "--no-repack"};
  EXPECT_EQ(adapt_arguments(words).arguments, words);
}

TEST(AdaptArguments, text_values_are_not_options) {
  const Words words{"llama-cli", "-p", "--no-mmap", "--prompt", "--mlock", "-m", "--repack"};
  EXPECT_EQ(adapt_arguments(words).arguments, words);
}

TEST(AdaptArguments, knows_that_llama_bench_takes_values) {
  EXPECT_THAT(
      adapt_arguments({"llama-bench", "-mmp", "0,1", "-dio", "1", "-lm", "mmap,dio", "-t", "2"})
          .arguments,
      ElementsAre("llama-bench", "-t", "2"));
  const Words words{"llama-bench", "-mmp", "1", "-lm", "mmap,auto"};
  EXPECT_EQ(adapt_arguments(words).arguments, words);
}

TEST(MergePreload, puts_ours_first_and_keeps_the_rest) {
  EXPECT_EQ(merge_preload(nullptr, "/a.so"), "/a.so");
  EXPECT_EQ(merge_preload("", "/a.so"), "/a.so");
  EXPECT_EQ(merge_preload("/b.so", "/a.so"), "/a.so:/b.so");
  EXPECT_EQ(merge_preload("/b.so /c.so::/d.so", "/a.so"), "/a.so:/b.so:/c.so:/d.so");
  EXPECT_EQ(merge_preload("/b.so:/a.so", "/a.so"), "/a.so:/b.so");
}

std::map<std::string, Change> changes_for(const std::map<std::string, std::string>& environment) {
  const auto get = [&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  };
  std::map<std::string, Change> out;
  for (Change& change : adapt_environment(get, {"/lib/p.so", {}}, "/tmp/page")) {
    out[change.name] = std::move(change);
  }
  return out;
}

TEST(AdaptEnvironment, preloads_and_turns_repacking_off) {
  const auto changes = changes_for({});
  EXPECT_THAT(changes, SizeIs(3));
  EXPECT_EQ(changes.at("LD_PRELOAD").value, "/lib/p.so");
  EXPECT_EQ(changes.at("RESIDCTL_RUN_PAGE").value, "/tmp/page");
  EXPECT_EQ(changes.at("LLAMA_ARG_REPACK").value, "0");
  EXPECT_EQ(changes.at("LLAMA_ARG_REPACK").reason, "");
}

TEST(AdaptEnvironment, leaves_repacking_alone_where_it_stands_aside) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  EXPECT_THAT(adapt_environment(nothing, {"/lib/p.so", {}}, "/tmp/page", true), SizeIs(2));
}

TEST(AdaptEnvironment, names_its_ggml_backend_unless_there_is_one_or_it_stands_aside) {
  const Libraries libraries{"/lib/p.so", "/lib/b.so"};
  const char* value = nullptr;
  const auto get = [&](const char* name) {
    return std::string_view(name) == "GGML_BACKEND_PATH" ? value : nullptr;
  };
  const auto named = [&](bool aside) {
    for (const Change& change : adapt_environment(get, libraries, "/tmp/page", aside)) {
      if (change.name == "GGML_BACKEND_PATH") return change.value;
    }
    return std::string();
  };
  EXPECT_EQ(named(false), "/lib/b.so");
  EXPECT_EQ(named(true), "");
  value = "/mine.so";
  EXPECT_EQ(named(false), "");
}

TEST(AdaptEnvironment, removes_what_ends_the_mapping) {
  const auto changes = changes_for({{"LLAMA_ARG_NO_MMAP", "0"},
                                    {"LLAMA_ARG_MMAP", "false"},
                                    {"LLAMA_ARG_DIO", "0"},
                                    {"LLAMA_ARG_MLOCK", "1"},
                                    {"LLAMA_ARG_LOAD_MODE", "dio"},
                                    {"LLAMA_ARG_REPACK", "1"}});
  for (const char* name : {"LLAMA_ARG_NO_MMAP", "LLAMA_ARG_MMAP", "LLAMA_ARG_DIO",
                           "LLAMA_ARG_MLOCK", "LLAMA_ARG_LOAD_MODE"}) {
    ASSERT_TRUE(changes.contains(name)) << name;
    EXPECT_TRUE(changes.at(name).remove) << name;
    EXPECT_NE(changes.at(name).reason, "") << name;
  }
  EXPECT_NE(changes.at("LLAMA_ARG_REPACK").reason, "");
}

TEST(AdaptEnvironment, keeps_what_maps) {
  const auto changes = changes_for(
      {{"LLAMA_ARG_MMAP", "1"}, {"LLAMA_ARG_LOAD_MODE", "mmap"}, {"LLAMA_ARG_MLOCK", "0"}});
  EXPECT_THAT(changes, SizeIs(3));
}

}  // namespace
}  // namespace resid::run

// The program as its users meet it: exit codes, streams and messages.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = -1;   // exit code
  int signal = 0;  // that ended it
  std::string out;
  std::string err;
};

class Command : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "command-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  // Starts the program in the test's folder, with nothing of ours in its environment.
  pid_t start(const std::string& program, std::vector<std::string> args,
              const std::vector<std::string>& environment, const std::string& out) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::chdir(folder_.c_str()) != 0) ::_exit(125);
    const int out_fd = ::open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int err_fd = ::open("stderr.txt", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    ::dup2(out_fd, STDOUT_FILENO);
    ::dup2(err_fd, STDERR_FILENO);
    args.insert(args.begin(), program);
    std::vector<char*> argv;
    for (std::string& a : args)
      argv.push_back(a.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = environment;
    variables.push_back("PATH=" + std::string(std::getenv("PATH")));
    variables.push_back("HOME=" + folder_.string());
    std::vector<char*> envp;
    for (std::string& v : variables)
      envp.push_back(v.data());
    envp.push_back(nullptr);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(126);
  }
  Outcome finish(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    Outcome o;
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    o.out = read(folder_ / "stdout.txt");
    o.err = read(folder_ / "stderr.txt");
    return o;
  }
  Outcome run(std::vector<std::string> args, const std::vector<std::string>& environment = {}) {
    return finish(start(kProgram, std::move(args), environment, "stdout.txt"));
  }
  // Wrong usage: exit 2, nothing on stdout, one line `residctl: what : why : what to do`.
  std::string usage_error(std::vector<std::string> args,
                          const std::vector<std::string>& environment = {}) {
    const Outcome o = run(std::move(args), environment);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, StartsWith("residctl: "));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    return o.err;
  }

  // All verbs, as the program itself lists them to bash.
  std::vector<std::string> verbs() {
    const std::string script = run({"completion", "bash"}).out;
    const std::string start = "'') mapfile -t COMPREPLY < <(compgen -W '";
    auto at = script.find(start);
    if (at == std::string::npos) return {};
    at += start.size();
    std::vector<std::string> out;
    std::istringstream words(script.substr(at, script.find('\'', at) - at));
    for (std::string w; words >> w;) {
      if (!w.starts_with("-")) out.push_back(w);
    }
    return out;
  }

  const std::string kProgram = RESID_BIN_DIR "/residctl";
  fs::path folder_;
};

TEST_F(Command, VersionIsOneLine) {
  const Outcome o = run({"--version"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, testing::MatchesRegex("residctl [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(Command, HelpListsTheVerbs) {
  const Outcome o = run({"--help"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "");
  for (const std::string& v : verbs())
    EXPECT_THAT(o.out, HasSubstr(v));
}

TEST_F(Command, HelpOfEveryVerbHasAnExampleAndJson) {
  const auto all = verbs();
  ASSERT_GE(all.size(), 3U);
  for (const std::string& v : all) {
    const Outcome o = run({v, "--help"});
    EXPECT_EQ(o.code, 0) << v;
    EXPECT_THAT(o.out, HasSubstr("Examples:\n")) << v;
    EXPECT_THAT(o.out.substr(o.out.find("Examples:")), HasSubstr("residctl " + v)) << v;
    EXPECT_THAT(o.out, HasSubstr("--json")) << v;
  }
}

TEST_F(Command, NoVerbIsWrongUsage) {
  const Outcome o = run({});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("residctl: command line : no verb : "));
}

TEST_F(Command, AnUnknownVerbSuggestsTheNearest) {
  EXPECT_EQ(usage_error({"inspct", "x"}),
            "residctl: command line : unknown verb 'inspct' : did you mean `residctl inspect`?\n");
  EXPECT_THAT(usage_error({"--json", "frobnicate"}), HasSubstr("give one of "));
}

TEST_F(Command, AnUnknownOptionSuggestsTheNearest) {
  EXPECT_THAT(usage_error({"synth", "--lairs", "3", "m.gguf"}),
              HasSubstr("synth : unknown option '--lairs' : did you mean --layers?"));
  EXPECT_THAT(usage_error({"inspect", "m", "--xyzzy"}), HasSubstr("see `residctl inspect --help`"));
  EXPECT_THAT(usage_error({"--verson"}), HasSubstr("did you mean --version?"));
}

TEST_F(Command, MissingAndMalformedArgumentsAreWrongUsage) {
  EXPECT_THAT(usage_error({"synth"}), HasSubstr("OUT"));
  EXPECT_THAT(usage_error({"synth", "--layers", "many", "m.gguf"}), HasSubstr("many"));
  EXPECT_THAT(usage_error({"synth", "--layers", "-3", "m.gguf"}), HasSubstr("-3"));
  EXPECT_THAT(usage_error({"synth", "--layers"}), HasSubstr("--layers"));
  EXPECT_THAT(usage_error({"synth", "m.gguf", "n.gguf"}), HasSubstr("n.gguf"));
}

TEST_F(Command, AFullDeviceBehindStdoutIsAFailure) {
  const Outcome o = finish(start(kProgram, {"--help"}, {}, "/dev/full"));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("standard output"));
}

TEST_F(Command, CompletionScriptsParse) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Outcome made = run({"completion", shell});
    ASSERT_EQ(made.code, 0);
    EXPECT_THAT(made.out, HasSubstr("synth"));
    put("script", made.out);
    std::string program;
    for (const char* folder : {"/bin/", "/usr/bin/"}) {
      if (fs::exists(folder + shell)) program = folder + shell;
    }
    if (program.empty()) continue;  // bash is everywhere; the others where installed
    const Outcome o = finish(start(program, {"-n", "script"}, {}, "stdout.txt"));
    EXPECT_EQ(o.code, 0) << shell << ": " << o.err;
  }
  EXPECT_THAT(usage_error({"completion", "tcsh"}), HasSubstr("give bash, zsh or fish"));
}

TEST_F(Command, BashCompletesVerbsOptionsAndValues) {
  put("try.sh",
      "source <(\"$1\" completion bash)\nshift\nCOMP_WORDS=(\"$@\")\n"
      "COMP_CWORD=$(($# - 1))\n_residctl\necho \"${COMPREPLY[@]}\"\n");
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"try.sh", kProgram});
    return finish(start("/bin/bash", words, {}, "stdout.txt")).out;
  };
  EXPECT_EQ(complete({"residctl", "syn"}), "synth\n");
  EXPECT_EQ(complete({"residctl", "synth", "--kv"}), "--kv-heads\n");
  EXPECT_EQ(complete({"residctl", "synth", "--quant", "q"}), "q4_0 q8_0\n");
  EXPECT_EQ(complete({"residctl", "completion", "f"}), "fish\n");
  EXPECT_EQ(complete({"residctl", "inspect", "try"}), "try.sh\n");
}

TEST_F(Command, SynthWritesAndInspectReads) {
  const Outcome made =
      run({"synth", "--json", "--arch", "qwen3moe", "--layers", "2", "--hidden", "64", "--ff", "32",
           "--experts", "4", "--used", "2", "--seed", "5", "m.gguf"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.err, "");
  const auto report = nlohmann::json::parse(made.out);
  EXPECT_EQ(report["bytes"], fs::file_size(folder_ / "m.gguf"));
  EXPECT_EQ(report["experts"], 4);

  const Outcome seen = run({"inspect", "--json", "--tensors", "m.gguf"});
  ASSERT_EQ(seen.code, 0) << seen.err;
  const auto json = nlohmann::json::parse(seen.out);
  EXPECT_EQ(json["architecture"], "qwen3moe");
  EXPECT_EQ(json["layers"], 2);
  EXPECT_EQ(json["experts"], 4);
  EXPECT_EQ(json["experts_used"], 2);
  const auto& totals = json["totals"];
  EXPECT_EQ(totals["bytes"], fs::file_size(folder_ / "m.gguf"));
  EXPECT_EQ(totals["metadata_bytes"].get<std::uint64_t>() +
                totals["tensor_bytes"].get<std::uint64_t>() +
                totals["padding_bytes"].get<std::uint64_t>(),
            totals["bytes"].get<std::uint64_t>());
  EXPECT_EQ(json["tensors"].size(), totals["tensors"].get<std::size_t>());

  const Outcome text = run({"inspect", "m.gguf", "--tensors"});
  EXPECT_EQ(text.code, 0);
  for (const char* part :
       {"qwen3moe", "metadata", "padding", "total", "expert_gate", "blk.1.ffn_down_exps.weight"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
}

TEST_F(Command, SynthRefusesToOverwrite) {
  const std::vector<std::string> args{"synth", "--layers", "1", "--hidden", "64", "m.gguf"};
  ASSERT_EQ(run(args).code, 0);
  const std::string before = read(folder_ / "m.gguf");
  EXPECT_THAT(usage_error(args), HasSubstr("m.gguf : exists already : "));
  EXPECT_TRUE(read(folder_ / "m.gguf") == before);
  auto forced = args;
  forced.insert(forced.end(), {"--force", "--seed", "2"});
  EXPECT_EQ(run(forced).code, 0);
  EXPECT_FALSE(read(folder_ / "m.gguf") == before);
}

TEST_F(Command, SynthNamesTheOptionAtFault) {
  EXPECT_EQ(usage_error({"synth", "--hidden", "100", "m.gguf"}),
            "residctl: --hidden : 100 is not a multiple of 32, the quantisation block : give 96 or "
            "128\n");
  EXPECT_THAT(usage_error({"synth", "--quant", "q3", "m.gguf"}), HasSubstr("--quant"));
  EXPECT_THAT(usage_error({"synth", "--arch", "gpt", "m.gguf"}), HasSubstr("--arch"));
  EXPECT_THAT(usage_error({"synth", "--size", "50%", "m.gguf"}), HasSubstr("--size"));
  EXPECT_FALSE(fs::exists(folder_ / "m.gguf"));
}

TEST_F(Command, ASignalEndsSynthAndLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    // Large enough not to be done before the signal, which is sent as soon as work has begun: the
    // file has no name then, but the process holds it open.
    const pid_t child = start(kProgram, {"synth", "--size", "2GiB", "m.gguf"}, {}, "stdout.txt");
    const fs::path fds = fs::path("/proc") / std::to_string(child) / "fd";
    bool begun = false;
    while (!begun && ::kill(child, 0) == 0) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(fds, error)) {
        const fs::path target = fs::read_symlink(entry.path(), error);
        const std::string name = target.string();
        begun = begun || (name.starts_with(folder_.string()) && !name.ends_with(".txt") &&
                          name != folder_.string());
      }
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) == child) FAIL() << read(folder_ / "stderr.txt");
      ::usleep(1000);
    }
    ASSERT_EQ(::kill(child, signal), 0);
    const Outcome o = finish(child);
    EXPECT_EQ(o.signal, signal) << o.code << o.err;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().extension(), ".txt") << entry.path();
    }
  }
}

TEST_F(Command, InspectRefusesWhatIsNoModel) {
  EXPECT_THAT(usage_error({"inspect", "none.gguf"}), HasSubstr("none.gguf"));
  EXPECT_THAT(usage_error({"inspect", "."}), HasSubstr("residctl: "));
  put("empty.gguf", "");
  EXPECT_THAT(usage_error({"inspect", "empty.gguf"}), HasSubstr("empty.gguf"));
  put("text.gguf", "this is no model, whatever its name says\n");
  EXPECT_THAT(usage_error({"inspect", "text.gguf"}), HasSubstr("text.gguf"));
}

TEST_F(Command, SettingsComeFromEverySource) {
  ASSERT_EQ(run({"synth", "--layers", "1", "--hidden", "64", "m.gguf"}).code, 0);
  const auto chunk_max = [&](std::vector<std::string> more,
                             const std::vector<std::string>& environment) {
    more.insert(more.begin(), {"inspect", "--json", "m.gguf"});
    const Outcome o = run(more, environment);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out)["chunks"]["chunk_max"].get<std::uint64_t>();
  };
  EXPECT_EQ(chunk_max({}, {}), 2U << 20);
  fs::create_directories(folder_ / ".config/residctl");
  put(".config/residctl/residctl.toml", "chunk-max = '512KiB'\n");
  EXPECT_EQ(chunk_max({}, {}), 512U << 10);
  put("residctl.toml", "chunk-max = '256KiB'\n");
  EXPECT_EQ(chunk_max({}, {}), 256U << 10);
  EXPECT_EQ(chunk_max({}, {"RESIDCTL_CHUNK_MAX=128KiB"}), 128U << 10);
  EXPECT_EQ(chunk_max({"--chunk-max", "64KiB"}, {"RESIDCTL_CHUNK_MAX=128KiB"}), 64U << 10);
}

TEST_F(Command, AWrongSettingNamesItsPlace) {
  put("residctl.toml", "\nchunk-maximum = 3\n");
  EXPECT_THAT(usage_error({"inspect", "m.gguf"}),
              StartsWith("residctl: residctl.toml:2 : unknown setting 'chunk-maximum' : "));
  put("residctl.toml", "chunk-max = 'big'\n");
  EXPECT_THAT(usage_error({"inspect", "m.gguf"}),
              StartsWith("residctl: residctl.toml:1: chunk-max : 'big' "));
  // A broken file does not hinder a verb that has no settings.
  EXPECT_EQ(run({"completion", "bash"}).code, 0);
  fs::remove(folder_ / "residctl.toml");
  EXPECT_THAT(usage_error({"inspect", "m.gguf"}, {"RESIDCTL_CHUNK_MAX=big"}),
              StartsWith("residctl: RESIDCTL_CHUNK_MAX : 'big' "));
}

TEST_F(Command, WhatStandsBehindTwoDashesIsAnArgument) {
  put("--odd", "no model");
  EXPECT_THAT(usage_error({"inspect", "--", "--odd"}), HasSubstr("--odd"));
}

}  // namespace

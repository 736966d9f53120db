#pragma once
// Running residctl and looking at what came out.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace resid::test {

inline const std::string kResidctl = RESID_BIN_DIR "/residctl";
inline const std::string kReader = RESID_TEST_DIR "/resid_map_reader";
inline const std::string kOps = RESID_TEST_DIR "/resid_map_ops";

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A folder that every user may enter, removed with its contents.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/residctl-test.XXXXXX";
    path_ = ::mkdtemp(name);
    ::chmod(path_.c_str(), 0777);
  }
  ~Folder() { (void)!std::system(("rm -rf " + path_).c_str()); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Whether every folder above `path` lets any user through: a checkout below /root does not.
inline bool everybody_can_reach(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    struct stat st {};
    if (::stat(path.substr(0, at).c_str(), &st) != 0 || (st.st_mode & S_IXOTH) == 0) return false;
  }
  return true;
}

// A safetensors file of `tensors` tensors of `bytes_each`, filled so that every page differs.
inline void write_safetensors(const std::string& path, int tensors, std::uint64_t bytes_each) {
  nlohmann::json header;
  for (int i = 0; i < tensors; ++i) {
    const std::uint64_t begin = bytes_each * static_cast<std::uint64_t>(i);
    header[fmt::format("model.layers.{}.mlp.down_proj.weight", i)] = {
        {"dtype", "F32"},
        {"shape", {bytes_each / 4}},
        {"data_offsets", {begin, begin + bytes_each}}};
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0)
    text += ' ';
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text;
  std::vector<std::uint64_t> words(bytes_each / 8);
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  for (int i = 0; i < tensors; ++i) {
    for (std::uint64_t& word : words) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      word = state;
    }
    out.write(reinterpret_cast<const char*>(words.data()),
              static_cast<std::streamsize>(bytes_each));
  }
  ASSERT_TRUE(out.good());
}

inline std::string fnv_of(const std::string& path) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : slurp(path))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return fmt::format("{:016x}\n", hash);
}

struct Outcome {
  int code = -1;  // as a shell reports it; 124: it hung and was ended
  std::string out;
  std::string err;
};

// A program with its output in files. Ended by timeout(1) when it hangs.
class Process {
 public:
  Process(const Folder& folder, std::vector<std::string> command, int limit_s = 120)
      : out_(folder / "stdout"), err_(folder / "stderr") {
    std::vector<std::string> words{"timeout", "-k", "5", std::to_string(limit_s)};
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    // Before the fork: what an earlier process in this folder said must not be taken for this
    // one's.
    ::unlink(out_.c_str());
    ::unlink(err_.c_str());
    pid_ = ::fork();
    if (pid_ == 0) {
      // A shell's background job ignores these, and so would everything it starts.
      for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM})
        ::signal(number, SIG_DFL);
      ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Process(const Process&) = delete;

  std::string out() const { return slurp(out_); }
  std::string err() const { return slurp(err_); }
  // The process behind timeout(1).
  pid_t inner() const {
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid_));
    pid_t pid = 0;
    children >> pid;
    EXPECT_GT(pid, 0);
    return pid > 0 ? pid : pid_;  // never 0: that would be a signal to ourselves
  }
  bool wait_for_output(const std::string& text) const {
    for (int i = 0; i < 6000; ++i) {
      if (out().find(text) != std::string::npos) return true;
      if (::waitid(P_PID, static_cast<id_t>(pid_), nullptr, WEXITED | WNOHANG | WNOWAIT) != 0)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  Outcome finish() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
  }

 private:
  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
};

inline Outcome execute(const Folder& folder, std::vector<std::string> command) {
  return Process(folder, std::move(command)).finish();
}

inline std::vector<std::string> operator+(std::vector<std::string> a,
                                          const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// `residctl run` with a budget far below the test's model and small chunks.
inline std::vector<std::string> run_with(const std::vector<std::string>& options) {
  return std::vector<std::string>{kResidctl, "run", "--chunk-max", "256KiB", "--eager-reconcile"} +
         options;
}

// A sanitized preload library cannot enter a program that is not.
inline bool preload_works() {
  return std::string(RESID_SANITIZE).empty();
}
#define RESID_NEED_PRELOAD()                                                            \
  if (!::resid::test::preload_works()) {                                                \
    GTEST_SKIP() << "a sanitized library cannot be preloaded into an ordinary program"; \
  }

}  // namespace resid::test

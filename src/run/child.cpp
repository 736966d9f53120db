#include "run/child.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.hpp"

namespace resid::run {
namespace {

enum class Stage : int { group, exec };

// Written to the pipe by the child when it cannot become the program.
struct Complaint {
  Stage stage = Stage::exec;
  int error = 0;
};

std::vector<std::string> changed_environment(const std::vector<Change>& changes) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const Change& change) { return change.name == name; });
    if (!changed) out.push_back(text);
  }
  for (const Change& change : changes) {
    if (!change.remove) out.push_back(change.name + "=" + change.value);
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void complain(int pipe, Stage stage, int error) {
  const Complaint complaint{stage, error};
  (void)!::write(pipe, &complaint, sizeof complaint);
  ::_exit(127);
}

}  // namespace

Result<pid_t> start(const Launch& launch) {
  std::vector<std::string> arguments = launch.arguments;
  std::vector<std::string> environment = changed_environment(launch.environment);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(Status::system, "pipe", errno);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(Status::system, "fork", errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // died before the line above
    if (launch.group != nullptr) {
      if (const int error = launch.group->enter_self(); error != 0) {
        complain(write_end.get(), Stage::group, error);
      }
    }
    if (launch.stdout_to_stderr) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::sigprocmask(SIG_SETMASK, &launch.signal_mask, nullptr);
    ::execve(launch.path.c_str(), argv.data(), envp.data());
    complain(write_end.get(), Stage::exec, errno);
  }
  write_end.reset();
  Complaint complaint;
  ssize_t n = 0;
  do {
    n = ::read(read_end.get(), &complaint, sizeof complaint);
  } while (n < 0 && errno == EINTR);
  if (n == 0) return pid;
  ::waitpid(pid, nullptr, 0);
  if (complaint.stage == Stage::group) {
    return fail_errno(Status::cgroup_denied, launch.group->path(), complaint.error);
  }
  return fail_errno(Status::program_not_found, launch.path, complaint.error);
}

}  // namespace resid::run

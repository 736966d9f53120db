#include "run/supervise.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace resid::run {
namespace {

constexpr std::array kPassedOn{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr long kTickNs = 10'000'000;

// What a process read through system calls. A zombie still has it (proc_pid_io(5)).
std::uint64_t chars_read_by(pid_t pid) {
  std::ifstream io(fmt::format("/proc/{}/io", pid));
  std::string key;
  std::uint64_t value = 0;
  while (io >> key >> value) {
    if (key == "rchar:") return value;
  }
  return 0;
}

bool ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

SignalHold::SignalHold() {
  ::sigemptyset(&held_);
  for (const int number : kPassedOn)
    ::sigaddset(&held_, number);
  ::sigaddset(&held_, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &held_, &before_);
}

SignalHold::~SignalHold() {
  // What came too late for the program is answered by the report; it must not end us before.
  const timespec none{};
  while (::sigtimedwait(&held_, nullptr, &none) > 0) {
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

Supervised supervise(pid_t pid, const SignalHold& signals, const std::function<void()>& tick) {
  while (!ended(pid)) {
    tick();
    const timespec pause{0, kTickNs};
    siginfo_t info{};
    const int number = ::sigtimedwait(&signals.held(), &info, &pause);
    if (number <= 0 || number == SIGCHLD) continue;
    // A terminal sends Ctrl-C to the whole foreground group: the program, which is in ours, has it
    // already, and many programs take a second one for impatience.
    const bool from_terminal = info.si_code == SI_KERNEL;
    if (!from_terminal) ::kill(pid, number);
  }
  tick();
  Supervised out;
  out.chars_read = chars_read_by(pid);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  out.ending.by_signal = WIFSIGNALED(status);
  out.ending.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return out;
}

}  // namespace resid::run

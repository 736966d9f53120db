#include "sweep/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace resid::sweep {
namespace {

constexpr std::size_t kMostWords = 64U << 10;
constexpr std::uint64_t kGraceNs = 5'000'000'000;

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(Status::system, "pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// The script or nothing, as a descriptor to read from: a file, so that no writer can block.
Result<Fd> input_of(const std::optional<std::string>& text) {
  if (!text) {
    Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(Status::system, "/dev/null", errno);
    return fd;
  }
  Fd fd(::memfd_create("input", MFD_CLOEXEC));
  if (!fd) return fail_errno(Status::system, "memfd", errno);
  if (::write(fd.get(), text->data(), text->size()) != static_cast<ssize_t>(text->size()) ||
      ::lseek(fd.get(), 0, SEEK_SET) != 0) {
    return fail_errno(Status::system, "memfd", errno);
  }
  return fd;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& set) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string key = text.substr(0, text.find('='));
    if (std::none_of(set.begin(), set.end(), [&](const auto& s) { return s.first == key; })) {
      out.push_back(text);
    }
  }
  for (const auto& [key, value] : set)
    out.push_back(key + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

struct Complaint {
  bool group = false;
  int error = 0;
};

// Reads what is there. False at the end of the stream.
bool drain(int fd, std::string& into) {
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      into.append(buffer.data(), static_cast<std::size_t>(n));
      return true;
    }
    if (n == 0) return false;
    if (errno != EINTR) return errno == EAGAIN;
  }
}

// Watches one child until it has been reaped.
class Watch {
 public:
  Watch(const ProcessRequest& request, pid_t pid, Fd out, Fd err)
      : request_(request), pid_(pid), out_(std::move(out)), err_(std::move(err)) {
    ::fcntl(out_.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(err_.get(), F_SETFL, O_NONBLOCK);
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }

  ProcessResult finish() {
    const std::uint64_t began = now_ns();
    for (;;) {
      siginfo_t info{};
      // Not reaped yet, so that its number stays its own until its group has been killed.
      const int waited =
          ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if ((waited == 0 && info.si_pid == pid_) || (waited != 0 && errno != EINTR)) break;
      const std::uint64_t now = now_ns();
      end_early(now, began);
      wait_a_while();
      collect();
      if (request_.tick && now - ticked_ns_ >= tick_ns()) {
        ticked_ns_ = now;
        request_.tick(pid_);
      }
    }
    result_.wall_s = static_cast<double>(now_ns() - began) / 1e9;
    // What it started and left behind would go on reading the disk and holding its control group.
    ::kill(-pid_, SIGKILL);
    int status = 0;
    rusage usage{};
    while (::wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    while (out_ && collect_out()) {
    }
    while (err_ && collect_err()) {
    }
    result_.read_bytes = static_cast<std::uint64_t>(usage.ru_inblock) * 512;
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
    return std::move(result_);
  }

 private:
  std::uint64_t tick_ns() const { return static_cast<std::uint64_t>(request_.tick_ms) * 1'000'000; }

  void end_early(std::uint64_t now, std::uint64_t began) {
    if (asked_ns_ == 0) {
      result_.stopped = request_.stop != nullptr && request_.stop->load();
      result_.timed_out =
          request_.limit_s > 0 && static_cast<double>(now - began) / 1e9 > request_.limit_s;
      if (!result_.stopped && !result_.timed_out) return;
      asked_ns_ = now;
      ::kill(-pid_, SIGTERM);
    } else if (now - asked_ns_ > kGraceNs) {
      ::kill(-pid_, SIGKILL);
    }
  }

  void wait_a_while() {
    std::array<pollfd, 3> fds{
        {{pidfd_.get(), POLLIN, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
    // Without a pidfd (an old kernel) the child's end is seen at the next tick.
    ::poll(fds.data(), fds.size(), std::min(request_.tick_ms, pidfd_ ? 1000 : 20));
  }

  void collect() {
    if (out_) collect_out();
    if (err_) collect_err();
  }

  // True while there may be more at once.
  bool collect_out() {
    const std::size_t before = result_.out.size();
    if (!drain(out_.get(), result_.out)) out_.reset();
    const bool more = result_.out.size() != before;
    if (result_.out.size() > request_.most_output) {
      result_.out.resize(request_.most_output);
      result_.output_cut = true;
    }
    return more && !result_.output_cut;
  }
  bool collect_err() {
    const std::size_t before = result_.err.size();
    if (!drain(err_.get(), result_.err)) err_.reset();
    const bool more = result_.err.size() != before;
    if (result_.err.size() > 2 * kMostWords) {
      result_.err.erase(0, result_.err.size() - kMostWords);
    }
    return more;
  }

  const ProcessRequest& request_;
  pid_t pid_;
  Fd out_;
  Fd err_;
  Fd pidfd_;
  ProcessResult result_;
  std::uint64_t asked_ns_ = 0;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace

Result<ProcessResult> run_process(const ProcessRequest& request) {
  std::vector<std::string> command = request.command;
  std::vector<std::string> environment = environment_with(request.environment);
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(environment);
  auto in = input_of(request.input);
  if (!in) return tl::unexpected(in.error());
  auto out = make_pipe();
  if (!out) return tl::unexpected(out.error());
  auto err = make_pipe();
  if (!err) return tl::unexpected(err.error());
  auto start = make_pipe();
  if (!start) return tl::unexpected(start.error());

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(Status::system, "fork", errno);
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // died before the line above
    Complaint complaint;
    if (request.group != nullptr) complaint.error = request.group->enter_self();
    complaint.group = complaint.error != 0;
    if (!complaint.group) {
      ::dup2(in->get(), STDIN_FILENO);
      ::dup2(out->write.get(), STDOUT_FILENO);
      ::dup2(err->write.get(), STDERR_FILENO);
      ::execvpe(request.path.c_str(), argv.data(), envp.data());
      complaint.error = errno;
    }
    (void)!::write(start->write.get(), &complaint, sizeof complaint);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // whoever comes first
  out->write.reset();
  err->write.reset();
  start->write.reset();
  Complaint complaint;
  ssize_t n = 0;
  do {
    n = ::read(start->read.get(), &complaint, sizeof complaint);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof complaint)) {
    ::waitpid(pid, nullptr, 0);
    if (complaint.group) {
      return fail_errno(Status::cgroup_denied, request.group->path(), complaint.error);
    }
    return fail_errno(Status::program_not_found, request.path, complaint.error);
  }
  return Watch(request, pid, std::move(out->read), std::move(err->read)).finish();
}

}  // namespace resid::sweep

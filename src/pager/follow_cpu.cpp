#include "pager/follow_cpu.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/fd.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kPeriodNs = 20'000'000;
constexpr int kOthers = 3;  // faults in a row of other threads, before the followed one is let go

// The processor a thread of this process ran on last (field 39 of stat, proc(5)); -1 when unknown.
// Runs on the fault thread: nothing is allocated (I-13).
int processor_of(pid_t thread) {
  std::array<char, 64> path{};
  constexpr std::string_view kBefore = "/proc/self/task/";
  char* at = path.data();
  std::memcpy(at, kBefore.data(), kBefore.size());
  at = std::to_chars(at + kBefore.size(), path.data() + 40, thread).ptr;
  std::memcpy(at, "/stat", 6);
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!file) return -1;
  std::array<char, 1024> text{};
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n <= 0) return -1;
  std::string_view line(text.data(), static_cast<std::size_t>(n));
  // The name, in parentheses, may hold anything: what counts is behind the last one.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos) return -1;
  line.remove_prefix(name_end + 1);
  for (int field = 2; field < 38; ++field) {
    const std::size_t blank = line.find(' ', 1);
    if (blank == std::string_view::npos) return -1;
    line.remove_prefix(blank);
  }
  int processor = -1;
  const auto read = std::from_chars(line.data() + 1, line.data() + line.size(), processor);
  if (read.ec != std::errc{}) return -1;
  line.remove_prefix(static_cast<std::size_t>(read.ptr - line.data()));
  // Field 40 is the real-time priority.
  return line.substr(0, 3) == " 0 " ? processor : -1;
}

}  // namespace

void FollowCpu::start() {
  // With more processors than a cpu_set_t holds this fails, and nothing is followed.
  may_ = ::sched_getaffinity(0, sizeof given_, &given_) == 0 && CPU_COUNT(&given_) > 1;
}

void FollowCpu::follow(pid_t thread, std::uint64_t now_ns) {
  if (!may_ || thread <= 0) return;
  if (thread == followed_) {
    others_ = 0;
  } else if (at_ >= 0 && ++others_ >= kOthers) {
    let_go();
  }
  if (now_ns - looked_ns_ < kPeriodNs) return;
  looked_ns_ = now_ns;
  const int cpu = processor_of(thread);
  if (cpu < 0) let_go();
  followed_ = thread;
  others_ = 0;
  if (cpu == at_ || cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &given_)) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  if (::sched_setaffinity(0, sizeof only, &only) == 0) at_ = cpu;
}

void FollowCpu::let_go() {
  if (at_ >= 0) ::sched_setaffinity(0, sizeof given_, &given_);
  at_ = -1;
  followed_ = 0;
}

}  // namespace resid

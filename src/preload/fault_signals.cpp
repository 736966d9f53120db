#include "preload/fault_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/sys.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

RunPage* g_page = nullptr;
struct sigaction g_old_bus {};
struct sigaction g_old_segv {};
std::atomic<bool> g_told{false};

void take_default(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
}

// The default action, as if no handler had been there. A fault comes again when the handler
// returns; a signal that was sent has to be sent again.
void end_by(int number, const siginfo_t* info) {
  take_default(number);
  if (info->si_code <= 0) {
    ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), number);
  }
}

void chain(const struct sigaction& old, int number, siginfo_t* info, void* context) {
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    old.sa_sigaction(number, info, context);
  } else if (old.sa_handler == SIG_DFL) {
    end_by(number, info);
  } else if (old.sa_handler == SIG_IGN) {
    // The kernel does not ignore a fault: returning would repeat it for ever.
    if (info->si_code > 0) end_by(number, info);
  } else {
    old.sa_handler(number);
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const Pager* pager = Session::pager();
  // Without a recorded failure the view is sound, and the program has to do with it what it may
  // not: that is between the program and its own handlers.
  if (info->si_code > 0 && g_page->last_status.load() != 0 && pager != nullptr &&
      pager->in_view(info->si_addr, 1)) {
    if (!g_told.exchange(true)) {
      RawLine out;
      out << std::string_view("residctl: ")
          << std::string_view(number == SIGBUS ? "SIGBUS" : "SIGSEGV")
          << std::string_view(" : weights cannot be had : see the failure above");
      out.emit();
    }
    end_by(number, info);
  } else {
    chain(number == SIGBUS ? g_old_bus : g_old_segv, number, info, context);
  }
  errno = saved;
}

void install(int number, struct sigaction& old) {
  if (::sigaction(number, nullptr, &old) != 0) return;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  // The old handler's own wishes about mask and nesting stay in force.
  action.sa_mask = old.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (old.sa_flags & (SA_NODEFER | SA_RESTART));
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void install_fault_signals(RunPage& page) {
  g_page = &page;
  install(SIGBUS, g_old_bus);
  install(SIGSEGV, g_old_segv);
}

}  // namespace resid::preload

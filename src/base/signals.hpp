#pragma once
// Threads of ours take no signals: a handler of the host program could touch an app view, and who
// serves those must never wait for itself (I-1). The mask is inherited: one of these lives while
// threads are started.

#include <csignal>

namespace resid {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t old_{};
};

}  // namespace resid

// Loading: the one constructor of the library. It has no destructor, and no static object in it has
// one: threads of the program may touch weights after every destructor has run.

#include <pthread.h>

#include "ggml/extra_buffers.hpp"
#include "preload/real.hpp"
#include "preload/session.hpp"

namespace resid::preload {
namespace {

void before_fork() {
  Session::get()->before_fork();
}
void in_parent() {
  Session::get()->after_fork_in_parent();
}
void in_child() {
  Session::get()->after_fork_in_child();
}

__attribute__((constructor)) void load() {
  resolve_real();
  try {
    const Inside inside;
    Session::start();
  } catch (...) {
    return;  // out of memory before main: the program runs as if we were not there
  }
  if (Session::get() == nullptr) return;
  ::pthread_atfork(before_fork, in_parent, in_child);
  if (Session::get()->page().config.aside_expected != 0) return;
  ggml::deny_extra_buffers([] {
    Session::get()->notice(Notice::repack_off,
                           "ggml's repacked weight buffers are off: they would copy the weights "
                           "out of the budget's reach");
  });
}

}  // namespace
}  // namespace resid::preload

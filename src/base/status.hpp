#pragma once
// The one list of ways in which residctl fails, and how a failure is carried and shown.
//
// Every value has one sentence that tells the reader what to do about it (`remedy`). Functions that
// can fail return Result<T>; no exception crosses the C ABI, the fault thread or the preload
// library.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace resid {

enum class Status : std::uint8_t {
  ok = 0,
  usage,                // the command line or a setting is wrong
  no_such_file,         // a path that was named does not exist
  not_a_file,           // a directory, socket or device where a file is needed
  empty_file,           // zero bytes
  unreadable,           // open or read refused by the system
  not_a_model,          // neither GGUF nor safetensors by content
  malformed,            // a model file that contradicts itself
  unsupported,          // a valid file of a kind we do not read
  write_failed,         // an output file could not be written
  budget_too_small,     // fewer bytes than two of the largest chunks
  infeasible,           // nothing evictable is left at this budget
  no_userfaultfd,       // every route to userfaultfd is closed
  kernel_too_old,       // userfaultfd lacks a feature we need
  swap_unsafe,          // I-3 cannot be guaranteed
  cgroup_unreadable,    // a control group file cannot be read or makes no sense
  cgroup_denied,        // a control group could not be made or limited
  store_changed,        // the model file is not the one that was opened (I-16)
  read_failed,          // the store gave an I/O error or a short read (I-14)
  accounting_diverged,  // our count of resident bytes is not the kernel's (I-7)
  nothing_mapped,       // the program never mapped a model
  program_unsuitable,   // static, setuid or otherwise out of the preload library's reach
  program_not_found,    // the program to run does not exist or is not executable
  budget_taken,         // another process of the same run already holds the budget
  out_of_memory,        // the system refused memory
  system,               // an unexpected system call failure
  cache_unknown,        // nobody tells this user what is cached of a file
  internal,             // a bug in residctl
};

// The sentence that names the remedy. Never empty for a failure.
std::string_view remedy(Status status);

// The short name, as written in JSON (`"status": "store_changed"`).
std::string_view name(Status status);

// The exit code of the command line for a failure: 1 the run failed, 2 wrong usage or unreadable
// input, 3 this machine cannot, 4 infeasible at this budget.
int exit_code(Status status);

// A failure as shown to people: `residctl: <what> : <why> : <what to do>`.
struct Failure {
  Status status = Status::internal;
  std::string what;  // the thing that failed: a file, a setting, a system call
  std::string why;   // the reason, with offset and field where input is at fault
  std::string todo;  // overrides remedy(status) where a better one is known

  std::string line() const;
};

template <class T>
using Result = tl::expected<T, Failure>;

inline tl::unexpected<Failure> fail(Status status, std::string what, std::string why,
                                    std::string todo = {}) {
  return tl::unexpected<Failure>(Failure{status, std::move(what), std::move(why), std::move(todo)});
}

// As fail(), the reason being the text of `error` (an errno value).
tl::unexpected<Failure> fail_errno(Status status, std::string what, int error,
                                   std::string todo = {});

}  // namespace resid

#include "base/status.hpp"

#include <system_error>

namespace resid {
namespace {

struct Row {
  std::string_view name;
  std::string_view remedy;
  int exit_code;
};

constexpr Row row(Status status) {
  switch (status) {
    case Status::ok:
      return {"ok", "nothing to do", 0};
    case Status::usage:
      return {"usage", "see `residctl --help`", 2};
    case Status::no_such_file:
      return {"no_such_file", "check the path", 2};
    case Status::not_a_file:
      return {"not_a_file", "name a model file, not a folder or device", 2};
    case Status::empty_file:
      return {"empty_file", "the download or copy did not finish: fetch the file again", 2};
    case Status::unreadable:
      return {"unreadable", "check the file's permissions", 2};
    case Status::not_a_model:
      return {"not_a_model", "name a GGUF or safetensors file", 2};
    case Status::malformed:
      return {"malformed", "the file is damaged: fetch it again and compare its checksum", 2};
    case Status::unsupported:
      return {"unsupported", "convert the file to GGUF version 2 or 3, or to safetensors", 2};
    case Status::write_failed:
      return {"write_failed", "check free space and permissions of the output folder", 1};
    case Status::budget_too_small:
      return {"budget_too_small", "give --ram at least two chunks, or lower --chunk-max", 4};
    case Status::infeasible:
      return {"infeasible", "raise --ram or pin less", 4};
    case Status::no_userfaultfd:
      return {"no_userfaultfd",
              "make /dev/userfaultfd readable for this user, or set sysctl "
              "vm.unprivileged_userfaultfd=1, or leave the container's seccomp profile",
              3};
    case Status::kernel_too_old:
      return {"kernel_too_old", "run Linux 5.14 or later", 3};
    case Status::swap_unsafe:
      return {"swap_unsafe",
              "run as root or with a delegated control group so that swap can be forbidden, or "
              "turn swap off (swapoff -a)",
              3};
    case Status::cgroup_unreadable:
      return {"cgroup_unreadable", "mount the control group file system, or pass --no-cgroup", 3};
    case Status::cgroup_denied:
      return {"cgroup_denied",
              "run as root, delegate a group (systemd-run --user --scope -p "
              "Delegate=yes), or pass --no-cgroup",
              3};
    case Status::store_changed:
      return {"store_changed", "leave the model file alone while a program uses it; start again",
              1};
    case Status::read_failed:
      return {"read_failed", "check the disk (dmesg) and the file; start again", 1};
    case Status::accounting_diverged:
      return {"accounting_diverged", "this is a bug in residctl: report both numbers", 1};
    case Status::nothing_mapped:
      return {"nothing_mapped",
              "the program must map a GGUF or safetensors file (llama.cpp: not --no-mmap); use "
              "--match GLOB for other files",
              3};
    case Status::program_unsuitable:
      return {"program_unsuitable", "use a dynamically linked build without setuid", 3};
    case Status::program_not_found:
      return {"program_not_found", "check the program's name and that it is executable", 2};
    case Status::budget_taken:
      return {"budget_taken", "run one model program at a time under one `residctl run`", 1};
    case Status::out_of_memory:
      return {"out_of_memory", "free memory or raise the memory limit", 1};
    case Status::system:
      return {"system", "see `residctl doctor`", 1};
    case Status::cache_unknown:
      return {"cache_unknown", "measure as root, or on a file that is your own", 3};
    case Status::internal:
      return {"internal", "this is a bug in residctl: please report it", 1};
  }
  return {"internal", "this is a bug in residctl: please report it", 1};
}

}  // namespace

std::string_view remedy(Status status) {
  return row(status).remedy;
}
std::string_view name(Status status) {
  return row(status).name;
}
int exit_code(Status status) {
  return row(status).exit_code;
}

std::string Failure::line() const {
  std::string out = "residctl: " + what + " : " + why + " : ";
  out += todo.empty() ? std::string(remedy(status)) : todo;
  return out;
}

tl::unexpected<Failure> fail_errno(Status status, std::string what, int error, std::string todo) {
  return fail(status, std::move(what), std::generic_category().message(error), std::move(todo));
}

}  // namespace resid

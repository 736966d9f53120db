#pragma once
// Finding the program to run, and whether a preload library can reach it at all.

#include <string>

#include "base/status.hpp"

namespace resid::run {

struct Program {
  std::string path;  // what is executed
  std::string elf;   // the ELF file that runs in the end: itself, or a script's interpreter
};

// Looks `name` up as execvp(3) does: as it stands when it holds a slash, else in `search_path`
// (a PATH; null stands for the system's default). Follows `#!` scripts to their interpreter. A
// program that the library cannot enter is program_unsuitable, with the reason: statically linked,
// linked against another libc, of another machine, or run with the dynamic loader in secure mode
// (set-user-ID, set-group-ID, file capabilities: ld.so(8) ignores LD_PRELOAD then).
Result<Program> find_program(const std::string& name, const char* search_path);

}  // namespace resid::run

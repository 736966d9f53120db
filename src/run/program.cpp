#include "run/program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "base/fd.hpp"

namespace resid::run {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
#error "which machine is this?"
#endif

// The kernel follows a script to a script at most this often (fs/exec.c).
constexpr int kScriptDepth = 5;

tl::unexpected<Failure> unsuitable(const std::string& path, std::string why,
                                   std::string todo = {}) {
  return fail(Status::program_unsuitable, path, std::move(why), std::move(todo));
}

Result<std::string> look_up(const std::string& name, const char* search_path) {
  if (name.empty()) return fail(Status::program_not_found, "program", "its name is empty");
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    std::istringstream folders(search_path != nullptr ? search_path
                                                      : "/usr/local/bin:/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
    }
  }
  std::string why =
      name.find('/') == std::string::npos ? "is in no folder of PATH" : "no such file";
  for (const std::string& path : candidates) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) why = path + ": " + std::strerror(errno);
      continue;
    }
    if (!S_ISREG(st.st_mode)) {
      why = path + " is not a regular file";
    } else if (::access(path.c_str(), X_OK) != 0) {
      why = path + " is not executable";
    } else {
      return path;
    }
  }
  return fail(Status::program_not_found, name, why);
}

// ld.so(8): LD_PRELOAD is not honoured when real and effective ids differ after exec, or when the
// program gains capabilities from its file. A mount with nosuid grants neither.
Result<void> check_privileges(int fd, const std::string& path) {
  struct stat st {};
  struct statvfs mount {};
  if (::fstat(fd, &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (::fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0) return {};
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != ::getuid()) {
    return unsuitable(path, "is set-user-ID: the system ignores LD_PRELOAD for it");
  }
  constexpr mode_t kSetGroup = S_ISGID | S_IXGRP;  // without x it marks mandatory locking
  if ((st.st_mode & kSetGroup) == kSetGroup && st.st_gid != ::getgid()) {
    return unsuitable(path, "is set-group-ID: the system ignores LD_PRELOAD for it");
  }
  // File capabilities give a real root nothing that it has not got (capabilities(7)).
  if (::getuid() != 0 && ::fgetxattr(fd, "security.capability", nullptr, 0) > 0) {
    return unsuitable(path, "has file capabilities: the system ignores LD_PRELOAD for it",
                      "use a copy of it without them (cp drops them)");
  }
  return {};
}

Result<void> check_elf(int fd, const std::string& path) {
  Elf64_Ehdr header{};
  if (::pread(fd, &header, sizeof header, 0) < static_cast<ssize_t>(sizeof header)) {
    return unsuitable(path, "is cut off inside its ELF header");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return unsuitable(path, "is a 32-bit program");
  if (header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine) {
    return unsuitable(path, "is a program for another kind of machine");
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > 1024) {
    return unsuitable(path, "has a malformed ELF header");
  }
  for (std::uint16_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const std::uint64_t at = header.e_phoff + std::uint64_t{i} * sizeof segment;
    if (::pread(fd, &segment, sizeof segment, static_cast<off_t>(at)) <
        static_cast<ssize_t>(sizeof segment)) {
      return unsuitable(path, "is cut off inside its program headers");
    }
    if (segment.p_type != PT_INTERP) continue;
    std::array<char, 256> loader{};
    const std::size_t n = std::min<std::size_t>(segment.p_filesz, loader.size() - 1);
    (void)!::pread(fd, loader.data(), n, static_cast<off_t>(segment.p_offset));
    if (std::strstr(loader.data(), "ld-musl") != nullptr) {
      return unsuitable(path, "is linked against musl; the preload library needs glibc",
                        "use a build for glibc");
    }
    return {};
  }
  return unsuitable(path, "is statically linked: no preload library can enter it",
                    "use a dynamically linked build");
}

// The interpreter of `#!interpreter [argument]`; through env(1), the program that env looks up.
Result<std::string> script_interpreter(std::string line, const std::string& path,
                                       const char* search_path) {
  std::istringstream words(line.substr(2, line.find('\n') - 2));
  std::string interpreter;
  words >> interpreter;
  if (interpreter.empty()) return unsuitable(path, "names no interpreter after #!");
  if (interpreter.substr(interpreter.rfind('/') + 1) != "env") return interpreter;
  for (std::string word; words >> word;) {
    if (word.front() == '-' || word.find('=') != std::string::npos) continue;
    return look_up(word, search_path);
  }
  return unsuitable(path, "names no program after #!env");
}

Result<std::string> follow(const std::string& path, const char* search_path, int depth) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    // Executable but not readable: nothing can be said about it, and little can go wrong.
    if (errno == EACCES) return path;
    return fail_errno(Status::program_not_found, path, errno);
  }
  std::array<char, 257> start{};
  const ssize_t n = ::pread(fd.get(), start.data(), start.size() - 1, 0);
  if (n >= 2 && start[0] == '#' && start[1] == '!') {
    if (depth >= kScriptDepth) return unsuitable(path, "is a script of a script of a script ...");
    auto interpreter = script_interpreter(start.data(), path, search_path);
    if (!interpreter) return interpreter;
    return follow(*interpreter, search_path, depth + 1);
  }
  if (n < SELFMAG || std::memcmp(start.data(), ELFMAG, SELFMAG) != 0) {
    return unsuitable(path, "is neither an ELF program nor a script with #!");
  }
  if (auto ok = check_privileges(fd.get(), path); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_elf(fd.get(), path); !ok) return tl::unexpected(ok.error());
  return path;
}

}  // namespace

Result<Program> find_program(const std::string& name, const char* search_path) {
  auto path = look_up(name, search_path);
  if (!path) return tl::unexpected(path.error());
  auto elf = follow(*path, search_path, 0);
  if (!elf) return tl::unexpected(elf.error());
  return Program{std::move(*path), std::move(*elf)};
}

}  // namespace resid::run

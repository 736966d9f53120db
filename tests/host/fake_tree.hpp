#pragma once
// A folder that stands in for the kernel's files.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "host/cgroup.hpp"

namespace resid::host {

class FakeTree {
 public:
  FakeTree() {
    std::string name = (std::filesystem::temp_directory_path() / "resid-host.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    top_ = name;
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(top_, ignored);
  }

  Roots roots() const { return {top_ + "/proc", top_ + "/sys"}; }
  std::string path(std::string_view name) const { return top_ + "/" + std::string(name); }

  void write(std::string_view name, std::string_view text) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  // A folder where a file is expected: every read fails, for root too.
  void make_unreadable(std::string_view name) const {
    std::filesystem::remove(path(name));
    std::filesystem::create_directories(path(name));
  }
  void make_folder(std::string_view name) const { std::filesystem::create_directories(path(name)); }
  std::string read(std::string_view name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string top_;
};

// What version 1 shows where no limit is set.
inline constexpr std::string_view kV1None = "9223372036854771712\n";

}  // namespace resid::host

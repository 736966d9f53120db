#pragma once
// A generated store for one test, on a real disk: direct reads and the page cache are the point.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/fd.hpp"
#include "replay/generated_store.hpp"

namespace resid::test {

inline constexpr std::uint64_t MiB = 1024 * 1024;

inline std::string fresh_path() {
  const char* folder = std::getenv("RESID_TEST_DIR");
  std::string path = std::string(folder != nullptr ? folder : "/var/tmp") + "/resid-replay-XXXXXX";
  const Fd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd) std::abort();
  ::unlink(path.c_str());
  return path;
}

class GeneratedStore {
 public:
  explicit GeneratedStore(std::uint64_t bytes) : path_(fresh_path()) {
    const auto made = make_store(path_, bytes);
    if (!made) {
      ADD_FAILURE() << made.error().line();
      std::abort();
    }
  }
  ~GeneratedStore() { ::unlink(path_.c_str()); }
  GeneratedStore(const GeneratedStore&) = delete;
  GeneratedStore& operator=(const GeneratedStore&) = delete;
  const std::string& path() const { return path_; }

  // Changes one byte behind everybody's back.
  void spoil(std::uint64_t offset) const {
    const Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    unsigned char byte = 0;
    ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    byte ^= 0x10;
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    ::fsync(fd.get());
  }

 private:
  std::string path_;
};

}  // namespace resid::test

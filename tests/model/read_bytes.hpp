#pragma once
// Files without a disk: bytes in a memfd, handed to the reader.

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/fd.hpp"
#include "model/model.hpp"

namespace resid::test {

inline constexpr const char* kPath = "dir/some-model.bin";

inline Fd memfd_of(const std::string& bytes) {
  Fd fd(::memfd_create("model", MFD_CLOEXEC));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  EXPECT_EQ(done, bytes.size());
  return fd;
}

inline Result<ModelFile> read_bytes(const std::string& bytes) {
  const Fd fd = memfd_of(bytes);
  return read_model_file(fd.get(), kPath);
}

// One way in which a file can be bad, and what must be said about it.
struct BadFile {
  std::string kind;  // names the test
  std::string bytes;
  Status status;
  std::uint64_t offset;
  std::string field;  // must stand in the message
  std::string reason;
};

inline void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.kind;
}

inline void expect_refused(const BadFile& bad) {
  const Result<ModelFile> read = read_bytes(bad.bytes);
  ASSERT_FALSE(read.has_value()) << "accepted";
  const Failure& failure = read.error();
  EXPECT_EQ(name(failure.status), name(bad.status)) << failure.line();
  EXPECT_EQ(failure.what, kPath);
  const std::string start = "offset " + std::to_string(bad.offset) + ": ";
  EXPECT_EQ(failure.why.substr(0, start.size()), start);
  EXPECT_NE(failure.why.find(bad.field), std::string::npos) << failure.why;
  EXPECT_NE(failure.why.find(bad.reason), std::string::npos) << failure.why;
}

inline std::string bad_file_name(const testing::TestParamInfo<BadFile>& info) {
  return info.param.kind;
}

}  // namespace resid::test

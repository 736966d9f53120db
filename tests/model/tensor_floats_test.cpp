// The numbers of small tensors, as the file has them.

#include "model/tensor_floats.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/fd.hpp"

namespace resid {
namespace {

class File {
 public:
  explicit File(const std::vector<std::uint8_t>& bytes) {
    char path[] = "/tmp/resid-floats-XXXXXX";
    fd_.reset(::mkostemp(path, O_CLOEXEC));
    ::unlink(path);
    if (::write(fd_.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

Tensor tensor(const char* type, std::uint64_t offset, std::uint64_t bytes) {
  Tensor t;
  t.name = "blk.0.ffn_gate_inp.weight";
  t.type = type;
  t.offset = offset;
  t.bytes = bytes;
  return t;
}

TEST(TensorFloats, F32AtItsOffset) {
  const float numbers[] = {0.5F, -3.25F, 1e-30F};
  std::vector<std::uint8_t> bytes(8 + sizeof numbers);
  std::memcpy(bytes.data() + 8, numbers, sizeof numbers);
  const File file(bytes);
  const auto read = read_floats(file.fd(), tensor("F32", 8, sizeof numbers));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, (std::vector<float>{0.5F, -3.25F, 1e-30F}));
}

TEST(TensorFloats, F16WithItsSpecialNumbers) {
  // 1, -2, the largest, the smallest normal, the smallest of all, minus the latter, 0, inf, nan.
  const std::vector<std::uint8_t> bytes = {0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b, 0x00, 0x04, 0x01,
                                           0x00, 0x01, 0x80, 0x00, 0x00, 0x00, 0x7c, 0x01, 0x7e};
  const File file(bytes);
  const auto read = read_floats(file.fd(), tensor("F16", 0, bytes.size()));
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->size(), 9U);
  const float least = std::ldexp(1.0F, -24);
  const std::vector<float> want = {1, -2, 65504, std::ldexp(1.0F, -14), least, -least, 0, INFINITY};
  EXPECT_EQ(std::vector<float>(read->begin(), read->begin() + 8), want);
  EXPECT_TRUE(std::isnan(read->at(8)));
}

TEST(TensorFloats, BF16IsTheUpperHalf) {
  const std::vector<std::uint8_t> bytes = {0x80, 0x3f, 0x49, 0xc0};
  const File file(bytes);
  const auto read = read_floats(file.fd(), tensor("BF16", 0, bytes.size()));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, (std::vector<float>{1.0F, -3.140625F}));
}

TEST(TensorFloats, AQuantisedTensorIsRefusedByItsType) {
  const File file({1, 2, 3, 4});
  const auto read = read_floats(file.fd(), tensor("Q8_0", 0, 4));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().status, Status::unsupported);
  EXPECT_NE(read.error().line().find("Q8_0"), std::string::npos);
}

TEST(TensorFloats, AFileThatEndsEarlyIsAFailedRead) {
  const File file({1, 2, 3, 4});
  const auto read = read_floats(file.fd(), tensor("F32", 0, 8));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().status, Status::read_failed);
}

}  // namespace
}  // namespace resid

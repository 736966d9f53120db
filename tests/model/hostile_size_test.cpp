// Files that claim to be large must cost what they are, not what they claim.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "gguf_bytes.hpp"
#include "model/chunk_plan.hpp"
#include "read_bytes.hpp"
#include "safetensors_bytes.hpp"

namespace {
std::size_t largest_request = 0;
}

// Sees every allocation of the program, the readers' among them. Not inlined: gcc would see free()
// given what operator new returned and take it for a mistake (-Wmismatched-new-delete).
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  largest_request = std::max(largest_request, bytes);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace resid::test {
namespace {

constexpr std::size_t kModest = 1 << 20;

// Reads `bytes` followed by a hole up to `size`; returns the largest allocation made.
std::size_t largest_while_reading(const std::string& bytes, std::uint64_t size) {
  const Fd fd = memfd_of(bytes);
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  const std::string path = kPath;
  largest_request = 0;
  const auto read = read_model_file(fd.get(), path);
  const std::size_t largest = largest_request;
  EXPECT_FALSE(read.has_value());
  return largest;
}

constexpr std::uint64_t kTebibyte = 1ULL << 40;  // sparse: takes no space

TEST(HostileSize, ManyTensorsInASparseFile) {
  EXPECT_LT(largest_while_reading("GGUF" + u32(3) + u64(1'000'000) + u64(0), kTebibyte), kModest);
}

TEST(HostileSize, ManyKeysInASparseFile) {
  EXPECT_LT(largest_while_reading("GGUF" + u32(3) + u64(0) + u64(1'000'000), kTebibyte), kModest);
}

TEST(HostileSize, LongNameInASparseFile) {
  EXPECT_LT(largest_while_reading("GGUF" + u32(3) + u64(0) + u64(1) + u64(1 << 29), kTebibyte),
            kModest);
}

TEST(HostileSize, LongStringInASparseFile) {
  EXPECT_LT(largest_while_reading("GGUF" + u32(3) + u64(0) + u64(1) + gguf_string("general.name") +
                                      u32(kText) + u64(1 << 29),
                                  kTebibyte),
            kModest);
}

TEST(HostileSize, MetadataLongerThanAnyModels) {
  const std::string bytes = "GGUF" + u32(3) + u64(0) + u64(1) + gguf_string("k") + u32(kText) +
                            u64(std::uint64_t{1} << 31);
  const Fd fd = memfd_of(bytes);
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(kTebibyte)), 0);
  const auto read = read_model_file(fd.get(), kPath);
  ASSERT_FALSE(read.has_value());
  EXPECT_NE(read.error().why.find("of the 1073741824 that metadata may take"), std::string::npos)
      << read.error().why;
}

TEST(HostileSize, SparseFileTooLargeForAPlan) {
  GgufBytes file;
  file.floats("output.weight", 8);
  const Fd fd = memfd_of(file.build());
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(kTebibyte)), 0);
  const auto read = read_model_file(fd.get(), kPath);
  ASSERT_TRUE(read.has_value());
  largest_request = 0;
  const auto plan = ChunkPlan::make(*read, kPage);
  const std::size_t largest = largest_request;
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().status, Status::usage);
  EXPECT_NE(plan.error().line().find("--chunk-max"), std::string::npos);
  EXPECT_LT(largest, kModest);
}

// A table as long as the largest checkpoints' must not take quadratic time; a test that did would
// run into ctest's limit.
TEST(HostileSize, ManyRealTensors) {
  GgufBytes file;
  for (int i = 0; i < 50'000; ++i)
    file.floats("blk.0.tensor_" + std::to_string(i), 8);
  std::string bytes = file.build();
  bytes.resize(file.at["data"] + 50'000 * 32);
  const auto read = read_bytes(bytes);
  ASSERT_TRUE(read.has_value()) << read.error().line();
  const auto plan = ChunkPlan::make(*read);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(read->tensors.size(), 50'000U);
}

}  // namespace
}  // namespace resid::test

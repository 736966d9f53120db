// The bandwidth figure: what it reads and how it fails. How much it is, is no test's business.

#include "storage/bandwidth.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fd.hpp"

namespace resid {
namespace {

std::atomic<std::uint64_t> g_reads{0};
std::atomic<std::uint64_t> g_largest{0};

int count_reads(std::uint64_t, std::uint64_t bytes, bool) {
  ++g_reads;
  g_largest = std::max(g_largest.load(), bytes);
  return 0;
}
int fail_reads(std::uint64_t, std::uint64_t, bool) {
  return EIO;
}

class BandwidthOf : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = "/var/tmp/resid-bandwidth-XXXXXX";
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    ASSERT_TRUE(fd_);
    const std::vector<char> text(1'000'000, 'x');
    ASSERT_EQ(::write(fd_.get(), text.data(), text.size()), 1'000'000);
  }
  void TearDown() override {
    g_read_fault_hook.store(nullptr);
    ::unlink(path_.c_str());
  }
  std::string path_;
  Fd fd_;
  const std::array<std::uint32_t, 2> depths_{1, 4};
};

TEST_F(BandwidthOf, AStoreIsReadInRequestsOfTheSizeAskedFor) {
  const auto store = Store::open(fd_.get(), path_);
  ASSERT_TRUE(store);
  g_reads = 0;
  g_largest = 0;
  g_read_fault_hook.store(&count_reads);
  const auto found = best_bandwidth(*store, 65536, depths_, 0.05);
  ASSERT_TRUE(found) << found.error().line();
  EXPECT_GT(found->bytes_per_s, 0);
  EXPECT_TRUE(found->depth == 1 || found->depth == 4);
  EXPECT_EQ(found->direct, store->direct());
  EXPECT_GE(g_reads.load(), 16U);
  EXPECT_LE(g_largest.load(), 65536U);
}

TEST_F(BandwidthOf, AStoreSmallerThanARequestIsReadWhole) {
  const auto store = Store::open(fd_.get(), path_);
  ASSERT_TRUE(store);
  const auto found = best_bandwidth(*store, 64 * 1024 * 1024, depths_, 0.05);
  ASSERT_TRUE(found) << found.error().line();
  EXPECT_GT(found->bytes_per_s, 0);
}

TEST_F(BandwidthOf, AStoreThatCannotBeReadIsAFailure) {
  const auto store = Store::open(fd_.get(), path_);
  ASSERT_TRUE(store);
  g_read_fault_hook.store(&fail_reads);
  const auto found = best_bandwidth(*store, 65536, depths_, 0.05);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().status, Status::read_failed);
}

}  // namespace
}  // namespace resid

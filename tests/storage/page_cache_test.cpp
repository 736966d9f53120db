// Knowing what is cached of a file, and emptying the cache of it.

#include "storage/page_cache.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fd.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kBytes = 3 * 1024 * 1024 + 1234;

class PageCache : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = "/var/tmp/resid-page-cache-XXXXXX";
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    ASSERT_TRUE(fd_);
    const std::vector<char> text(kBytes, 'x');
    ASSERT_EQ(::write(fd_.get(), text.data(), text.size()), static_cast<ssize_t>(kBytes));
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::uint64_t cached() {
    const auto found = cached_bytes(fd_.get(), kBytes, path_);
    EXPECT_TRUE(found) << found.error().line();
    return found ? found->bytes : 0;
  }
  std::string path_;
  Fd fd_;
};

TEST_F(PageCache, HoldsAFileThatWasJustWritten) {
  EXPECT_EQ(cached(), (kBytes + 4095) / 4096 * 4096);
}

TEST_F(PageCache, IsEmptyAfterDroppingEvenWhatIsDirty) {
  const auto left = drop_cached(fd_.get(), kBytes, path_);
  ASSERT_TRUE(left) << left.error().line();
  EXPECT_EQ(left->bytes, 0U);
  EXPECT_EQ(cached(), 0U);
}

TEST_F(PageCache, CountsWhatIsReadAgain) {
  ASSERT_TRUE(drop_cached(fd_.get(), kBytes, path_));
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM);  // no read-ahead
  char byte = 0;
  ASSERT_EQ(::pread(fd_.get(), &byte, 1, 1024 * 1024), 1);
  EXPECT_EQ(cached(), 4096U);
}

TEST_F(PageCache, TellsWhatSomebodyKeepsThere) {
  void* view = ::mmap(nullptr, 65536, PROT_READ, MAP_SHARED, fd_.get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  ASSERT_EQ(::mlock(view, 65536), 0);
  const auto left = drop_cached(fd_.get(), kBytes, path_);
  ASSERT_TRUE(left) << left.error().line();
  EXPECT_GE(left->bytes, 65536U);
  ::munmap(view, 65536);
}

TEST_F(PageCache, FailsOnWhatIsNotOpen) {
  const auto found = cached_bytes(-1, 4096, "the model");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().line().find("the model"), std::string::npos);
}

}  // namespace
}  // namespace resid

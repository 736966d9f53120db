// Where resident bytes live: what is filled is what is counted, whatever the size of the folios.

#include <sys/mman.h>
#include <sys/stat.h>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

std::uint64_t held(const Fd& file) {
  struct stat st {};
  return ::fstat(file.get(), &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : ~0ULL;
}

TEST(Frames, AFileOfMemoryIsSparseAndNamed) {
  for (const bool large : {true, false}) {
    const auto frames = host::FrameSource::open(large);
    ASSERT_TRUE(frames.has_value());
    EXPECT_TRUE(large || !frames->large());
    const auto file = frames->make("residctl:model.gguf", 64 * MiB);
    ASSERT_TRUE(file.has_value()) << file.error().line();
    EXPECT_EQ(held(*file), 0U);
    const auto link = "/proc/self/fd/" + std::to_string(file->get());
    std::array<char, 256> text{};
    ASSERT_GT(::readlink(link.c_str(), text.data(), text.size() - 1), 0);
    EXPECT_NE(std::string(text.data()).find("residctl:model.gguf"), std::string::npos);
  }
}

TEST(Frames, TwoFilesOfOneNameAreTwo) {
  const auto frames = host::FrameSource::open(true);
  const auto a = frames->make("residctl:m", kLargePage);
  const auto b = frames->make("residctl:m", kLargePage);
  ASSERT_TRUE(a && b);
  const char byte = 1;
  ASSERT_EQ(::pwrite(a->get(), &byte, 1, 0), 1);
  EXPECT_EQ(held(*b), 0U);
}

TEST(Frames, MemoryThatIsNeverSwappedIsThatOrARefusal) {
  for (const bool large : {true, false}) {
    const auto frames = host::FrameSource::open(large, true);
    if (frames) {
      EXPECT_TRUE(frames->noswap());
      EXPECT_TRUE(frames->make("residctl:m", kLargePage).has_value());
    } else {
      EXPECT_EQ(frames.error().status, Status::swap_unsafe);
    }
  }
}

// A raw file cut into chunks of sizes that are and are not whole large pages.
class Sizes : public ::testing::TestWithParam<std::tuple<std::uint64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, Sizes,
                         ::testing::Combine(::testing::Values(64 * 1024, MiB, 2 * MiB, 3 * MiB,
                                                              4 * MiB),
                                            ::testing::Bool()));

TEST_P(Sizes, WhatAChunkTakesIsItsSizeAndAllOfItComesBack) {
  const auto [chunk, large] = GetParam();
  const StoreFile store(13 * MiB + 12345);
  PagerConfig config = eager(9 * MiB);
  config.large_frames = large;
  Rig rig(store, config, chunk);
  for (std::uint64_t at = 0; at < store.bytes(); at += chunk) {
    EXPECT_EQ(store.mismatches(rig.view, at, std::min(at + 4096, store.bytes())), 0U);
    rig.settle();
    EXPECT_EQ(rig.kernel_bytes(), rig.pager->resident_bytes());
  }
  for (ChunkId id = 0; id < rig.pager->info(rig.region).chunks; ++id)
    rig.pager->evict(id);
  EXPECT_EQ(rig.kernel_bytes(), 0U);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  rig.expect_clean(9 * MiB, chunk);
}

// Slots are used again and again: what a shorter read leaves behind in one must not show.
TEST(Frames, PastTheEndOfTheFileAViewShowsZeros) {
  const StoreFile store(8 * MiB + 100);
  Rig rig(store, eager(5 * MiB), 2 * MiB);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(store.mismatches(rig.view, 0, 8 * MiB), 0U);
    for (std::uint64_t at = 8 * MiB + 100; at < 8 * MiB + kPage; ++at)
      ASSERT_EQ(rig.view[at], 0) << at;
  }
}

}  // namespace
}  // namespace resid::test

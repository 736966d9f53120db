// Reads that fail and stores that change: tried once more, then told with errno and offset; never
// wrong bytes.

#include "reader_fixture.hpp"
#include "storage/page_cache.hpp"

namespace resid::test {
namespace {

int fail_direct(std::uint64_t, std::uint64_t, bool direct) {
  return direct ? EIO : 0;
}
int shorten_direct(std::uint64_t, std::uint64_t, bool direct) {
  return direct ? kShortRead : 0;
}
int shorten_all(std::uint64_t, std::uint64_t, bool) {
  return kShortRead;
}
// One place on the medium is bad.
constexpr std::uint64_t kBad = 384 * KiB;
int fail_at_bad(std::uint64_t offset, std::uint64_t bytes, bool) {
  return offset <= kBad && kBad < offset + bytes ? EIO : 0;
}
std::atomic<int> g_victim{-1};
int truncate_once(std::uint64_t, std::uint64_t, bool) {
  if (const int fd = g_victim.exchange(-1); fd >= 0) (void)!::ftruncate(fd, 100'000);
  return 0;
}
int overwrite_once(std::uint64_t, std::uint64_t, bool) {
  if (const int fd = g_victim.exchange(-1); fd >= 0) (void)!::pwrite(fd, "x", 1, 0);
  return 0;
}

INSTANTIATE_TEST_SUITE_P(Engines, ReaderOf,
                         ::testing::Values(ReadEngine::io_uring, ReadEngine::threads),
                         [](const auto& each) { return std::string(name(each.param)); });

TEST_P(ReaderOf, AFailedDirectReadIsTriedOnceMoreBuffered) {
  const Source& source = file(1 * MiB + 700);
  ASSERT_TRUE(source.store().direct());
  make(4, 128 * KiB).add_store(source.store());
  for (const ReadFaultHook hook : {&fail_direct, &shorten_direct}) {
    g_read_fault_hook.store(hook);
    Ask ask(source, 0, page_up(source.bytes()));
    run(ask);
    EXPECT_TRUE(ask.right());
    EXPECT_TRUE(ask.outcome.retried);
  }
  EXPECT_EQ(reader_->stats().retries, 2U);
}

TEST_P(ReaderOf, ATriedAgainReadLeavesNothingInThePageCache) {
  const Source& source = file(1 * MiB);
  ASSERT_TRUE(drop_cached(source.fd(), source.bytes(), "the store"));
  make(4);
  g_read_fault_hook.store(&fail_direct);
  Ask ask(source, 0, 1 * MiB);
  run(ask);
  EXPECT_TRUE(ask.right());
  const auto cached = cached_bytes(source.fd(), source.bytes(), "the store");
  ASSERT_TRUE(cached);
  EXPECT_EQ(cached->bytes, 0U);
}

TEST_P(ReaderOf, AReadThatFailsBothWaysNamesErrorAndOffset) {
  const Source& source = file(1 * MiB);
  make(1, 128 * KiB);
  g_read_fault_hook.store(&fail_at_bad);
  Ask ask(source, 256 * KiB, 512 * KiB);
  run(ask);
  EXPECT_EQ(ask.outcome.status, Status::read_failed);
  EXPECT_EQ(ask.outcome.error, EIO);
  EXPECT_EQ(ask.outcome.offset, kBad);
  EXPECT_TRUE(ask.outcome.retried);
}

TEST_P(ReaderOf, AReadThatComesBackShortBothWaysHasNoErrno) {
  const Source& source = file(1 * MiB);
  make(4);
  g_read_fault_hook.store(&shorten_all);
  Ask ask(source, 4096, 64 * KiB);
  run(ask);
  EXPECT_EQ(ask.outcome.status, Status::read_failed);
  EXPECT_EQ(ask.outcome.error, 0);
  EXPECT_EQ(ask.outcome.offset, 4096U);
  EXPECT_TRUE(ask.outcome.retried);
}

TEST_P(ReaderOf, ATailThatFailsIsNotTriedAgain) {
  const Source& source = file(64 * KiB + 100);
  make(1);
  g_read_fault_hook.store(
      [](std::uint64_t, std::uint64_t, bool direct) { return direct ? 0 : ENODEV; });
  Ask ask(source, 0, 68 * KiB);
  run(ask);
  EXPECT_EQ(ask.outcome.status, Status::read_failed);
  EXPECT_EQ(ask.outcome.error, ENODEV);
  EXPECT_EQ(ask.outcome.offset, 64 * KiB);
  EXPECT_FALSE(ask.outcome.retried);
}

int fail_bad_only(std::uint64_t offset, std::uint64_t bytes, bool direct) {
  while (offset == 3 * MiB && !g_gate.load()) {
    g_waits = true;
    std::this_thread::yield();
  }
  return fail_at_bad(offset, bytes, direct);
}

TEST_P(ReaderOf, ANeighbourOfABadPlaceIsReadAllTheSame) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  g_read_fault_hook.store(&fail_bad_only);
  reader_->submit(first);
  while (!g_waits.load())
    std::this_thread::yield();
  std::deque<Ask> asks;
  for (std::uint64_t i = 0; i < 4; ++i)
    asks.emplace_back(source, kBad - 64 * KiB + i * 32 * KiB, 32 * KiB);
  for (Ask& ask : asks)
    reader_->submit(ask);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(5));
  EXPECT_EQ(reader_->stats().merged, 3U);
  for (std::size_t i = 0; i < asks.size(); ++i) {
    EXPECT_EQ(asks[i].right(), i != 2) << i;
    EXPECT_TRUE(asks[i].outcome.retried);
  }
  EXPECT_EQ(asks[2].outcome.offset, kBad);
}

TEST_P(ReaderOf, AStoreThatWasChangedBeforeIsNotRead) {
  const Source& source = file(1 * MiB);
  make(4).add_store(source.store());
  ASSERT_EQ(::pwrite(source.fd(), "x", 1, 0), 1);
  g_read_fault_hook.store(&record);
  for (const std::uint64_t offset : {64 * KiB, 1 * MiB}) {
    Ask ask(source, offset, 128 * KiB);
    run(ask);
    EXPECT_EQ(ask.outcome.status, Status::store_changed);
    EXPECT_EQ(ask.outcome.offset, offset);
    EXPECT_FALSE(ask.outcome.retried);
  }
  EXPECT_TRUE(attempts().empty());
}

TEST_P(ReaderOf, AStoreThatIsChangedMeanwhileIsAnError) {
  for (const ReadFaultHook hook : {&truncate_once, &overwrite_once}) {
    const Source& source = file(1 * MiB);
    make(4, 128 * KiB);
    g_victim = source.fd();
    g_read_fault_hook.store(hook);
    Ask ask(source, 0, 1 * MiB);
    reader_->submit(ask);
    ASSERT_TRUE(receiver_.wait_for(++ran_));
    EXPECT_EQ(ask.outcome.status, Status::store_changed);
    reader_.reset();
  }
}

}  // namespace
}  // namespace resid::test

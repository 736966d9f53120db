// R-5, I-13: nothing is allocated between submit() and done().

#include "../count_allocations.hpp"
#include "reader_fixture.hpp"

namespace resid::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Engines, ReaderOf,
                         ::testing::Values(ReadEngine::io_uring, ReadEngine::threads),
                         [](const auto& each) { return std::string(name(each.param)); });

std::atomic<std::size_t> g_first_seen{0};
std::atomic<std::size_t> g_last_seen{0};

TEST_P(ReaderOf, NothingIsAllocatedFromSubmitToDone) {
  const Source& source = file(4 * MiB + 5);
  make(4, 64 * KiB).add_store(source.store());
  static std::atomic<int> calls;
  calls = 0;
  // On the reader's thread, which is one for io_uring; several threads have counters of their own.
  receiver_.then = [](ReadRequest&) {
    if (calls.fetch_add(1) == 0) g_first_seen = allocations;
    g_last_seen = allocations;
  };
  g_read_fault_hook.store(&fail_some);
  std::deque<Ask> asks;
  for (std::uint64_t i = 0; i < 100; ++i)
    asks.emplace_back(source, i % 32 * 128 * KiB, 160 * KiB, i % 5 == 0);
  const std::size_t at_start = allocations;
  const auto counts = std::make_unique<int>(1);
  ASSERT_GT(allocations, at_start) << "the counter does not count";
  const std::size_t before = allocations;
  for (Ask& ask : asks)
    reader_->submit(ask);
  reader_->urge(asks.back());
  EXPECT_EQ(allocations, before);
  ASSERT_TRUE(receiver_.wait_for(100));
  if (GetParam() == ReadEngine::io_uring) {
    EXPECT_EQ(g_first_seen.load(), g_last_seen.load());
  }
}

}  // namespace
}  // namespace resid::test

// T-3 and T-7: many threads, a tight budget, everything at once. Nothing hangs, nothing is wrong,
// the budget holds. RESID_STORM_SECONDS sets the length (3 by default, 60 in the full harness).

#include <barrier>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "pager_fixture.hpp"

namespace resid::test {
namespace {

constexpr std::uint64_t kChunk = 64 * 1024;

std::chrono::seconds storm_length() {
  const char* text = std::getenv("RESID_STORM_SECONDS");
  return std::chrono::seconds(text != nullptr ? std::max(1, std::atoi(text)) : 3);
}

// Joins the threads, or says that a fault was lost: a sleeper that nobody wakes never joins.
void join_all(std::vector<std::thread>& threads, std::chrono::seconds patience) {
  auto joined = std::async(std::launch::async, [&] {
    for (std::thread& t : threads)
      t.join();
  });
  if (joined.wait_for(patience) != std::future_status::ready) {
    std::fprintf(stderr, "a thread did not come back: a fault was lost\n");
    std::fflush(stderr);
    ::_exit(1);
  }
}

struct Storm {
  std::string policy;
  std::uint64_t budget_chunks;
  std::uint32_t prefetch;
  bool sync;
};

class T3Storm : public ::testing::TestWithParam<Storm> {};
INSTANTIATE_TEST_SUITE_P(All, T3Storm,
                         ::testing::Values(Storm{"layer_order_declared", 3, 0, false},
                                           Storm{"lru", 2, 0, false},
                                           Storm{"layer_order_learned", 6, 2, false},
                                           Storm{"layer_order_declared", 8, 4, false},
                                           Storm{"layer_order_declared", 4, 0, true}),
                         [](const auto& instance) {
                           const Storm& s = instance.param;
                           return s.policy + "_" + std::to_string(s.budget_chunks) +
                                  "chunks_prefetch" + std::to_string(s.prefetch) +
                                  (s.sync ? "_sync" : "");
                         });

TEST_P(T3Storm, EightThreadsReadRightWithinTheBudgetAndAllComeBack) {
  const Storm storm = GetParam();
  const StoreFile store(64 * kChunk);
  PagerConfig config = eager(storm.budget_chunks * kChunk, storm.policy);
  config.prefetch_depth = storm.prefetch;
  config.sync_handler = storm.sync;
  Rig rig(store, config, kChunk);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> reads{0};
  const auto end = std::chrono::steady_clock::now() + storm_length() / 2;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t) * 77 + 1);
      while (std::chrono::steady_clock::now() < end) {
        // Half the threads scan, half jump; some reads straddle two chunks.
        const std::uint64_t pages = store.bytes() / kPage;
        const std::uint64_t page = t % 2 == 0 ? reads.load() % (pages - 1) : random() % (pages - 1);
        wrong += store.mismatches(rig.view, page * kPage, (page + 2) * kPage);
        reads.fetch_add(1);
      }
    });
  }
  join_all(threads, std::chrono::seconds(120));  // T-7
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(rig.stats.evictions.load(), 0U);
  rig.expect_clean(storm.budget_chunks * kChunk, kChunk);
  std::printf("%llu reads, %llu fetches, %llu evictions, dedup %llu/%llu\n",
              static_cast<unsigned long long>(reads.load()),
              static_cast<unsigned long long>(rig.stats.fetches.load()),
              static_cast<unsigned long long>(rig.stats.evictions.load()),
              static_cast<unsigned long long>(rig.stats.dedup_fetching.load()),
              static_cast<unsigned long long>(rig.stats.dedup_resident.load()));
}

TEST(T3Storm, ReadersEvictorsMappersPinnersAndABudgetThatMoves) {
  const StoreFile store(64 * kChunk);
  const StoreFile other(16 * kChunk, 9);
  Rig rig(store, eager(12 * kChunk), kChunk);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t) + 1);
      while (!stop.load()) {
        const std::uint64_t page = random() % (store.bytes() / kPage);
        wrong += store.mismatches(rig.view, page * kPage, (page + 1) * kPage);
      }
    });
  }
  threads.emplace_back([&] {  // evicts by hand
    std::mt19937_64 random(100);
    while (!stop.load())
      rig.pager->evict(static_cast<ChunkId>(random() % 64));
  });
  threads.emplace_back([&] {  // maps, reads, unmaps in pieces
    std::mt19937_64 random(200);
    while (!stop.load()) {
      const std::uint64_t offset = (random() % 48) * kChunk;
      auto* view = const_cast<std::uint8_t*>(rig.map(rig.region, 8 * kChunk, offset));
      for (std::uint64_t i = 0; i < 8 * kChunk; i += 3 * kPage) {
        std::uint64_t word = 0;
        std::memcpy(&word, view + i, 8);
        wrong += word != word_at((offset + i) / 8);
      }
      wrong += !rig.pager->unmap_view(view + 2 * kChunk, kChunk);
      // Not the whole range at once: the hole may be somebody else's by now.
      wrong += !rig.pager->unmap_view(view, 2 * kChunk);
      wrong += !rig.pager->unmap_view(view + 3 * kChunk, 5 * kChunk);
    }
  });
  threads.emplace_back([&] {  // pins
    std::mt19937_64 random(300);
    while (!stop.load()) {
      auto pin = rig.pager->pin(rig.view + (random() % 63) * kChunk, kChunk);
      if (pin) std::this_thread::yield();
    }
  });
  threads.emplace_back([&] {  // moves the budget
    std::mt19937_64 random(400);
    while (!stop.load()) {
      (void)rig.pager->set_budget((5 + random() % 8) * kChunk);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  threads.emplace_back([&] {  // adds a region in mid-flight
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::uint8_t* view = rig.map(rig.add(other, kChunk), other.bytes());
    while (!stop.load())
      wrong += other.mismatches(view, 0, other.bytes());
  });
  std::this_thread::sleep_for(storm_length());
  stop.store(true);
  join_all(threads, std::chrono::seconds(120));
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(rig.pager->impl()->budget.pinned, 0U);
  rig.expect_clean(12 * kChunk, kChunk);
}

}  // namespace
}  // namespace resid::test

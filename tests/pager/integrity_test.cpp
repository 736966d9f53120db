// T-1, T-2, T-5 (live), T-6: what the program reads is what the store holds.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <random>
#include <thread>

#include "pager_fixture.hpp"
#include "trace/belady.hpp"

namespace resid::test {
namespace {

class EveryPolicy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy,
                         ::testing::Values("lru", "layer_order_learned", "layer_order_declared"),
                         [](const auto& p) { return p.param; });

TEST_P(EveryPolicy, T1ReadsEveryByteRightAtAQuarterOfTheBudget) {
  const StoreFile store(32 * MiB);
  Rig rig(store, eager(8 * MiB, GetParam()), MiB);
  std::uint64_t wrong = 0;
  for (int pass = 0; pass < 3; ++pass)
    wrong += store.mismatches(rig.view, 0, store.bytes());
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(rig.stats.evictions.load(), 0U);
  rig.expect_clean(8 * MiB, MiB);
}

TEST_P(EveryPolicy, T1HoldsWithTheSynchronousHandler) {
  const StoreFile store(16 * MiB);
  PagerConfig config = eager(4 * MiB, GetParam());
  config.sync_handler = true;
  Rig rig(store, config, MiB);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  rig.expect_clean(4 * MiB, MiB);
}

TEST_P(EveryPolicy, ARandomOrderIsRightAtTheSmallestBudget) {
  const StoreFile store(8 * MiB);
  Rig rig(store, eager(2 * 64 * 1024, GetParam()), 64 * 1024);  // two chunks: the least there is
  std::mt19937_64 random(5);
  std::uint64_t wrong = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t at = (random() % (store.bytes() / 8)) * 8;
    wrong += store.mismatches(rig.view, at, at + 8);
  }
  EXPECT_EQ(wrong, 0U);
  rig.expect_clean(2 * 64 * 1024, 64 * 1024);
}

// A load across the border of two chunks needs both at once. Were one evicted for the other, the
// program would never get on; this test would not end.
TEST_P(EveryPolicy, AnInstructionThatStraddlesTwoChunksGetsOnAtTheSmallestBudgets) {
  constexpr std::uint64_t kChunk = 16 * 1024;
  const StoreFile store(64 * kChunk);
  for (const std::uint64_t room : {2, 3, 5}) {
    for (const std::uint32_t depth : {0U, 1U, 2U, 8U}) {
      for (const std::uint32_t workers : {1U, 4U}) {
        PagerConfig config = eager(room * kChunk, GetParam());
        config.prefetch_depth = depth;
        config.fetch_workers = workers;
        Rig rig(store, config, kChunk);
        std::uint64_t wrong = 0;
        for (int pass = 0; pass < 2; ++pass) {
          for (std::uint64_t border = kChunk; border < store.bytes(); border += kChunk) {
            std::uint64_t straddling = 0;
            std::memcpy(&straddling, rig.view + border - 4, 8);
            wrong += straddling != (word_at(border / 8 - 1) >> 32 | word_at(border / 8) << 32);
          }
        }
        EXPECT_EQ(wrong, 0U);
        rig.expect_clean(room * kChunk, kChunk);
      }
    }
  }
}

TEST(Integrity, ThreadsThatEachStraddleTwoChunksAllGetOnWithRoomForFewOfThem) {
  constexpr std::uint64_t kChunk = 16 * 1024;
  const StoreFile store(64 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 40; ++i) {
        const std::uint64_t border = (1 + (t * 8 + i) % 63) * kChunk;
        std::uint64_t straddling = 0;
        std::memcpy(&straddling, rig.view + border - 4, 8);
        wrong += straddling != (word_at(border / 8 - 1) >> 32 | word_at(border / 8) << 32);
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(wrong.load(), 0U);
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Integrity, AFileThatEndsInsideAPageIsReadToItsLastByte) {
  const StoreFile store(3 * MiB + 1234 * 8);
  Rig rig(store, eager(MiB), 256 * 1024);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  // The rest of the last page reads as zeros, as it does in a plain mapping.
  for (std::uint64_t i = store.bytes(); i < page_up(store.bytes()); ++i) {
    ASSERT_EQ(rig.view[i], 0) << i;
  }
  rig.expect_clean(MiB, 256 * 1024);
}

TEST(Integrity, T2AThousandPunchesAndRefetchesReadTheSame) {
  const StoreFile store(4 * MiB);
  Rig rig(store, eager(4 * MiB), 64 * 1024);
  std::mt19937_64 random(11);
  const std::uint64_t chunks = store.bytes() / (64 * 1024);
  std::uint64_t wrong = 0;
  int cycles = 0;
  while (cycles < 1000) {
    const auto chunk = static_cast<ChunkId>(random() % chunks);
    const std::uint64_t at = chunk * 64 * 1024;
    wrong += store.mismatches(rig.view, at, at + 64 * 1024);
    rig.settle();
    if (rig.pager->evict(chunk)) {
      ++cycles;
      EXPECT_FALSE(rig.pager->resident(chunk));
      wrong += store.mismatches(rig.view, at, at + 64 * 1024);
      rig.settle();
      EXPECT_TRUE(rig.pager->resident(chunk));
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GE(rig.stats.evictions.load(), 1000U);
  rig.expect_clean(4 * MiB, 64 * 1024);
}

TEST(Integrity, T5TheDeclaredOrderStaysWithinOneChunkAPassOfTheOptimum) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(64 * kChunk);
  constexpr std::uint64_t kRoom = 24;
  constexpr int kPasses = 6;
  Rig rig(store, eager(kRoom * kChunk), kChunk);
  std::vector<std::uint32_t> reference;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      reference.push_back(i);
      ASSERT_EQ(store.mismatches(rig.view, i * kChunk, (i + 1) * kChunk), 0U);
    }
  }
  rig.settle();
  const auto optimum = optimum_misses(reference, 64, kRoom, TraceKind::reference);
  ASSERT_TRUE(optimum);
  EXPECT_GE(optimum->misses, cyclic_floor(64, kRoom, kPasses));
  EXPECT_GE(rig.stats.fetches.load(), optimum->misses);
  // One chunk for the window, one because what is current is kept.
  EXPECT_LE(rig.stats.fetches.load(), optimum->misses + 2 * kPasses);
  rig.expect_clean(kRoom * kChunk, kChunk);
}

TEST(Integrity, LruMissesEveryChunkOfACyclicScan) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(32 * kChunk);
  Rig rig(store, eager(24 * kChunk, "lru"), kChunk);
  for (int pass = 0; pass < 4; ++pass)
    store.mismatches(rig.view, 0, store.bytes());
  rig.settle();
  EXPECT_EQ(rig.stats.fetches.load(), 4U * 32U);
}

std::atomic<int> g_slow_reads{0};
int slow_read(std::uint64_t, std::uint64_t, bool) {
  g_slow_reads.fetch_add(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return 0;
}

TEST(Integrity, T6ThreadsThatMeetAFetchUnderWayWaitForItAndAreWoken) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(16 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  g_read_fault_hook.store(&slow_read);
  std::atomic<std::uint64_t> wrong{0};
  std::barrier together(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t c = 0; c < 16; ++c) {
        together.arrive_and_wait();
        // Eight pages of one chunk at once: one fetch, seven waiters.
        const std::uint64_t at = c * kChunk + static_cast<std::uint64_t>(t) * kPage;
        wrong += store.mismatches(rig.view, at, at + kPage);
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  g_read_fault_hook.store(nullptr);
  EXPECT_EQ(wrong.load(), 0U);
  rig.settle();
  EXPECT_GT(rig.stats.dedup_fetching.load(), 0U);
  EXPECT_EQ(rig.stats.fetches.load(), 16U);
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Integrity, T6ASecondViewOfAResidentChunkIsMappedWithoutReading) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(8 * kChunk), kChunk);
  EXPECT_EQ(store.mismatches(rig.view, 0, store.bytes()), 0U);
  rig.settle();
  const std::uint64_t fetched = rig.stats.bytes_fetched.load();
  const std::uint8_t* second = rig.map(rig.region, store.bytes());
  EXPECT_EQ(store.mismatches(second, 0, store.bytes()), 0U);
  EXPECT_EQ(rig.stats.bytes_fetched.load(), fetched);
  EXPECT_GE(rig.stats.dedup_resident.load(), 8U);
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Integrity, AViewOfPartOfTheFileShowsThatPart) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  const std::uint64_t offset = 3 * kChunk + 5 * kPage;  // inside a chunk
  const std::uint8_t* part = rig.map(rig.region, 2 * kChunk, offset);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < 2 * kChunk; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, part + i, 8);
    wrong += word != word_at((offset + i) / 8);
  }
  EXPECT_EQ(wrong, 0U);
  rig.expect_clean(4 * kChunk, kChunk);
}

TEST(Integrity, SeveralRegionsShareOneBudget) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile a(16 * kChunk, 1);
  const StoreFile b(16 * kChunk, 2);
  const StoreFile c(5 * kChunk + 4096, 3);
  Rig rig(a, eager(8 * kChunk), kChunk);
  const std::uint8_t* view_b = rig.map(rig.add(b, kChunk), b.bytes());
  EXPECT_EQ(a.mismatches(rig.view, 0, a.bytes()), 0U);
  const std::uint8_t* view_c = rig.map(rig.add(c, kChunk), c.bytes());  // while chunks are resident
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(a.mismatches(rig.view, 0, a.bytes()), 0U);
    EXPECT_EQ(b.mismatches(view_b, 0, b.bytes()), 0U);
    EXPECT_EQ(c.mismatches(view_c, 0, c.bytes()), 0U);
  }
  rig.expect_clean(8 * kChunk, kChunk);
}

TEST(Integrity, UnmappingPartOfAViewLeavesTheRestAlone) {
  constexpr std::uint64_t kChunk = 64 * 1024;
  const StoreFile store(8 * kChunk);
  Rig rig(store, eager(4 * kChunk), kChunk);
  ASSERT_TRUE(
      rig.pager->unmap_view(const_cast<std::uint8_t*>(rig.view) + 2 * kChunk + kPage, kChunk));
  EXPECT_FALSE(rig.pager->in_view(rig.view + 2 * kChunk + kPage, kChunk));
  EXPECT_EQ(store.mismatches(rig.view, 0, 2 * kChunk + kPage), 0U);
  EXPECT_EQ(store.mismatches(rig.view, 3 * kChunk + kPage, store.bytes()), 0U);
  rig.expect_clean(4 * kChunk, kChunk);
}

TEST(Integrity, TwoChunksThatAnInstructionNeedsAtOnceFitBesideEachOtherAtTheSmallestBudget) {
  // Tensors of 17 pages that begin inside a page: chunks of 16 pages with a seam on each side.
  constexpr std::uint64_t kTensor = 17 * kPage;
  const StoreFile store(8 * kTensor);
  ModelFile file = raw_file(store);
  for (std::uint64_t t = 0; t < 7; ++t) {
    Tensor tensor;
    tensor.name = std::to_string(t);
    tensor.offset = 64 + t * kTensor;
    tensor.bytes = kTensor;
    file.tensors.push_back(tensor);
  }
  auto plan = ChunkPlan::make(file, 16 * kPage);
  ASSERT_TRUE(plan) << plan.error().line();
  ASSERT_EQ(plan->largest(), 16 * kPage);
  const ChunkIndex a = plan->find(kTensor + 4 * kPage);
  const ChunkIndex b = plan->find(4 * kTensor + 4 * kPage);
  PagerStats stats;
  Failures failures;
  auto pager = Pager::create(eager(32 * kPage, "lru"), stats, &Failures::hook, &failures);
  ASSERT_TRUE(pager) << pager.error().line();
  auto region = (*pager)->add_region(store.fd(), store.path(), file, std::move(*plan));
  ASSERT_TRUE(region) << region.error().line();
  auto view = (*pager)->map_view(*region, nullptr, store.bytes(), 0, 0);
  ASSERT_TRUE(view) << view.error().line();
  // What such an instruction does until it has both.
  bool both = false;
  for (int attempt = 0; attempt < 16 && !both; ++attempt) {
    store.mismatches(*view, kTensor + 4 * kPage, kTensor + 4 * kPage + 8);
    store.mismatches(*view, 4 * kTensor + 4 * kPage, 4 * kTensor + 4 * kPage + 8);
    both = (*pager)->resident(a) && (*pager)->resident(b);
    if (!both) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    both = (*pager)->resident(a) && (*pager)->resident(b);
  }
  EXPECT_TRUE(both);
  EXPECT_EQ(failures.count.load(), 0) << failures.text();
}

TEST(Integrity, ChunksOfAModelAreFetchedWithTheirSeams) {
  const std::string path = std::string(RESID_SOURCE_DIR) + "/models/linnet-moe-q4.gguf";
  auto model = open_model(path);
  ASSERT_TRUE(model) << model.error().line();
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd);
  auto plan = ChunkPlan::make(model->files[0]);
  ASSERT_TRUE(plan);
  const std::uint64_t budget = model->bytes() / 4;
  const std::uint32_t largest = plan->largest();
  PagerStats stats;
  Failures failures;
  auto pager = Pager::create(eager(budget), stats, &Failures::hook, &failures);
  ASSERT_TRUE(pager) << pager.error().line();
  auto region = (*pager)->add_region(fd.get(), path, model->files[0], std::move(*plan));
  ASSERT_TRUE(region) << region.error().line();
  auto view = (*pager)->map_view(*region, nullptr, model->bytes(), 0, 0);
  ASSERT_TRUE(view) << view.error().line();
  std::vector<std::uint8_t> plain(model->bytes());
  ASSERT_EQ(::pread(fd.get(), plain.data(), plain.size(), 0), static_cast<ssize_t>(plain.size()));
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(std::memcmp(*view, plain.data(), plain.size()), 0);
  }
  EXPECT_EQ(failures.count.load(), 0) << failures.text();
  EXPECT_LE(stats.resident_peak_bytes.load(), budget);
  EXPECT_LE(stats.kernel_peak_bytes.load(), budget + largest);
}

}  // namespace
}  // namespace resid::test

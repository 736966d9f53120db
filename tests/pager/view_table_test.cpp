// The table of app views, against a slow map of single pages.

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/units.hpp"
#include "pager/view_table.hpp"

namespace resid {
namespace {

TEST(ViewTable, FindsTheViewOfAnAddressAndNothingBeside) {
  ViewTable table;
  table.add({0x10000, 0x14000, 3, 0x2000});
  View v;
  EXPECT_FALSE(table.find(0xffff, v));
  ASSERT_TRUE(table.find(0x10000, v));
  EXPECT_EQ(v.region, 3U);
  ASSERT_TRUE(table.find(0x13fff, v));
  EXPECT_FALSE(table.find(0x14000, v));
}

TEST(ViewTable, CuttingTheMiddleLeavesBothEndsWithTheirOffsets) {
  ViewTable table;
  table.add({0x10000, 0x20000, 1, 0});
  std::vector<View> cut;
  table.remove(0x14000, 0x18000, cut);
  ASSERT_EQ(cut.size(), 1U);
  EXPECT_EQ(cut[0].offset, 0x4000U);
  View v;
  EXPECT_TRUE(table.find(0x13fff, v));
  EXPECT_FALSE(table.find(0x14000, v));
  ASSERT_TRUE(table.find(0x18000, v));
  EXPECT_EQ(v.offset, 0x8000U);
}

TEST(ViewTable, RemovingAViewWaitsForWhoeverActsOnIt) {
  ViewTable table;
  table.add({0x10000, 0x20000, 1, 0});
  std::atomic<bool> begun{false};
  std::atomic<bool> removed{false};
  std::thread remover;
  const auto act = [&](std::uint64_t begin) {
    begun = removed = false;
    remover = std::thread([&, begin] {
      std::vector<View> cut;
      begun = true;
      table.remove(begin, begin + 0x4000, cut);
      removed = true;
    });
    while (!begun.load())
      std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time enough to do it wrong
    EXPECT_FALSE(removed.load());
  };
  table.for_each(1, 0, 0x10000, [&](const ViewSpan&) { act(0x10000); });
  remover.join();
  EXPECT_TRUE(removed.load());
  table.with(0x15000, [&](const View&) { act(0x14000); });
  remover.join();
}

TEST(ViewTable, AgreesWithAPageMapUnderRandomUse) {
  std::mt19937 random(7);
  ViewTable table;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> pages;
  constexpr std::uint64_t kSpace = 200;
  for (int step = 0; step < 20000; ++step) {
    const std::uint64_t begin = random() % kSpace;
    const std::uint64_t end = begin + 1 + random() % 20;
    if (random() % 2 == 0) {
      std::vector<View> cut;
      table.remove(begin * kPage, end * kPage, cut);
      std::uint64_t cut_pages = 0;
      for (const View& v : cut)
        cut_pages += (v.end - v.begin) / kPage;
      std::uint64_t erased = 0;
      for (std::uint64_t p = begin; p < end; ++p)
        erased += pages.erase(p);
      ASSERT_EQ(cut_pages, erased);
    } else {
      bool free = true;
      for (std::uint64_t p = begin; p < end; ++p)
        free &= pages.count(p) == 0;
      ASSERT_EQ(table.overlaps(begin * kPage, end * kPage), !free);
      if (!free) continue;
      const auto region = static_cast<std::uint32_t>(random() % 3);
      const std::uint64_t offset = (random() % 100) * kPage;
      table.add({begin * kPage, end * kPage, region, offset});
      for (std::uint64_t p = begin; p < end; ++p) {
        pages[p] = {region, offset + (p - begin) * kPage};
      }
    }
    const std::uint64_t probe = random() % (kSpace + 20);
    View v;
    const auto it = pages.find(probe);
    ASSERT_EQ(table.find(probe * kPage + 5, v), it != pages.end());
    if (it != pages.end()) {
      ASSERT_EQ(v.region, it->second.first);
      ASSERT_EQ(v.offset + (probe * kPage - v.begin), it->second.second);
    }
    // Every page that shows a stretch of a region is visited, once.
    const auto region = static_cast<std::uint32_t>(random() % 3);
    const std::uint64_t offset = (random() % 100) * kPage;
    std::map<std::uint64_t, int> visited;
    table.for_each(region, offset, 8 * kPage, [&](const ViewSpan& span) {
      for (std::uint64_t b = 0; b < span.bytes; b += kPage)
        ++visited[(span.address + b) / kPage];
    });
    std::size_t expected = 0;
    for (const auto& [page, where] : pages) {
      if (where.first != region || where.second < offset || where.second >= offset + 8 * kPage) {
        continue;
      }
      ++expected;
      ASSERT_EQ(visited[page], 1);
    }
    ASSERT_EQ(visited.size(), expected);
  }
}

}  // namespace
}  // namespace resid

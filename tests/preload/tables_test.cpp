// The tables that the interposers look into, and the rules they apply.

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/units.hpp"
#include "preload/advice.hpp"
#include "preload/bounce.hpp"
#include "preload/lock_table.hpp"
#include "preload/recognise.hpp"
#include "preload/view_table.hpp"

namespace resid::preload {
namespace {

// Page number -> (region, page of the region): what the table should say, page by page.
using Reference = std::map<std::uintptr_t, std::pair<std::uint32_t, std::uint64_t>>;
constexpr std::uintptr_t kPages = 64;

RC_GTEST_PROP(ViewTable, agrees_with_a_page_by_page_reference, ()) {
  ViewTable table;
  Reference reference;
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const auto first = *rc::gen::inRange<std::uintptr_t>(0, kPages);
    const auto last = *rc::gen::inRange<std::uintptr_t>(first + 1, kPages + 1);
    std::uint64_t held = 0;
    for (auto page = first; page < last; ++page)
      held += reference.erase(page);
    RC_ASSERT(table.remove({first * kPage, last * kPage}) == held * kPage);
    if (*rc::gen::arbitrary<bool>()) {
      const auto region = *rc::gen::inRange<std::uint32_t>(0, 3);
      const auto offset = *rc::gen::inRange<std::uint64_t>(0, 100);
      table.add({{first * kPage, last * kPage}, region, offset * kPage});
      for (auto page = first; page < last; ++page)
        reference[page] = {region, offset + page - first};
    }
  }
  const auto first = *rc::gen::inRange<std::uintptr_t>(0, kPages);
  const auto last = *rc::gen::inRange<std::uintptr_t>(first + 1, kPages + 1);
  std::uintptr_t at = first * kPage;
  for (const Piece& piece : table.pieces({first * kPage, last * kPage})) {
    RC_ASSERT(piece.range.begin == at);
    RC_ASSERT(piece.range.end > at);
    for (auto page = piece.range.begin / kPage; page < piece.range.end / kPage; ++page) {
      const auto known = reference.find(page);
      RC_ASSERT(piece.is_view == (known != reference.end()));
      if (!piece.is_view) continue;
      RC_ASSERT(known->second.first == piece.region);
      RC_ASSERT(known->second.second ==
                (piece.offset + (page * kPage - piece.range.begin)) / kPage);
    }
    at = piece.range.end;
  }
  RC_ASSERT(at == last * kPage);
}

TEST(ViewTable, holder_joins_views_that_continue_each_other) {
  ViewTable table;
  table.add({{kPage, 4 * kPage}, 0, 2 * kPage});
  table.add({{4 * kPage, 8 * kPage}, 0, 5 * kPage});
  table.add({{8 * kPage, 9 * kPage}, 1, 9 * kPage});
  const auto holder = table.holder({2 * kPage, 6 * kPage});
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->range, (Range{kPage, 8 * kPage}));
  EXPECT_EQ(holder->offset, 2 * kPage);
}

TEST(ViewTable, holder_wants_the_whole_range_in_one_view) {
  ViewTable table;
  table.add({{kPage, 4 * kPage}, 0, 0});
  table.add({{4 * kPage, 8 * kPage}, 0, 7 * kPage});
  EXPECT_TRUE(table.holder({kPage, 4 * kPage}));
  EXPECT_EQ(table.holder({5 * kPage, 6 * kPage})->offset, 7 * kPage);
  EXPECT_FALSE(table.holder({3 * kPage, 5 * kPage}));
  EXPECT_FALSE(table.holder({0, 2 * kPage}));
  EXPECT_FALSE(table.holder({8 * kPage, 9 * kPage}));
}

// A pin that counts itself per page.
struct CountingPin {
  std::map<std::uintptr_t, int>* counts = nullptr;
  Range range;
  CountingPin(std::map<std::uintptr_t, int>* c, Range r) : counts(c), range(r) { add(1); }
  CountingPin(CountingPin&& other) noexcept
      : counts(std::exchange(other.counts, nullptr)), range(other.range) {}
  CountingPin& operator=(CountingPin&& other) noexcept {
    if (this != &other) {
      add(-1);
      counts = std::exchange(other.counts, nullptr);
      range = other.range;
    }
    return *this;
  }
  ~CountingPin() { add(-1); }
  void add(int by) const {
    if (counts == nullptr) return;
    for (auto page = range.begin / kPage; page < range.end / kPage; ++page)
      (*counts)[page] += by;
  }
};

RC_GTEST_PROP(LockTable, pins_exactly_the_pages_that_are_locked, ()) {
  std::map<std::uintptr_t, int> counts;
  {
    LockTable<CountingPin> table;
    std::map<std::uintptr_t, int> reference;
    const int steps = *rc::gen::inRange(1, 30);
    for (int step = 0; step < steps; ++step) {
      const auto first = *rc::gen::inRange<std::uintptr_t>(0, kPages);
      const auto last = *rc::gen::inRange<std::uintptr_t>(first + 1, kPages + 1);
      const Range range{first * kPage, last * kPage};
      if (*rc::gen::arbitrary<bool>()) {
        table.add(range, CountingPin(&counts, range));
        for (auto page = first; page < last; ++page)
          ++reference[page];
      } else {
        table.remove(range, [&](Range part) {
          return std::optional<CountingPin>(CountingPin(&counts, part));
        });
        for (auto page = first; page < last; ++page)
          reference[page] = 0;
      }
    }
    for (std::uintptr_t page = 0; page < kPages; ++page) {
      RC_ASSERT(counts[page] == reference[page]);
      RC_ASSERT(table.covers(page * kPage) == (reference[page] > 0));
    }
  }
  for (const auto& [page, count] : counts)
    RC_ASSERT(count == 0);
}

TEST(LockTable, keeps_the_whole_pin_when_a_rest_cannot_be_pinned) {
  std::map<std::uintptr_t, int> counts;
  LockTable<CountingPin> table;
  table.add({0, 8 * kPage}, CountingPin(&counts, {0, 8 * kPage}));
  table.remove({2 * kPage, 3 * kPage}, [](Range) { return std::optional<CountingPin>(); });
  EXPECT_EQ(counts[0], 1);
  EXPECT_EQ(counts[2], 1);
  EXPECT_EQ(counts[7], 1);
}

TEST(LockTable, follows_a_moved_mapping) {
  std::map<std::uintptr_t, int> counts;
  LockTable<CountingPin> table;
  table.add({2 * kPage, 4 * kPage}, CountingPin(&counts, {2 * kPage, 4 * kPage}));
  table.move({0, 8 * kPage}, 100 * kPage);
  EXPECT_TRUE(table.covers(102 * kPage));
  EXPECT_FALSE(table.covers(2 * kPage));
}

TEST(Advice, hints_are_accepted_and_discarding_is_refused) {
  for (const int advice : {MADV_NORMAL, MADV_WILLNEED, MADV_DONTNEED, MADV_HUGEPAGE, MADV_PAGEOUT,
                           MADV_POPULATE_READ, MADV_DOFORK}) {
    EXPECT_EQ(advice_on_view(advice).error, 0) << advice;
  }
  EXPECT_EQ(advice_on_view(MADV_REMOVE).error, EACCES);
  EXPECT_EQ(advice_on_view(MADV_FREE).error, EINVAL);
  EXPECT_EQ(advice_on_view(MADV_POPULATE_WRITE).error, EINVAL);
  EXPECT_EQ(advice_on_view(12345).error, EINVAL);
}

TEST(Advice, only_what_fills_the_cache_is_kept_from_the_kernel) {
  EXPECT_TRUE(advice_fills_cache(POSIX_FADV_WILLNEED));
  EXPECT_TRUE(advice_fills_cache(POSIX_FADV_SEQUENTIAL));
  EXPECT_FALSE(advice_fills_cache(POSIX_FADV_DONTNEED));
  EXPECT_FALSE(advice_fills_cache(POSIX_FADV_RANDOM));
}

TEST(Recognise, glob_is_tried_on_the_path_and_on_its_last_part) {
  EXPECT_TRUE(matches("/models/a.bin", "*.bin"));
  EXPECT_TRUE(matches("/models/a.bin", "a.*"));
  EXPECT_TRUE(matches("/models/a.bin", "/models/*"));
  EXPECT_FALSE(matches("/models/a.bin", "*.gguf"));
  EXPECT_FALSE(matches("/models/a.bin", ""));
  EXPECT_FALSE(matches("", "*"));
}

// Collects what put_through() hands over, at most `most` bytes a call.
struct Sink {
  std::string got;
  std::size_t most = SIZE_MAX;
  int calls = 0;
  ssize_t operator()(const char* data, std::size_t bytes, std::size_t done) {
    EXPECT_EQ(done, got.size());
    ++calls;
    const std::size_t n = std::min(bytes, most);
    got.append(data, n);
    return static_cast<ssize_t>(n);
  }
};

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<char>((i * 2654435761U) >> 11);
  return text;
}

RC_GTEST_PROP(PutThrough, joins_the_parts_in_order, ()) {
  const std::string text = pattern(*rc::gen::inRange<std::size_t>(0, 3000));
  std::vector<iovec> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    if (*rc::gen::arbitrary<bool>()) parts.push_back({const_cast<char*>(text.data()) + at, 0});
    const auto n = *rc::gen::inRange<std::size_t>(1, text.size() - at + 1);
    parts.push_back({const_cast<char*>(text.data()) + at, n});
    at += n;
  }
  Sink sink;
  const ssize_t put = put_through(parts.data(), static_cast<int>(parts.size()), text.size(), false,
                                  [&](auto... a) { return sink(a...); });
  RC_ASSERT(put == static_cast<ssize_t>(text.size()));
  RC_ASSERT(sink.got == text);
}

TEST(PutThrough, cuts_what_is_large_and_never_a_message) {
  const std::string text = pattern(2 * kBounceMax + 5);
  const iovec part{const_cast<char*>(text.data()), text.size()};
  Sink stream;
  EXPECT_EQ(put_through(&part, 1, text.size(), false, [&](auto... a) { return stream(a...); }),
            static_cast<ssize_t>(text.size()));
  EXPECT_EQ(stream.calls, 3);
  EXPECT_EQ(stream.got, text);
  Sink message;
  put_through(&part, 1, text.size(), true, [&](auto... a) { return message(a...); });
  EXPECT_EQ(message.calls, 1);
  EXPECT_EQ(message.got, text);
}

TEST(PutThrough, ends_at_a_short_count) {
  const std::string text = pattern(kBounceMax + 10);
  const iovec part{const_cast<char*>(text.data()), text.size()};
  Sink sink;
  sink.most = 1000;
  EXPECT_EQ(put_through(&part, 1, text.size(), false, [&](auto... a) { return sink(a...); }), 1000);
}

TEST(PutThrough, reports_an_error_only_when_nothing_was_taken) {
  const std::string text = pattern(2 * kBounceMax);
  const iovec part{const_cast<char*>(text.data()), text.size()};
  int calls = 0;
  EXPECT_EQ(put_through(&part, 1, text.size(), false,
                        [&](const char*, std::size_t n, std::size_t) -> ssize_t {
                          if (++calls == 2) {
                            errno = EPIPE;
                            return -1;
                          }
                          return static_cast<ssize_t>(n);
                        }),
            static_cast<ssize_t>(kBounceMax));
  errno = 0;
  EXPECT_EQ(put_through(&part, 1, text.size(), false,
                        [](const char*, std::size_t, std::size_t) -> ssize_t {
                          errno = EPIPE;
                          return -1;
                        }),
            -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST(TotalOf, refuses_what_the_kernel_refuses) {
  std::size_t total = 0;
  const iovec huge[2] = {{nullptr, SIZE_MAX / 2}, {nullptr, SIZE_MAX / 2}};
  EXPECT_FALSE(total_of(huge, 2, total));
  EXPECT_FALSE(total_of(huge, -1, total));
  const iovec some[2] = {{nullptr, 3}, {nullptr, 4}};
  ASSERT_TRUE(total_of(some, 2, total));
  EXPECT_EQ(total, 7U);
}

}  // namespace
}  // namespace resid::preload

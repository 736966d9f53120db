#include "policy/age_queue.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace resid {
namespace {

RC_GTEST_PROP(AgeQueue, oldest_is_the_member_touched_longest_ago, ()) {
  const auto chunks = *rc::gen::inRange<std::uint32_t>(1, 40);
  AgeQueue queue;
  queue.grow(chunks);
  std::vector<std::uint64_t> age(chunks, 0);
  std::vector<bool> member(chunks, false);
  std::uint64_t clock = 0;
  const auto ops = *rc::gen::container<std::vector<std::pair<int, ChunkId>>>(
      rc::gen::pair(rc::gen::inRange(0, 3), rc::gen::inRange<ChunkId>(0, chunks)));
  for (const auto& [op, chunk] : ops) {
    if (op == 0) {
      queue.touch(chunk);
      age[chunk] = ++clock;
    } else if (member[chunk]) {
      queue.erase(chunk);
      member[chunk] = false;
    } else {
      queue.insert(chunk);
      member[chunk] = true;
    }
    ChunkId expected = kNoChunk;
    for (ChunkId i = 0; i < chunks; ++i) {
      RC_ASSERT(queue.contains(i) == member[i]);
      if (member[i] && (expected == kNoChunk || age[i] < age[expected])) expected = i;
    }
    RC_ASSERT(queue.oldest() == expected);
  }
}

TEST(AgeQueue, a_chunk_that_arrives_untouched_is_young) {
  AgeQueue queue;
  queue.grow(2);
  queue.touch(0);
  queue.arrive(0);
  queue.leave(0);
  queue.touch(1);
  queue.arrive(1);
  queue.arrive(0);
  EXPECT_TRUE(queue.older(1, 0));
}

TEST(AgeQueue, a_chunk_that_arrives_after_a_touch_keeps_that_age) {
  AgeQueue queue;
  queue.grow(2);
  queue.touch(0);
  queue.touch(1);
  queue.arrive(1);
  queue.arrive(0);
  EXPECT_TRUE(queue.older(0, 1));
}

TEST(AgeQueue, a_touch_before_leaving_does_not_count_for_the_next_arrival) {
  AgeQueue queue;
  queue.grow(2);
  queue.arrive(0);
  queue.touch(0);
  queue.leave(0);
  queue.touch(1);
  queue.arrive(0);
  EXPECT_TRUE(queue.older(1, 0));
}

TEST(AgeQueue, growing_keeps_members_and_ages) {
  AgeQueue queue;
  queue.grow(2);
  queue.touch(1);
  queue.insert(1);
  queue.touch(0);
  queue.insert(0);
  queue.grow(5000);
  EXPECT_EQ(queue.oldest(), 1U);
  queue.erase(1);
  EXPECT_EQ(queue.oldest(), 0U);
  queue.grow(1);
  EXPECT_EQ(queue.chunks(), 5000U);
}

}  // namespace
}  // namespace resid

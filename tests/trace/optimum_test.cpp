// The optimum in bytes: both bounds against brute force, the schedules against the capacity they
// claim to keep, and the check that catches a circular input.

#include "trace/optimum.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "trace/belady.hpp"
#include "trace/bounds.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kNoWay = std::numeric_limits<std::uint64_t>::max();

struct Instance {
  Ids bytes;
  Ids accesses;
  std::uint64_t capacity = 0;
  Ids next;

  solver::Problem problem() const { return {accesses, next, bytes, capacity}; }
};

// From `low` to `high`, both included; of full size from the first instance on.
template <class T>
T between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}
Ids some_numbers(std::size_t n, std::uint32_t low, std::uint32_t high) {
  return *rc::gen::container<Ids>(
      n, rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(low, high + 1)));
}

// Small, and feasible: every chunk fits.
Instance instance(std::uint32_t chunks_most, std::uint32_t bytes_most, std::size_t length_most) {
  Instance out;
  const auto chunks = between<std::uint32_t>(2, chunks_most);
  out.bytes = some_numbers(chunks, 1, bytes_most);
  out.accesses = some_numbers(between<std::size_t>(length_most / 2, length_most), 0, chunks - 1);
  const std::uint64_t least = *std::max_element(out.bytes.begin(), out.bytes.end());
  const auto all = std::accumulate(out.bytes.begin(), out.bytes.end(), std::uint64_t{0});
  out.capacity = between<std::uint64_t>(least, all + 1);
  out.next = *solver::next_uses(out.accesses, chunks);
  return out;
}

// The least bytes read, when a policy may hold any part of any chunk but must hold all of the one
// that is accessed: every way of giving up bytes is tried. With `whole`, chunks go whole only.
class BruteForce {
 public:
  BruteForce(const Instance& in, bool whole) : in_(in), whole_(whole) {}
  std::uint64_t least() { return from(0, Ids(in_.bytes.size(), 0)); }

 private:
  std::uint64_t from(std::size_t at, const Ids& held) {
    if (at == in_.accesses.size()) return 0;
    const auto [known, fresh] = known_.try_emplace({at, held}, kNoWay);
    if (!fresh) return known->second;
    const std::uint32_t chunk = in_.accesses[at];
    std::uint64_t best = kNoWay;
    Ids then = held;
    give_up(0, chunk, then, [&] {
      Ids now = then;
      const std::uint64_t read = in_.bytes[chunk] - now[chunk];
      now[chunk] = in_.bytes[chunk];
      if (std::accumulate(now.begin(), now.end(), std::uint64_t{0}) > in_.capacity) return;
      best = std::min(best, read + from(at + 1, now));
    });
    known_[{at, held}] = best;
    return best;
  }
  // Calls `act` with every `held` that giving up bytes of chunks other than `keep` leads to.
  template <class Act>
  void give_up(std::uint32_t chunk, std::uint32_t keep, Ids& held, const Act& act) {
    if (chunk == held.size()) return act();
    const std::uint32_t before = held[chunk];
    for (std::uint32_t left = 0; left <= before; ++left) {
      const bool allowed = left == before || (chunk != keep && (left == 0 || !whole_));
      if (!allowed) continue;
      held[chunk] = left;
      give_up(chunk + 1, keep, held, act);
    }
    held[chunk] = before;
  }

  const Instance& in_;
  bool whole_;
  std::map<std::pair<std::size_t, Ids>, std::uint64_t> known_;
};

// Carries a schedule out with no regard to how it was found; kNoWay when it does not fit.
std::uint64_t carried_out(const Instance& in, const solver::Schedule& schedule) {
  std::uint64_t read = 0;
  std::uint64_t misses = 0;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < in.accesses.size(); ++i) {
    const std::uint32_t bytes = in.bytes[in.accesses[i]];
    if (!schedule.kept[i]) {
      read += bytes;
      ++misses;
      used += bytes;
    }
    if (used > in.capacity) return kNoWay;
    const bool stays = in.next[i] != solver::kNeverAgain && schedule.kept[in.next[i]];
    if (!stays) used -= bytes;
  }
  return misses == schedule.misses ? read : kNoWay;
}

const solver::Tick kNoTick = [](std::uint32_t) {};

RC_GTEST_PROP(RelaxedOptimum, IsTheLeastOfAllPartialChoices, ()) {
  const Instance in = instance(5, 3, 14);
  RC_ASSERT(solver::relaxed_optimum(in.problem(), kNoTick).bytes == BruteForce(in, false).least());
}

RC_GTEST_PROP(ExactSchedule, IsTheLeastOfAllWholeChoices, ()) {
  const Instance in = instance(6, 9, 20);
  const auto exact = solver::exact_schedule(in.problem());
  RC_ASSERT(exact.has_value());
  RC_ASSERT(exact->bytes == BruteForce(in, true).least());
  RC_ASSERT(exact->misses <= in.accesses.size());
}

RC_GTEST_PROP(BestSchedule, FitsAndIsNoBetterThanTheOptimum, ()) {
  const Instance in = instance(9, 9, 40);
  const solver::Problem problem = in.problem();
  const solver::Schedule relaxed = solver::relaxed_optimum(problem, kNoTick);
  const solver::Schedule best = solver::best_schedule(problem, relaxed, kNoTick);
  const auto exact = solver::exact_schedule(problem);
  RC_ASSERT(exact.has_value());
  RC_ASSERT(carried_out(in, best) == best.bytes);
  RC_ASSERT(relaxed.bytes <= exact->bytes);
  RC_ASSERT(exact->bytes <= best.bytes);
  // What the relaxed optimum keeps whole fits without the rest.
  for (const unsigned window : {1U, 3U, 100U}) {
    for (const std::vector<bool>& must : {std::vector<bool>{}, relaxed.kept, best.kept}) {
      const solver::Schedule some = solver::whole_schedule(problem, must, window, kNoTick);
      RC_ASSERT(carried_out(in, some) == some.bytes);
      for (std::size_t i = 0; i < must.size(); ++i)
        RC_ASSERT(!must[i] || some.kept[i]);
      if (must == best.kept) RC_ASSERT(some.bytes <= best.bytes);
    }
  }
}

RC_GTEST_PROP(OptimumBytes, BoundsTheBestOfAllWholeChoices, ()) {
  const Instance in = instance(6, 9, 20);
  const auto result = optimum_bytes(header_of(in.bytes), in.accesses, in.capacity);
  RC_ASSERT(result.has_value());
  const std::uint64_t least = BruteForce(in, true).least();
  RC_ASSERT(result->lower_bytes <= least);
  RC_ASSERT(least <= result->upper_bytes);
  RC_ASSERT(result->exact == (result->lower_bytes == result->upper_bytes));
  RC_ASSERT(!result->floor_bytes.has_value());
}

// Too many sets of chunks to try: the bounds must hold, and meet where it is said so.
RC_GTEST_PROP(OptimumBytes, BoundsHoldWhereTheOptimumIsNotTried, ()) {
  Instance in;
  in.bytes = some_numbers(30, 1, 50);
  in.accesses = some_numbers(between<std::size_t>(200, 400), 0, 29);
  in.capacity = between<std::uint64_t>(50, 500);
  in.next = *solver::next_uses(in.accesses, 30);
  const auto result = optimum_bytes(header_of(in.bytes), in.accesses, in.capacity);
  RC_ASSERT(result.has_value());
  RC_ASSERT(result->lower_bytes == solver::relaxed_optimum(in.problem(), kNoTick).bytes);
  RC_ASSERT(result->lower_bytes <= result->upper_bytes);
  RC_ASSERT(result->exact == (result->lower_bytes == result->upper_bytes));
  // Not far apart either: a bound that says nothing would pass the above.
  RC_ASSERT(result->upper_bytes <= result->lower_bytes + result->lower_bytes / 5);
}

RC_GTEST_PROP(OptimumBytes, OfEqualChunksIsBeladys, ()) {
  const auto chunks = between<std::uint32_t>(1, 30);
  const Ids accesses = some_numbers(between<std::size_t>(0, 100), 0, chunks - 1);
  const auto room = between<std::uint64_t>(1, 12);
  const auto spare = between<std::uint64_t>(0, 9);
  const auto result = optimum_bytes(header_of(Ids(chunks, 10)), accesses, room * 10 + spare);
  const auto misses = optimum_misses(accesses, chunks, room, TraceKind::reference);
  RC_ASSERT(result.has_value() && misses.has_value());
  RC_ASSERT(result->exact);
  RC_ASSERT(result->misses == misses->misses);
  RC_ASSERT(result->lower_bytes == 10 * misses->misses);
  // The solver for unequal chunks must agree, where it is the relaxed one that may use the spare.
  Ids next = *solver::next_uses(accesses, chunks);
  const Ids bytes(chunks, 10);
  const solver::Problem problem{accesses, next, bytes, room * 10};
  RC_ASSERT(solver::whole_schedule(problem, {}, 1, kNoTick).misses == misses->misses);
  RC_ASSERT(solver::relaxed_optimum(problem, kNoTick).bytes == 10 * misses->misses);
}

TEST(OptimumBytes, OfEverythingResidentIsEveryByteOnce) {
  const TraceHeader header = header_of({5, 100, 7});
  const auto result = optimum_bytes(header, Ids{0, 2, 1, 0, 2, 2, 1}, 112);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->exact);
  EXPECT_EQ(result->lower_bytes, 112U);
  EXPECT_EQ(result->misses, 3U);
}

// The one large chunk or two small ones: furthest-next-use keeps the wrong ones, every set tried
// keeps the right ones.
TEST(OptimumBytes, IsFoundWhereTheBoundsDoNotMeet) {
  const TraceHeader header = header_of({6, 6, 10, 1});
  const Ids accesses{0, 1, 2, 3, 0, 1, 2, 3, 2, 0, 1, 2};
  const Ids next = *solver::next_uses(accesses, 4);
  const solver::Problem problem{accesses, next, header.chunk_bytes, 13};
  const auto relaxed = solver::relaxed_optimum(problem, kNoTick);
  const auto result = optimum_bytes(header, accesses, 13);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->exact);
  EXPECT_LT(relaxed.bytes, result->lower_bytes);
}

TEST(OptimumBytes, NamesTheChunkThatDoesNotFit) {
  const TraceHeader header = header_of({5, 100, 1000});
  const auto result = optimum_bytes(header, Ids{0, 1, 0}, 99);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().status, Status::infeasible);
  EXPECT_EQ(exit_code(result.error().status), 4);
  EXPECT_EQ(result.error().what, "chunk 1");
  EXPECT_THAT(result.error().why, HasSubstr("100 bytes"));
  EXPECT_THAT(result.error().why, HasSubstr("budget is 99 bytes"));
  // Chunk 2 is larger still, but nobody reads it.
  EXPECT_TRUE(optimum_bytes(header, Ids{0, 1, 0}, 100));
  EXPECT_TRUE(optimum_bytes(header, Ids{}, 0));
}

TEST(OptimumBytes, RefusesAFaultTraceAndAnUnknownChunk) {
  TraceHeader header = header_of({5, 5});
  EXPECT_EQ(optimum_bytes(header, Ids{0, 2}, 10).error().status, Status::usage);
  header.kind = TraceKind::fault;
  EXPECT_EQ(optimum_bytes(header, Ids{0, 1}, 10).error().status, Status::usage);
}

TEST(OptimumBytes, TellsItsProgressToTheEnd) {
  const TraceHeader header = cyclic_header({5, 7, 5}, 50000);
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  unsigned calls = 0;
  ASSERT_TRUE(optimum_bytes(header, cyclic_accesses(header), 12, [&](auto done, auto of) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, of);
    last = done;
    total = of;
    ++calls;
  }));
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 3U);
}

// ---- Cyclic scans

// The chunks that furthest-next-use misses: what a pager under an informed policy writes as faults.
Ids fault_string(const TraceHeader& header, const Ids& accesses, std::uint64_t capacity) {
  const Ids next = *solver::next_uses(accesses, header.cycle_chunks);
  const auto schedule =
      solver::whole_schedule({accesses, next, header.chunk_bytes, capacity}, {}, 1, kNoTick);
  Ids faults;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (!schedule.kept[i]) faults.push_back(accesses[i]);
  }
  return faults;
}

const Ids kEqual(20, 4096);
const Ids kUnequal = [] {
  Ids out;
  for (std::uint32_t i = 0; i < 40; ++i)
    out.push_back(1 + i * 7919 % 5003);
  return out;
}();

TEST(CyclicScan, IsAcceptedAndItsFloorIsRespected) {
  for (const Ids& bytes : {kEqual, kUnequal}) {
    const TraceHeader header = cyclic_header(bytes, 6);
    const auto all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    for (std::uint64_t capacity = 6000; capacity < all + 5000; capacity += 1111) {
      const auto result = optimum_bytes(header, cyclic_accesses(header), capacity);
      ASSERT_TRUE(result) << result.error().line();
      ASSERT_TRUE(result->floor_bytes);
      EXPECT_GE(result->lower_bytes, *result->floor_bytes);
      const std::uint64_t room = bytes == kEqual ? capacity / 4096 * 4096 : capacity;
      EXPECT_EQ(*result->floor_bytes, all + 5 * (all > room ? all - room : 0));
      // Within the chunk that is being read, and what it displaces, of the floor.
      EXPECT_LE(result->upper_bytes, *result->floor_bytes + 5 * 2 * 5003);
    }
  }
  EXPECT_EQ(*cyclic_floor_bytes(cyclic_header(kEqual, 6), 5 * 4096 + 17),
            4096 * cyclic_floor(20, 5, 6));
  EXPECT_FALSE(cyclic_floor_bytes(header_of(kEqual), 4096));
}

TEST(CyclicScan, ThePassesMayTakeTheChunksInAnyOrder) {
  const TraceHeader header = cyclic_header({4, 5, 6}, 2);
  EXPECT_TRUE(optimum_bytes(header, Ids{0, 1, 2, 2, 1, 0}, 10));
  EXPECT_FALSE(optimum_bytes(header, Ids{0, 1, 2, 2, 1, 1}, 10));
}

// A fault trace under the name of a reference trace, with the claim of the run that it comes from:
// its "optimum" is lower than any policy's, and that is how it shows (I-10).
TEST(CyclicScan, AFaultTraceByForceIsBelowTheFloor) {
  for (const Ids& bytes : {kEqual, kUnequal}) {
    const TraceHeader header = cyclic_header(bytes, 6);
    const auto all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    const Ids accesses = cyclic_accesses(header);
    const Ids faults = fault_string(header, accesses, all / 2);
    ASSERT_LT(faults.size(), accesses.size());
    ASSERT_TRUE(optimum_bytes(header, accesses, all / 2));  // the control
    const auto circular = optimum_bytes(header, faults, all / 2);
    ASSERT_FALSE(circular);
    EXPECT_EQ(circular.error().status, Status::usage);
    EXPECT_THAT(circular.error().line(), HasSubstr("cannot do with less than"));
    EXPECT_THAT(circular.error().line(), HasSubstr("not the workload's own reference trace"));
    // Without the floor the claim itself would still not hold.
    EXPECT_FALSE(check_cycle(header, faults));
  }
}

TEST(CyclicScan, AStringThatIsNotWhatItsHeaderClaimsIsRefused) {
  const TraceHeader header = cyclic_header({4, 5, 6}, 2);
  const auto why = [&](const Ids& accesses) {
    const auto checked = check_cycle(header, accesses);
    EXPECT_FALSE(checked);
    return checked ? std::string() : checked.error().why;
  };
  EXPECT_TRUE(check_cycle(header, Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_THAT(why({0, 1, 2}), HasSubstr("there are 3 accesses"));
  EXPECT_THAT(why({0, 1, 2, 0, 1, 2, 0}), HasSubstr("there are 7 accesses"));
  EXPECT_THAT(why({0, 0, 1, 2, 1, 2}), HasSubstr("access 1, in pass 0, names chunk 0 again"));
  EXPECT_THAT(why({0, 1, 3, 0, 1, 2}), HasSubstr("names chunk 3"));
  // On every invocation, also where no floor is undercut.
  EXPECT_FALSE(optimum_bytes(header, Ids{0, 1, 2, 0, 2, 2}, 15));
  EXPECT_FALSE(optimum_bytes(header, Ids{0, 1, 2, 0, 1, 2, 0, 1, 2}, 8));
}

TEST(CyclicScan, AnAbsurdClaimIsRefusedNotWrappedAround) {
  TraceHeader header = cyclic_header(Ids(1000, 0xffffffff), 0xffffffff);
  EXPECT_EQ(*cyclic_floor_bytes(header, 0xffffffff), kNoWay);
  EXPECT_FALSE(optimum_bytes(header, Ids{0, 1}, 0xffffffff));
}

}  // namespace
}  // namespace resid::trace_test

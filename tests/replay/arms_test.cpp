// Whole replays: what each arm reads, that it is checked, and what becomes of budgets that cannot
// be.

#include "replay/replay.hpp"

#include <sys/mman.h>

#include <map>

#include "base/units.hpp"
#include "host/cgroup.hpp"
#include "replay_support.hpp"
#include "trace/trace.hpp"

namespace resid {
namespace {

using test::fresh_path;
using test::GeneratedStore;
using test::MiB;

constexpr std::uint64_t kChunk = 256 * 1024;
constexpr std::uint64_t kChunks = 64;
constexpr std::uint64_t kPasses = 4;

ReplayConfig config_for(ArmKind arm, std::uint64_t chunks_that_fit) {
  ReplayConfig config;
  config.arm = arm;
  config.probe = false;
  config.pager.budget_bytes = chunks_that_fit * kChunk;
  config.pager.policy = arm == ArmKind::c ? "lru" : "layer_order_declared";
  config.pager.prefetch_depth = arm == ArmKind::e || arm == ArmKind::b ? 4 : 0;
  config.pager.eager_reconcile = true;
  config.drive.passes = kPasses;
  return config;
}

bool may_make_groups() {
  const auto self = host::memory_cgroup();
  return self && host::ChildGroup::create(*self);
}

class Arms : public ::testing::Test {
 protected:
  ReplayResult run(const ReplayConfig& config) {
    const auto w = Workload::scan(store_.path(), kChunk);
    if (!w) ADD_FAILURE() << w.error().line();
    auto result = replay(*w, config);
    if (!result) {
      ADD_FAILURE() << result.error().line();
      return {};
    }
    return std::move(*result);
  }
  GeneratedStore store_{kChunks * kChunk};
};

// What an arm reads in an undisturbed run. A machine under load may delay one thread of the pager
// so that a victim is chosen a moment too early, and a few chunks more or fewer are read; that
// happens now and then, so one of a few runs must be exact.
template <class Judge>
void one_of_a_few(Judge judge) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    if (judge(bytes)) return;
  }
  ADD_FAILURE() << "the last run read " << bytes << " bytes";
}

// The floor of the least recently used rule on a cyclic scan: whatever is needed was just given up.
TEST_F(Arms, LruReadsEveryChunkInEveryPass) {
  for (const std::uint64_t k : {16U, 40U, 63U}) {
    one_of_a_few([&](std::uint64_t& bytes) {
      const ReplayResult r = run(config_for(ArmKind::c, k));
      EXPECT_EQ(r.mismatches, 0U);
      EXPECT_TRUE(r.budget_kept);
      bytes = r.bytes_read;
      return bytes == kPasses * kChunks * kChunk;
    });
  }
}

TEST_F(Arms, TheDeclaredOrderReadsNoMoreThanOneChunkAPassAboveTheFloor) {
  for (const std::uint64_t k : {8U, 16U, 40U, 63U}) {
    one_of_a_few([&](std::uint64_t& bytes) {
      const ReplayResult r = run(config_for(ArmKind::d, k));
      if (!r.floor_bytes || !r.optimum) {
        ADD_FAILURE() << "no optimum";
        return true;
      }
      EXPECT_GE(r.bytes_read, *r.floor_bytes);
      EXPECT_TRUE(r.optimum->exact);
      EXPECT_GE(r.bytes_read, r.optimum->bytes);
      EXPECT_EQ(r.mismatches, 0U);
      EXPECT_TRUE(r.budget_kept);
      EXPECT_EQ(r.kernel_read_bytes, r.bytes_read);  // where reads are direct, nothing else reads
      EXPECT_EQ(r.consumed_bytes, kPasses * kChunks * kChunk);
      EXPECT_EQ(r.bytes_by_pass.size(), kPasses);
      EXPECT_EQ(r.bytes_by_pass.back(), r.bytes_read);
      bytes = r.bytes_read;
      return bytes <= *r.floor_bytes + kPasses * kChunk;
    });
  }
}

TEST_F(Arms, AreByteEqualWhenRepeatedWithoutPrefetch) {
  for (const ArmKind arm : {ArmKind::c, ArmKind::d}) {
    std::uint64_t before = run(config_for(arm, 24)).bytes_read;
    int equal = 0;
    one_of_a_few([&](std::uint64_t& bytes) {
      bytes = run(config_for(arm, 24)).bytes_read;
      equal = bytes == before ? equal + 1 : 0;
      before = bytes;
      return equal == 2;  // three in a row
    });
  }
}

TEST_F(Arms, PrefetchTakesFaultsOffTheWay) {
  const ReplayResult d = run(config_for(ArmKind::d, 32));
  const ReplayResult e = run(config_for(ArmKind::e, 32));
  EXPECT_EQ(e.mismatches, 0U);
  EXPECT_TRUE(e.budget_kept);
  EXPECT_GT(e.prefetch.useful, 0U);
  EXPECT_LT(e.faults_missing, d.faults_missing);
}

TEST_F(Arms, OfThreadsWithALookaheadStayRight) {
  ReplayConfig config = config_for(ArmKind::e, 24);
  config.drive.threads = 4;
  config.drive.lookahead = 3;
  const ReplayResult r = run(config);
  EXPECT_EQ(r.mismatches, 0U);
  EXPECT_TRUE(r.budget_kept);
  EXPECT_EQ(r.consumed_bytes, kPasses * kChunks * kChunk);
}

TEST_F(Arms, WithASynchronousHandlerReadTheSame) {
  ReplayConfig config = config_for(ArmKind::d, 24);
  config.pager.sync_handler = true;
  const std::uint64_t synchronous = run(config).bytes_read;
  config.pager.sync_handler = false;
  one_of_a_few([&](std::uint64_t& bytes) {
    bytes = run(config).bytes_read;
    return bytes == synchronous;
  });
}

TEST_F(Arms, OfTheKernelRunInAGroupOfEqualMemory) {
  if (!may_make_groups()) {
    GTEST_SKIP() << "no right to make a memory control group here";
  }
  const ReplayResult d = run(config_for(ArmKind::d, 32));
  for (const ArmKind arm : {ArmKind::a, ArmKind::b}) {
    const ReplayResult r = run(config_for(arm, 32));
    EXPECT_EQ(r.mismatches, 0U);
    EXPECT_GE(r.bytes_read, kChunks * kChunk);  // cold: each byte at least once
    EXPECT_EQ(r.group_limit, r.group_need + 32 * kChunk);
    // What the process itself takes differs by its arm; by less than what is being measured.
    // What the slack leaves is page cache to them, and they are judged by it.
    EXPECT_GE(r.granted_bytes, 32 * kChunk);
    EXPECT_GE(r.bytes_read, r.optimum->bytes);
    EXPECT_NEAR(static_cast<double>(r.group_need), static_cast<double>(d.group_need), 4.0 * MiB);
    ASSERT_TRUE(r.cold);
    EXPECT_EQ(r.cold->bytes, 0U);
  }
}

// Where the budget is nearly everything, the slack decides: nobody may seem to beat the optimum.
TEST_F(Arms, OfTheKernelDoNotBeatTheOptimumOfWhatTheyHad) {
  if (!may_make_groups()) {
    GTEST_SKIP() << "no right to make a memory control group here";
  }
  for (const Advice advice : {Advice::normal, Advice::sequential, Advice::willneed}) {
    ReplayConfig config = config_for(ArmKind::a, 60);
    config.advice = advice;
    const ReplayResult r = run(config);
    EXPECT_GE(r.bytes_read, r.optimum->bytes) << name(advice);
    EXPECT_GE(r.bytes_read, *r.floor_bytes) << name(advice);
    EXPECT_LE(r.granted_bytes, 60 * kChunk + 4 * MiB) << name(advice);
  }
}

TEST_F(Arms, ReadNoLessThanTheyMustWithThreadsAndSmallChunks) {
  const auto w = Workload::scan(store_.path(), 65536);
  ASSERT_TRUE(w);
  for (int i = 0; i < 5; ++i) {
    ReplayConfig config = config_for(ArmKind::d, 32);
    config.drive.threads = 3;
    config.drive.lookahead = 1'000'000;
    const auto r = replay(*w, config);
    ASSERT_TRUE(r) << r.error().line();
    EXPECT_EQ(r->bytes_read, r->kernel_read_bytes);
    // Cold: all of it, and perhaps what a thread ahead needs of the next pass.
    EXPECT_GE(r->bytes_by_pass.front(), kChunks * kChunk);
    EXPECT_EQ(r->uffd_route.empty(), false);
  }
}

TEST_F(Arms, SayWhenTheStoreIsChangedMeanwhile) {
  for (const ArmKind arm : {ArmKind::a, ArmKind::d}) {
    if (is_kernel(arm) && !may_make_groups()) continue;
    const auto w = Workload::scan(store_.path(), kChunk);
    ReplayConfig config = config_for(arm, 32);
    config.advice = Advice::normal;
    bool spoilt = false;
    config.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (!spoilt && done > total / 4) {
        spoilt = true;
        store_.spoil(37 * kChunk + 4096 * 3 + 5);
      }
    };
    config.drive.compute_ns_per_mib = 4'000'000;
    const auto r = replay(*w, config);
    ASSERT_TRUE(spoilt) << name(arm);
    ASSERT_FALSE(r) << name(arm);
    EXPECT_EQ(r.error().status, Status::store_changed) << r.error().line();
  }
}

TEST_F(Arms, OfTheKernelNeedAGroup) {
  ReplayConfig config = config_for(ArmKind::a, 32);
  config.use_cgroup = false;
  const auto w = Workload::scan(store_.path(), kChunk);
  const auto r = replay(*w, config);
  ASSERT_FALSE(r);
  EXPECT_EQ(exit_code(r.error().status), 3);
}

// One byte of the store differs from the formula: every arm must notice, or `mismatches` is a
// decoration.
TEST_F(Arms, NoticeAWrongByte) {
  store_.spoil(37 * kChunk + 4096 * 3 + 5);
  for (const ArmKind arm : {ArmKind::a, ArmKind::b, ArmKind::c, ArmKind::d, ArmKind::e}) {
    if (is_kernel(arm) && !may_make_groups()) continue;
    const ReplayResult r = run(config_for(arm, 32));
    EXPECT_EQ(r.mismatches, kPasses) << name(arm);
    EXPECT_EQ(r.first_mismatch, 37U) << name(arm);
  }
}

TEST_F(Arms, RefuseAStoreThatStaysWarm) {
  const Fd fd(::open(store_.path().c_str(), O_RDONLY | O_CLOEXEC));
  void* view = ::mmap(nullptr, kChunk, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_EQ(::mlock(view, kChunk), 0);
  const auto w = Workload::scan(store_.path(), kChunk);
  const auto r = replay(*w, config_for(ArmKind::d, 32));
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().line().find("page cache"), std::string::npos) << r.error().line();
  ::munmap(view, kChunk);
}

TEST_F(Arms, AreCensoredWhereTheBudgetHoldsNoTwoChunks) {
  const ReplayResult r = run(config_for(ArmKind::d, 1));
  EXPECT_TRUE(r.censored);
  EXPECT_NE(r.censored_reason.find("two chunks"), std::string::npos) << r.censored_reason;
}

// The kernel ends an arm that holds more than its group may: a result, not a crash.
TEST_F(Arms, AreCensoredWhenTheKernelEndsThem) {
  if (!may_make_groups()) {
    GTEST_SKIP() << "no right to make a memory control group here";
  }
  ReplayConfig config = config_for(ArmKind::d, 48);
  config.slack_bytes = -static_cast<std::int64_t>(32 * kChunk);
  const ReplayResult r = run(config);
  EXPECT_TRUE(r.censored);
  EXPECT_NE(r.censored_reason.find("limit"), std::string::npos) << r.censored_reason;
  EXPECT_LT(r.consumed_bytes, kPasses * kChunks * kChunk);
}

TEST_F(Arms, StopWhenTheyAreTold) {
  std::atomic<bool> stop{true};
  ReplayConfig config = config_for(ArmKind::d, 32);
  config.stop = &stop;
  const auto w = Workload::scan(store_.path(), kChunk);
  const auto r = replay(*w, config);
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().why.find("interrupted"), std::string::npos);
}

std::vector<TraceRecord> read_all(const std::string& path, TraceKind kind) {
  auto reader = TraceReader::open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().line();
    return {};
  }
  EXPECT_EQ(reader->header().kind, kind);
  EXPECT_EQ(reader->header().chunk_bytes.size(), kChunks);
  EXPECT_EQ(reader->header().cycle_chunks, kChunks);
  EXPECT_EQ(reader->header().passes, kPasses);
  std::vector<TraceRecord> all;
  std::vector<TraceRecord> part(100);
  for (;;) {
    const auto n = reader->next(part);
    if (!n) {
      ADD_FAILURE() << n.error().line();
      return {};
    }
    if (*n == 0) break;
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(*n));
  }
  ::unlink(path.c_str());
  return all;
}

// The four traces tell one story: every fault is a fetch, what was fetched and not given up is what
// fits.
TEST_F(Arms, WriteTracesThatAgree) {
  ReplayConfig config = config_for(ArmKind::d, 24);
  config.traces = {fresh_path(), fresh_path(), fresh_path(), fresh_path()};
  const ReplayResult r = run(config);
  EXPECT_EQ(r.trace_dropped, 0U);
  const auto references = read_all(config.traces.reference, TraceKind::reference);
  const auto faults = read_all(config.traces.fault, TraceKind::fault);
  const auto fetches = read_all(config.traces.fetch, TraceKind::fetch);
  const auto victims = read_all(config.traces.victim, TraceKind::victim);
  ASSERT_EQ(references.size(), kPasses * kChunks);
  for (std::uint64_t i = 0; i < references.size(); ++i)
    EXPECT_EQ(references[i].chunk, i % kChunks);
  EXPECT_EQ(fetches.size() * kChunk, r.bytes_read);
  EXPECT_EQ(victims.size(), r.evictions);
  ASSERT_EQ(faults.size(), fetches.size());
  std::map<std::uint32_t, std::int64_t> held;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    EXPECT_EQ(faults[i].chunk, fetches[i].chunk);
    ++held[fetches[i].chunk];
  }
  for (const TraceRecord& v : victims)
    --held[v.chunk];
  std::uint64_t resident = 0;
  for (const auto& [chunk, times] : held) {
    EXPECT_TRUE(times == 0 || times == 1) << "chunk " << chunk;
    resident += static_cast<std::uint64_t>(times);
  }
  EXPECT_LE(resident, 24U);
  EXPECT_GE(resident, 22U);
}

TEST_F(Arms, OptReadsNothingAndSaysTheFloor) {
  const ReplayResult r = run(config_for(ArmKind::opt, 32));
  ASSERT_TRUE(r.optimum && r.floor_bytes);
  EXPECT_EQ(r.bytes_read, r.optimum->bytes);
  EXPECT_GE(r.bytes_read, *r.floor_bytes);
  EXPECT_LE(r.bytes_read, *r.floor_bytes + kPasses * kChunk);
}

}  // namespace
}  // namespace resid

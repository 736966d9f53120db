#include "host/memory.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/units.hpp"
#include "fake_tree.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20;
constexpr std::uint64_t kGib = 1ULL << 30;

TEST(MemoryFacts, ReadsMeminfo) {
  const FakeTree tree;
  tree.write("proc/meminfo",
             "MemTotal:       24683620 kB\nMemFree: 1 kB\nMemAvailable:   24345020 kB\n"
             "SwapCached: 9 kB\nSwapTotal:          2048 kB\n");
  const auto facts = memory_facts(tree.roots());
  ASSERT_TRUE(facts) << facts.error().line();
  EXPECT_EQ(facts->total, 24683620ULL * 1024);
  EXPECT_EQ(facts->available, 24345020ULL * 1024);
  EXPECT_EQ(facts->swap_total, 2 * kMib);
}

TEST(MemoryFacts, FailsOnAnythingElse) {
  const FakeTree tree;
  tree.make_folder("proc");
  EXPECT_FALSE(memory_facts(tree.roots()));
  const std::string good = "MemTotal: 9 kB\nMemAvailable: 8 kB\n";
  for (const char* bad :
       {"", "SwapTotal: x kB\n", "SwapTotal: 5\n", "SwapTotal: 5 MB\n", "SwapTotal: -5 kB\n",
        "SwapTotal:\n", "SwapTotal: 99999999999999999 kB\n", "SwapTotally: 5 kB\n"}) {
    tree.write("proc/meminfo", good + bad);
    const auto facts = memory_facts(tree.roots());
    ASSERT_FALSE(facts) << bad;
    EXPECT_EQ(facts.error().status, Status::system);
    EXPECT_EQ(facts.error().what, tree.path("proc/meminfo"));
  }
}

TEST(MemoryFacts, OfThisMachineMakeSense) {
  const auto facts = memory_facts();
  ASSERT_TRUE(facts) << facts.error().line();
  EXPECT_GT(facts->total, 0U);
  EXPECT_LE(facts->available, facts->total);
}

// Runs `body` in a child, so that limits and users of this process stay as they are.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST(MemoryFacts, AnOrdinaryUserIsHeldToTheLockLimit) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{4 * kMib, 4 * kMib};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 1;
              if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 2;
              const auto facts = memory_facts();
              return facts && facts->lock_limit == 4 * kMib ? 0 : 3;
            }),
            0);
}

TEST(MemoryFacts, RootIsNotHeldToTheLockLimit) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const int result = in_child([] {
    const rlimit limit{4 * kMib, 4 * kMib};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 1;
    const auto facts = memory_facts();
    if (!facts) return 2;
    if (facts->lock_limit == 4 * kMib) return 77;
    return facts->lock_limit == kNoLimit ? 0 : 3;
  });
  if (result == 77) GTEST_SKIP() << "root without CAP_IPC_LOCK";
  EXPECT_EQ(result, 0);
}

MemoryCgroup group(CgroupVersion version, std::uint64_t swap_limit) {
  MemoryCgroup out;
  out.version = version;
  out.charged = "/sys/fs/cgroup/x";
  out.swap_limit = swap_limit;
  return out;
}

TEST(SwapGuaranteeTest, NoSwapComesFirst) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, 0, kNoLimit};
  EXPECT_EQ(*swap_guarantee(facts, group(CgroupVersion::v2, 0), kGib), SwapGuarantee::no_swap);
}

TEST(SwapGuaranteeTest, ThenAGroupThatForbidsIt) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, kGib, kNoLimit};
  EXPECT_EQ(*swap_guarantee(facts, group(CgroupVersion::v2, 0), kGib), SwapGuarantee::cgroup_v2);
}

TEST(SwapGuaranteeTest, ThenEnoughOfALockLimit) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, kGib, kGib};
  EXPECT_EQ(*swap_guarantee(facts, group(CgroupVersion::v2, kPage), kGib), SwapGuarantee::mlocked);
  EXPECT_FALSE(swap_guarantee(facts, group(CgroupVersion::v2, kPage), kGib + 1));
}

TEST(SwapGuaranteeTest, ButAMountWithoutSwapComesBeforeLocking) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, kGib, 8 * kGib, true};
  EXPECT_EQ(*swap_guarantee(facts, group(CgroupVersion::v1, 0), 2 * kGib),
            SwapGuarantee::noswap_mount);
  EXPECT_EQ(*swap_guarantee(facts, group(CgroupVersion::v2, 0), kGib), SwapGuarantee::cgroup_v2);
}

TEST(SwapGuaranteeTest, Version1IsNoGuarantee) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, kGib, 8 * kMib};
  const auto guarantee = swap_guarantee(facts, group(CgroupVersion::v1, 0), kGib);
  ASSERT_FALSE(guarantee);
  EXPECT_NE(guarantee.error().why.find("version 1"), std::string::npos);
}

TEST(SwapGuaranteeTest, SwapOnWithoutAGuaranteeIsRefusedWithAllReasons) {
  const MemoryFacts facts{8 * kGib, 4 * kGib, 2 * kGib, 8 * kMib};
  const auto guarantee = swap_guarantee(facts, group(CgroupVersion::none, kNoLimit), kGib);
  ASSERT_FALSE(guarantee);
  EXPECT_EQ(guarantee.error().status, Status::swap_unsafe);
  EXPECT_EQ(exit_code(guarantee.error().status), 3);
  for (const char* part :
       {"2.00 GiB of swap", "no control group", "8.00 MiB", "1.00 GiB", "RLIMIT_MEMLOCK"}) {
    EXPECT_NE(guarantee.error().why.find(part), std::string::npos)
        << part << " in " << guarantee.error().why;
  }
}

TEST(SwapGuaranteeTest, EveryValueHasANameOfItsOwn) {
  EXPECT_EQ(name(SwapGuarantee::none), "none");
  EXPECT_EQ(name(SwapGuarantee::no_swap), "no_swap");
  EXPECT_EQ(name(SwapGuarantee::cgroup_v2), "cgroup_v2");
  EXPECT_EQ(name(SwapGuarantee::noswap_mount), "noswap_mount");
  EXPECT_EQ(name(SwapGuarantee::mlocked), "mlocked");
}

TEST(DefaultBudget, IsWhatMemoryLeavesAfterNeedAndMargin) {
  const MemoryFacts facts{16 * kGib, 8 * kGib, 0, 0};
  const auto advice = default_budget(facts, {}, kGib, 100 * kGib);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->bytes, page_down(7 * kGib - kGib / 5));
  for (const char* part :
       {"8.00 GiB of memory available", "1.00 GiB for the program", "204.80 MiB"}) {
    EXPECT_NE(advice->reason.find(part), std::string::npos) << part << " in " << advice->reason;
  }
}

TEST(DefaultBudget, IsWhatTheGroupLeavesWhereThatIsLess) {
  const MemoryFacts facts{16 * kGib, 8 * kGib, 0, 0};
  MemoryCgroup limited;
  limited.available = 2 * kGib;
  limited.available_by = "/sys/fs/cgroup/x/memory.max";
  const auto advice = default_budget(facts, limited, 100 * kMib, 100 * kGib);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->bytes, 2 * kGib - 228 * kMib);
  EXPECT_NE(advice->reason.find("/sys/fs/cgroup/x/memory.max"), std::string::npos);
}

TEST(DefaultBudget, IsNeverMoreThanTheModel) {
  const MemoryFacts facts{16 * kGib, 8 * kGib, 0, 0};
  const auto advice = default_budget(facts, {}, kGib, kGib + 5);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->bytes, kGib + 5);
  EXPECT_NE(advice->reason.find("whole model"), std::string::npos);
}

TEST(DefaultBudget, FailsWithTheNumbersWhenNothingIsLeft) {
  const MemoryFacts facts{kGib, kGib, 0, 0};
  for (const std::uint64_t need : {std::uint64_t{kGib}, kGib - 128 * kMib, kNoLimit}) {
    const auto advice = default_budget(facts, {}, need, 100 * kGib);
    ASSERT_FALSE(advice) << need;
    EXPECT_EQ(advice.error().status, Status::budget_too_small);
    EXPECT_EQ(exit_code(advice.error().status), 4);
    EXPECT_NE(advice.error().why.find("1.00 GiB"), std::string::npos);
  }
}

RC_GTEST_PROP(DefaultBudgetProperty, LeavesNeedAndMarginFree,
              (std::uint64_t available, std::uint64_t group_available, std::uint64_t need,
               std::uint64_t model)) {
  MemoryFacts facts;
  facts.available = available % (1ULL << 44);
  MemoryCgroup limited;
  if (group_available % 3 != 0) limited.available = group_available % (1ULL << 44);
  need %= 1ULL << 42;
  RC_PRE(model > 0);
  const std::uint64_t most = std::min(facts.available, limited.available);
  const auto advice = default_budget(facts, limited, need, model);
  if (!advice) {
    RC_ASSERT(most < need + budget_margin(need) + kPage);
    return;
  }
  RC_ASSERT(advice->bytes > 0U);
  RC_ASSERT(advice->bytes <= model);
  RC_ASSERT(advice->bytes + need + budget_margin(need) <= most);
  RC_ASSERT(advice->bytes == model || advice->bytes + need + budget_margin(need) + kPage > most);
}

}  // namespace
}  // namespace resid::host

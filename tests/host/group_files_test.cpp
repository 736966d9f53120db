#include "host/group_files.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "fake_tree.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20;

TEST(GroupName, RoundTrips) {
  EXPECT_EQ(group_name({12, 3456}, 0), "residctl.12.3456");
  EXPECT_EQ(group_name({12, 3456}, 7), "residctl.12.3456.7");
  for (const unsigned serial : {0U, 7U}) {
    const auto creator = parse_group_name(group_name({12, 3456}, serial));
    ASSERT_TRUE(creator);
    EXPECT_EQ(creator->pid, 12);
    EXPECT_EQ(creator->start_time, 3456U);
  }
}

TEST(GroupName, RefusesAllOthers) {
  for (const char* other :
       {"", "residctl", "residctl.", "residctl.1", "residctl.1.", "residctl..2", "residctl.0.5",
        "residctl.x.2", "residctl.1.2.", "residctl.1.2.3.4", "residctl.-1.2", "residctl. 1.2",
        "residctl.4294967296.2", "xresidctl.1.2", "residctl.1.99999999999999999999"}) {
    EXPECT_FALSE(parse_group_name(other)) << other;
  }
}

RC_GTEST_PROP(GroupName, SurvivesAnyText, (const std::string& text)) {
  const auto creator = parse_group_name("residctl." + text);
  if (creator) RC_ASSERT(creator->pid > 0);
  (void)parse_start_time(text);
  (void)parse_start_time("1 (" + text);
}

TEST(StartTime, IsField22WhateverTheProcessIsCalled) {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
  EXPECT_EQ(parse_start_time("77 (sh)" + tail), 4711U);
  EXPECT_EQ(parse_start_time("77 (a b) S 1) (x)" + tail), 4711U);
  EXPECT_FALSE(parse_start_time("77 (sh) S 1 2 3"));
  EXPECT_FALSE(parse_start_time("77 sh"));
  EXPECT_FALSE(parse_start_time(""));
}

TEST(MayBeAlive, NeedsTheSameStartTime) {
  const FakeTree tree;
  tree.write("proc/77/stat", "77 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n");
  EXPECT_TRUE(may_be_alive({77, 4711}, tree.roots()));
  EXPECT_FALSE(may_be_alive({77, 4710}, tree.roots()));
}

TEST(MayBeAlive, AProcessThatProcHidesIsNotDead) {
  const FakeTree tree;
  EXPECT_TRUE(may_be_alive({::getpid(), 1}, tree.roots()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(may_be_alive({child, 1}, tree.roots()));
}

TEST(MayBeAlive, WhatCannotBeReadIsNotDead) {
  const FakeTree tree;
  tree.make_unreadable("proc/77/stat");
  EXPECT_TRUE(may_be_alive({77, 1}, tree.roots()));
  std::filesystem::remove(tree.path("proc/77/stat"));
  tree.write("proc/77/stat", "garbage");
  EXPECT_TRUE(may_be_alive({77, 1}, tree.roots()));
}

TEST(WriteLimit, Version1KeepsMemswEqual) {
  const FakeTree tree;
  tree.write("g/memory.limit_in_bytes", kV1None);
  tree.write("g/memory.memsw.limit_in_bytes", kV1None);
  ASSERT_TRUE(write_limit(tree.path("g"), CgroupVersion::v1, 10 * kMib + 1));
  EXPECT_EQ(tree.read("g/memory.limit_in_bytes"), std::to_string(10 * kMib + 4096));
  EXPECT_EQ(tree.read("g/memory.memsw.limit_in_bytes"), std::to_string(10 * kMib + 4096));
}

TEST(WriteLimit, Version1WorksWithoutSwapAccounting) {
  const FakeTree tree;
  tree.write("g/memory.limit_in_bytes", kV1None);
  ASSERT_TRUE(write_limit(tree.path("g"), CgroupVersion::v1, kMib));
  EXPECT_EQ(tree.read("g/memory.limit_in_bytes"), std::to_string(kMib));
  EXPECT_FALSE(std::filesystem::exists(tree.path("g/memory.memsw.limit_in_bytes")));
}

// The file that is in the way is written first: when that fails, the other is untouched.
TEST(WriteLimit, Version1LowersTheLimitFirstAndRaisesMemswFirst) {
  const FakeTree tree;
  tree.write("g/memory.limit_in_bytes", std::to_string(10 * kMib));
  tree.make_unreadable("g/memory.memsw.limit_in_bytes");
  const auto raised = write_limit(tree.path("g"), CgroupVersion::v1, 20 * kMib);
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().status, Status::cgroup_denied);
  EXPECT_EQ(raised.error().what, tree.path("g/memory.memsw.limit_in_bytes"));
  EXPECT_EQ(tree.read("g/memory.limit_in_bytes"), std::to_string(10 * kMib));
  ASSERT_FALSE(write_limit(tree.path("g"), CgroupVersion::v1, 5 * kMib));
  EXPECT_EQ(tree.read("g/memory.limit_in_bytes"), std::to_string(5 * kMib));
}

TEST(WriteLimit, Version2RefusesToGoBelowWhatIsHeld) {
  const FakeTree tree;
  tree.write("g/memory.max", "max\n");
  tree.write("g/memory.current", std::to_string(30 * kMib));
  tree.write("g/memory.stat", "inactive_file 5242880\nactive_file 5242880\n");
  const auto refused = write_limit(tree.path("g"), CgroupVersion::v2, 19 * kMib);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, Status::cgroup_denied);
  EXPECT_EQ(tree.read("g/memory.max"), "max\n");
  ASSERT_TRUE(write_limit(tree.path("g"), CgroupVersion::v2, 20 * kMib));
  EXPECT_EQ(tree.read("g/memory.max"), std::to_string(20 * kMib));
  ASSERT_TRUE(write_limit(tree.path("g"), CgroupVersion::v2, kNoLimit));
  EXPECT_EQ(tree.read("g/memory.max"), "max");
}

TEST(WriteLimit, FailsWhereThereIsNoFileToWrite) {
  const FakeTree tree;
  tree.make_folder("g");
  EXPECT_FALSE(write_limit(tree.path("g"), CgroupVersion::v1, kMib));
  EXPECT_FALSE(write_limit(tree.path("g"), CgroupVersion::v2, kMib));
}

TEST(SwapBarrierTest, Version2IsCompleteOnceTheFileReadsZero) {
  const FakeTree tree;
  tree.write("g/memory.swap.max", "max\n");
  EXPECT_EQ(*raise_swap_barrier(tree.path("g"), CgroupVersion::v2), SwapBarrier::complete);
  EXPECT_EQ(tree.read("g/memory.swap.max"), "0");
}

TEST(SwapBarrierTest, Version1HoldsAgainstLimitReclaimOnly) {
  const FakeTree tree;
  tree.write("g/memory.swappiness", "60\n");
  EXPECT_EQ(*raise_swap_barrier(tree.path("g"), CgroupVersion::v1), SwapBarrier::limit_reclaim);
  EXPECT_EQ(tree.read("g/memory.swappiness"), "0");
}

TEST(SwapBarrierTest, WithoutTheFileThereIsNone) {
  const FakeTree tree;
  tree.make_folder("g");
  EXPECT_EQ(*raise_swap_barrier(tree.path("g"), CgroupVersion::v1), SwapBarrier::none);
  EXPECT_EQ(*raise_swap_barrier(tree.path("g"), CgroupVersion::v2), SwapBarrier::none);
}

TEST(SwapBarrierTest, AFileThatCannotBeWrittenIsAFailure) {
  const FakeTree tree;
  tree.make_unreadable("g/memory.swap.max");
  const auto barrier = raise_swap_barrier(tree.path("g"), CgroupVersion::v2);
  ASSERT_FALSE(barrier);
  EXPECT_EQ(barrier.error().status, Status::cgroup_denied);
}

TEST(Figures, Version1UsesTheSumsOverTheSubtree) {
  const FakeTree tree;
  tree.write("g/memory.stat",
             "cache 1\nrss 2\nshmem 3\ntotal_cache 10\ntotal_rss 20\ntotal_shmem 30\n");
  tree.write("g/memory.usage_in_bytes", "40\n");
  tree.write("g/memory.max_usage_in_bytes", "50\n");
  tree.write("g/memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 60\n");
  const auto figures = read_figures(tree.path("g"), CgroupVersion::v1);
  ASSERT_TRUE(figures) << figures.error().line();
  EXPECT_EQ(figures->file, 10U);
  EXPECT_EQ(figures->anon, 20U);
  EXPECT_EQ(figures->shmem, 30U);
  EXPECT_EQ(figures->usage, 40U);
  EXPECT_EQ(figures->peak, 50U);
  EXPECT_EQ(figures->oom_kills, 60U);
}

TEST(Figures, Version2WorksWithoutThePeakOfNewerKernels) {
  const FakeTree tree;
  tree.write("g/memory.stat", "anon 20\nfile 10\nshmem 30\nshmem_thp 99\n");
  tree.write("g/memory.current", "40\n");
  tree.write("g/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 60\noom_group_kill 0\n");
  auto figures = read_figures(tree.path("g"), CgroupVersion::v2);
  ASSERT_TRUE(figures) << figures.error().line();
  EXPECT_EQ(figures->file, 10U);
  EXPECT_EQ(figures->anon, 20U);
  EXPECT_EQ(figures->shmem, 30U);
  EXPECT_EQ(figures->usage, 40U);
  EXPECT_EQ(figures->peak, 0U);
  EXPECT_EQ(figures->oom_kills, 60U);
  tree.write("g/memory.peak", "50\n");
  EXPECT_EQ(read_figures(tree.path("g"), CgroupVersion::v2)->peak, 50U);
}

// A missing figure must never pass for zero: I-7 compares with it.
TEST(Figures, AMissingLineOrFileIsAFailure) {
  const FakeTree tree;
  tree.make_folder("g");
  EXPECT_FALSE(read_figures(tree.path("g"), CgroupVersion::v2));
  tree.write("g/memory.stat", "anon 20\nfile 10\n");
  const auto figures = read_figures(tree.path("g"), CgroupVersion::v2);
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().status, Status::cgroup_unreadable);
  EXPECT_NE(figures.error().why.find("shmem"), std::string::npos);
}

MemoryCgroup group_v2(const FakeTree& tree, const std::string& path) {
  MemoryCgroup group;
  group.version = CgroupVersion::v2;
  group.mount = tree.path("m");
  group.path = tree.path(path);
  group.charged = group.path;
  return group;
}

TEST(PlacesForChild, InTheRootOfVersion2ItIsTheRoot) {
  const FakeTree tree;
  tree.write("m/cgroup.procs", "");
  const auto places = places_for_child(group_v2(tree, "m"));
  ASSERT_TRUE(places);
  ASSERT_EQ(places->size(), 1U);
  EXPECT_EQ(places->front().folder, tree.path("m"));
  EXPECT_EQ(places->front().ceiling, kNoLimit);
}

TEST(PlacesForChild, BesideUsCarriesTheLimitsThatAreLeftBehind) {
  const FakeTree tree;
  for (const char* group : {"m/a", "m/a/b", "m/a/b/c"}) {
    tree.write(std::string(group) + "/cgroup.type", "domain\n");
    tree.write(std::string(group) + "/memory.max", "max\n");
  }
  tree.write("m/a/b/c/memory.max", std::to_string(8 * kMib));
  tree.write("m/a/b/memory.max", std::to_string(4 * kMib));
  const auto places = places_for_child(group_v2(tree, "m/a/b/c"));
  ASSERT_TRUE(places);
  ASSERT_EQ(places->size(), 3U);
  EXPECT_EQ((*places)[0].folder, tree.path("m/a/b"));
  EXPECT_EQ((*places)[0].ceiling, 8 * kMib);
  EXPECT_EQ((*places)[1].folder, tree.path("m/a"));
  EXPECT_EQ((*places)[1].ceiling, 4 * kMib);
  EXPECT_EQ((*places)[2].folder, tree.path("m"));
}

TEST(PlacesForChild, FurtherUpTheTighterLimitBelowStillCounts) {
  const FakeTree tree;
  tree.write("m/a/b/cgroup.type", "domain\n");
  tree.write("m/a/b/memory.max", std::to_string(4 * kMib));
  tree.write("m/a/memory.max", std::to_string(8 * kMib));
  const auto places = places_for_child(group_v2(tree, "m/a/b"));
  ASSERT_TRUE(places);
  ASSERT_EQ(places->size(), 2U);
  EXPECT_EQ((*places)[1].folder, tree.path("m"));
  EXPECT_EQ((*places)[1].ceiling, 4 * kMib);
}

TEST(PlacesForChild, InAContainersTopFolderThereIsNone) {
  const FakeTree tree;
  tree.write("m/cgroup.type", "domain\n");
  const auto places = places_for_child(group_v2(tree, "m"));
  ASSERT_TRUE(places);
  EXPECT_TRUE(places->empty());
  const auto group = ChildGroup::create(group_v2(tree, "m"));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, Status::cgroup_denied);
  EXPECT_NE(group.error().why.find("parent is not visible"), std::string::npos);
}

TEST(DelegateMemory, WritesOnlyWhereItIsNotYetDelegated) {
  const FakeTree tree;
  tree.write("g/cgroup.subtree_control", "cpu memory pids\n");
  EXPECT_EQ(delegate_memory(tree.path("g")), 0);
  EXPECT_EQ(tree.read("g/cgroup.subtree_control"), "cpu memory pids\n");
  tree.write("g/cgroup.subtree_control", "cpu pids\n");
  EXPECT_EQ(delegate_memory(tree.path("g")), 0);
  EXPECT_EQ(tree.read("g/cgroup.subtree_control"), "+memory");
  EXPECT_EQ(delegate_memory(tree.path("missing")), ENOENT);
}

TEST(Create, TellsTheReasonForEveryPlace) {
  const FakeTree tree;
  tree.write("m/a/b/cgroup.type", "domain\n");
  tree.make_unreadable("m/a/cgroup.subtree_control");
  tree.make_unreadable("m/cgroup.subtree_control");
  const auto group = ChildGroup::create(group_v2(tree, "m/a/b"));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, Status::cgroup_denied);
  EXPECT_EQ(exit_code(group.error().status), 3);
  EXPECT_NE(group.error().why.find(tree.path("m/a") + ": "), std::string::npos);
  EXPECT_NE(group.error().why.find(tree.path("m") + ": "), std::string::npos);
}

TEST(Create, LeavesNothingBehindWhenItFailsHalfWay) {
  // A plain folder has no cgroup.procs, so the last step fails.
  const FakeTree tree;
  tree.make_folder("m/a");
  MemoryCgroup self;
  self.version = CgroupVersion::v1;
  self.mount = tree.path("m");
  self.path = self.charged = tree.path("m/a");
  const auto group = ChildGroup::create(self);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, Status::cgroup_denied);
  EXPECT_TRUE(std::filesystem::is_empty(tree.path("m/a")));
}

TEST(Create, IsDeniedWithoutAMemoryController) {
  const auto group = ChildGroup::create(MemoryCgroup{});
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, Status::cgroup_denied);
  EXPECT_EQ(sweep_stale_groups(MemoryCgroup{}), 0);
}

TEST(Sweep, RemovesOnlyGroupsOfTheDead) {
  const FakeTree tree;
  const std::string stat = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n";
  tree.write("proc/77/stat", "77 (residctl)" + stat);
  for (const char* name : {"residctl.77.4711", "residctl.77.4712", "residctl.77.4712.3",
                           "other.77.1", "residctl.77.x"}) {
    tree.make_folder(std::string("m/a/") + name);
  }
  tree.make_folder("m/residctl.77.1");
  // It still holds a process: not ours to end.
  tree.write("m/a/residctl.77.5/cgroup.procs", "1\n");
  EXPECT_EQ(sweep_stale_groups(group_v2(tree, "m/a"), tree.roots()), 3);
  EXPECT_TRUE(std::filesystem::exists(tree.path("m/a/residctl.77.4711")));
  EXPECT_TRUE(std::filesystem::exists(tree.path("m/a/residctl.77.5")));
  EXPECT_TRUE(std::filesystem::exists(tree.path("m/a/other.77.1")));
  EXPECT_TRUE(std::filesystem::exists(tree.path("m/a/residctl.77.x")));
  EXPECT_FALSE(std::filesystem::exists(tree.path("m/a/residctl.77.4712")));
  EXPECT_FALSE(std::filesystem::exists(tree.path("m/residctl.77.1")));
}

}  // namespace
}  // namespace resid::host

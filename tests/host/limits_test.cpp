// memory_cgroup() on trees as kernels, containers and broken machines show them.

#include <gtest/gtest.h>

#include <string>

#include "fake_tree.hpp"
#include "host/cgroup.hpp"

namespace resid::host {
namespace {

constexpr std::uint64_t kGib = 1ULL << 30;

class V1 : public testing::Test {
 protected:
  void SetUp() override {
    tree.write("proc/self/cgroup", "4:memory:/a/b/c\n0::/\n");
    tree.write("proc/self/mountinfo",
               "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
               "40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    tree.write("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n");
    for (const char* group : {"", "/a", "/a/b", "/a/b/c"}) {
      const std::string folder = kMount + group;
      tree.write(folder + "/memory.limit_in_bytes", kV1None);
      tree.write(folder + "/memory.usage_in_bytes", "0\n");
      tree.write(folder + "/memory.stat",
                 "cache 1\ntotal_inactive_file 0\ntotal_active_file 0\n"
                 "hierarchical_memory_limit 9223372036854771712\n");
    }
  }
  void limit(const std::string& group, std::uint64_t bytes) {
    tree.write(kMount + group + "/memory.limit_in_bytes", std::to_string(bytes) + "\n");
  }
  FakeTree tree;
  const std::string kMount = "sys/fs/cgroup/memory";
};

TEST_F(V1, WithoutLimitsHasNone) {
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->version, CgroupVersion::v1);
  EXPECT_EQ(group->path, tree.path(kMount + "/a/b/c"));
  EXPECT_EQ(group->charged, group->path);
  EXPECT_EQ(group->limit, kNoLimit);
  EXPECT_EQ(group->limited_by, "");
  EXPECT_EQ(group->available, kNoLimit);
  EXPECT_EQ(group->swap_limit, kNoLimit);
}

TEST_F(V1, TakesTheTightestAncestor) {
  limit("/a/b/c", 8 * kGib);
  limit("/a", 2 * kGib);
  limit("", 4 * kGib);
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, 2 * kGib);
  EXPECT_EQ(group->limited_by, tree.path(kMount + "/a/memory.limit_in_bytes"));
}

TEST_F(V1, TakesTheMountRootsLimitToo) {
  limit("", kGib);
  EXPECT_EQ(memory_cgroup(tree.roots())->limit, kGib);
}

TEST_F(V1, TakesALimitAboveWhatIsMounted) {
  limit("/a/b/c", 8 * kGib);
  tree.write(kMount + "/a/b/c/memory.usage_in_bytes", std::to_string(kGib));
  tree.write(kMount + "/a/b/c/memory.stat", "hierarchical_memory_limit 3221225472\n");
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, 3 * kGib);
  EXPECT_NE(group->limited_by.find("hierarchical_memory_limit"), std::string::npos);
  EXPECT_EQ(group->available, 2 * kGib);
}

TEST_F(V1, CountsPageCacheAsAvailable) {
  limit("/a/b/c", 4 * kGib);
  tree.write(kMount + "/a/b/c/memory.usage_in_bytes", std::to_string(3 * kGib));
  tree.write(kMount + "/a/b/c/memory.stat",
             "total_inactive_file 1073741824\ntotal_active_file 536870912\n");
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->usage, 3 * kGib);
  EXPECT_EQ(group->reclaimable, kGib + kGib / 2);
  EXPECT_EQ(group->available, 2 * kGib + kGib / 2);
}

TEST_F(V1, ASiblingsUsageUnderAnAncestorCounts) {
  limit("/a/b/c", 4 * kGib);
  limit("/a", 6 * kGib);
  tree.write(kMount + "/a/memory.usage_in_bytes", std::to_string(5 * kGib));
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, 4 * kGib);
  EXPECT_EQ(group->available, kGib);
  EXPECT_EQ(group->available_by, tree.path(kMount + "/a/memory.limit_in_bytes"));
}

TEST_F(V1, AGroupAboveItsLimitLeavesNothing) {
  limit("/a", kGib);
  tree.write(kMount + "/a/memory.usage_in_bytes", std::to_string(2 * kGib));
  EXPECT_EQ(memory_cgroup(tree.roots())->available, 0U);
}

TEST_F(V1, NeverClaimsThatSwapIsForbidden) {
  limit("/a/b/c", kGib);
  tree.write(kMount + "/a/b/c/memory.memsw.limit_in_bytes", std::to_string(kGib));
  tree.write(kMount + "/a/b/c/memory.swappiness", "0\n");
  EXPECT_EQ(memory_cgroup(tree.roots())->swap_limit, kNoLimit);
}

TEST_F(V1, AGarbageLimitIsAFailureThatNamesTheFile) {
  for (const char* bad : {"", "lots\n", "-5\n", "12x\n"}) {
    tree.write(kMount + "/a/memory.limit_in_bytes", bad);
    const auto group = memory_cgroup(tree.roots());
    ASSERT_FALSE(group) << bad;
    EXPECT_EQ(group.error().status, Status::cgroup_unreadable);
    EXPECT_EQ(group.error().what, tree.path(kMount + "/a/memory.limit_in_bytes"));
    EXPECT_EQ(exit_code(group.error().status), 3);
  }
}

TEST_F(V1, EveryUnreadableFileIsAFailureThatNamesIt) {
  for (const char* file : {"/a/b/c/memory.limit_in_bytes", "/a/b/memory.usage_in_bytes",
                           "/a/memory.stat", "/memory.limit_in_bytes"}) {
    const std::string name = kMount + file;
    const std::string kept = tree.read(name);
    tree.make_unreadable(name);
    const auto group = memory_cgroup(tree.roots());
    ASSERT_FALSE(group) << file;
    EXPECT_EQ(group.error().status, Status::cgroup_unreadable);
    EXPECT_EQ(group.error().what, tree.path(name));
    std::filesystem::remove(tree.path(name));
    tree.write(name, kept);
  }
  EXPECT_TRUE(memory_cgroup(tree.roots()));
}

TEST_F(V1, GarbageInMemoryStatIsAFailure) {
  limit("/a", kGib);
  tree.write(kMount + "/a/memory.stat", "total_inactive_file many\n");
  const auto group = memory_cgroup(tree.roots());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().what, tree.path(kMount + "/a/memory.stat"));
}

class V2 : public testing::Test {
 protected:
  void SetUp() override {
    tree.write("proc/self/cgroup", "0::/user.slice/app.slice/run.scope\n");
    tree.write("proc/self/mountinfo", "30 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    tree.write(kMount + "/cgroup.controllers", "cpuset cpu io memory pids\n");
    tree.write(kMount + "/memory.stat", "inactive_file 0\nactive_file 0\n");
    for (const char* group : {kUser, kApp, kRun}) {
      const std::string folder = kMount + group;
      tree.write(folder + "/cgroup.controllers", "memory pids\n");
      tree.write(folder + "/cgroup.type", "domain\n");
      tree.write(folder + "/memory.max", "max\n");
      tree.write(folder + "/memory.high", "max\n");
      tree.write(folder + "/memory.swap.max", "max\n");
      tree.write(folder + "/memory.current", "0\n");
      tree.write(folder + "/memory.stat", "inactive_file 0\nactive_file 0\n");
    }
  }
  void set(const std::string& group, const std::string& file, std::uint64_t bytes) {
    tree.write(kMount + group + "/" + file, std::to_string(bytes) + "\n");
  }
  FakeTree tree;
  const std::string kMount = "sys/fs/cgroup";
  static constexpr const char* kUser = "/user.slice";
  static constexpr const char* kApp = "/user.slice/app.slice";
  static constexpr const char* kRun = "/user.slice/app.slice/run.scope";
};

TEST_F(V2, WithoutLimitsHasNone) {
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->version, CgroupVersion::v2);
  EXPECT_EQ(group->charged, tree.path(kMount + kRun));
  EXPECT_EQ(group->limit, kNoLimit);
  EXPECT_EQ(group->swap_limit, kNoLimit);
}

TEST_F(V2, TakesTheTightestAncestor) {
  set(kRun, "memory.max", 8 * kGib);
  set(kUser, "memory.max", 2 * kGib);
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, 2 * kGib);
  EXPECT_EQ(group->limited_by, tree.path(kMount + kUser + "/memory.max"));
}

TEST_F(V2, StaysBelowMemoryHigh) {
  set(kRun, "memory.max", 8 * kGib);
  set(kApp, "memory.high", 4 * kGib);
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, 4 * kGib - 4 * kGib / 64);
  EXPECT_EQ(group->limited_by, tree.path(kMount + kApp + "/memory.high"));
}

TEST_F(V2, SwapIsForbiddenWhenAnyAncestorForbidsIt) {
  set(kApp, "memory.swap.max", 0);
  EXPECT_EQ(memory_cgroup(tree.roots())->swap_limit, 0U);
}

TEST_F(V2, WithoutSwapAccountingPromisesNothing) {
  for (const char* group : {kUser, kApp, kRun}) {
    std::filesystem::remove(tree.path(kMount + group + "/memory.swap.max"));
  }
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->swap_limit, kNoLimit);
}

TEST_F(V2, ChargesGoToTheNearestGroupUnderMemoryControl) {
  tree.write(kMount + kRun + "/cgroup.controllers", "pids\n");
  set(kApp, "memory.current", kGib);
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->path, tree.path(kMount + kRun));
  EXPECT_EQ(group->charged, tree.path(kMount + kApp));
  EXPECT_EQ(group->usage, kGib);
}

TEST_F(V2, WithoutTheMemoryControllerIsNone) {
  for (const char* group : {"", kUser, kApp, kRun}) {
    tree.write(kMount + group + "/cgroup.controllers", "cpu pids\n");
  }
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->version, CgroupVersion::none);
  EXPECT_EQ(group->limit, kNoLimit);
}

TEST_F(V2, InAContainersNamespaceTheTopFolderIsOurs) {
  tree.write("proc/self/cgroup", "0::/\n");
  tree.write(kMount + "/cgroup.type", "domain\n");
  tree.write(kMount + "/memory.max", "1073741824\n");
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->path, tree.path(kMount));
  EXPECT_EQ(group->limit, kGib);
}

TEST_F(V2, UnreadableAndGarbageFilesAreFailures) {
  for (const char* file : {"memory.max", "memory.high", "memory.swap.max", "memory.current",
                           "memory.stat", "cgroup.controllers"}) {
    const std::string name = kMount + kRun + "/" + file;
    const std::string kept = tree.read(name);
    tree.make_unreadable(name);
    const auto group = memory_cgroup(tree.roots());
    ASSERT_FALSE(group) << file;
    EXPECT_EQ(group.error().status, Status::cgroup_unreadable);
    EXPECT_EQ(group.error().what, tree.path(name));
    std::filesystem::remove(tree.path(name));
    tree.write(name, kept);
  }
  tree.write(kMount + kRun + "/memory.high", "hihg\n");
  const auto group = memory_cgroup(tree.roots());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().what, tree.path(kMount + kRun + "/memory.high"));
}

TEST_F(V2, MissingOptionalFilesAreFine) {
  for (const char* file : {"memory.high", "memory.swap.max", "memory.current", "memory.stat"}) {
    std::filesystem::remove(tree.path(kMount + kRun + "/" + file));
  }
  const auto group = memory_cgroup(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->usage, 0U);
}

}  // namespace
}  // namespace resid::host

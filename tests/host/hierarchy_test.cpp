#include "host/hierarchy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <string>

#include "fake_tree.hpp"
#include "host/kernel_file.hpp"

namespace resid::host {
namespace {

constexpr const char* kV1Mount =
    "34 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
constexpr const char* kV2Mount =
    "30 22 0:27 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(Mountinfo, ReadsALineWithAnyNumberOfOptionalFields) {
  for (const char* optional : {"", "shared:1 ", "shared:1 master:2 propagate_from:3 "}) {
    const std::string line = std::string("1 2 0:3 /r /p rw ") + optional + "- cgroup2 none rw,x\n";
    const auto mounts = parse_mountinfo(line, "f");
    ASSERT_TRUE(mounts) << mounts.error().line();
    ASSERT_EQ(mounts->size(), 1U);
    EXPECT_EQ(mounts->front().root, "/r");
    EXPECT_EQ(mounts->front().point, "/p");
    EXPECT_EQ(mounts->front().type, "cgroup2");
    EXPECT_EQ(mounts->front().super_options, "rw,x");
  }
}

TEST(Mountinfo, ResolvesOctalEscapes) {
  const auto mounts = parse_mountinfo(
      R"(1 2 0:3 /a\040b /with\011tab\012line\134slash\400not rw - cgroup2 none rw)", "f");
  ASSERT_TRUE(mounts);
  EXPECT_EQ(mounts->front().root, "/a b");
  EXPECT_EQ(mounts->front().point, "/with\ttab\nline\\slash\\400not");
}

TEST(Mountinfo, NamesTheFileAndLineThatMakesNoSense) {
  for (const char* bad : {"x", "1 2 0:3 / /p rw shared:1 cgroup2 none rw", "1 2 0:3 / p rw - a b c",
                          "1 2 0:3 / /p rw - cgroup2", "1 2 0:3  /p rw - a b c"}) {
    const auto mounts = parse_mountinfo(std::string(kV2Mount) + bad, "the-file");
    ASSERT_FALSE(mounts) << bad;
    EXPECT_EQ(mounts.error().status, Status::cgroup_unreadable);
    EXPECT_EQ(mounts.error().what, "the-file");
    EXPECT_NE(mounts.error().why.find("line 2"), std::string::npos);
  }
}

TEST(Memberships, KeepsColonsOfThePath) {
  const auto lines = parse_memberships("4:memory,cpu:/a:b/c\n1:name=systemd:/\n0::/x\n", "f");
  ASSERT_TRUE(lines);
  ASSERT_EQ(lines->size(), 3U);
  EXPECT_EQ((*lines)[0].controllers, "memory,cpu");
  EXPECT_EQ((*lines)[0].path, "/a:b/c");
  EXPECT_EQ((*lines)[2].controllers, "");
  EXPECT_EQ((*lines)[2].path, "/x");
}

TEST(Memberships, RefusesWhatTheKernelWouldNotWrite) {
  for (const char* bad : {"4:memory", "x:memory:/", "4:memory:relative", "4:memory:", "::/"}) {
    const auto lines = parse_memberships(bad, "f");
    ASSERT_FALSE(lines) << bad;
    EXPECT_EQ(lines.error().status, Status::cgroup_unreadable);
  }
}

TEST(Below, FollowsTheMountRoot) {
  std::string rest = "untouched";
  EXPECT_FALSE(below("/docker/x", "/docker/xy", rest));
  EXPECT_FALSE(below("/docker/x", "/docker", rest));
  EXPECT_FALSE(below("/", "relative", rest));
  EXPECT_EQ(rest, "untouched");
  ASSERT_TRUE(below("/", "/", rest));
  EXPECT_EQ(rest, "");
  ASSERT_TRUE(below("/", "/a/b", rest));
  EXPECT_EQ(rest, "/a/b");
  ASSERT_TRUE(below("/docker/x", "/docker/x", rest));
  EXPECT_EQ(rest, "");
  ASSERT_TRUE(below("/docker/x", "/docker/x/y", rest));
  EXPECT_EQ(rest, "/y");
}

TEST(Below, RefusesAWayThroughANamespaceParent) {
  std::string rest;
  EXPECT_FALSE(below("/", "/../other", rest));
  EXPECT_FALSE(below("/", "/..", rest));
  EXPECT_FALSE(below("/..", "/", rest));
  EXPECT_FALSE(below("/..", "/../../y", rest));
  // The sibling of a namespace root is visible where the parent is mounted.
  ASSERT_TRUE(below("/..", "/../other", rest));
  EXPECT_EQ(rest, "/other");
  // Dots that are part of a name are no parent.
  ASSERT_TRUE(below("/", "/..a/b..", rest));
  EXPECT_EQ(rest, "/..a/b..");
}

TEST(Lineage, EndsAtTheMount) {
  EXPECT_EQ(lineage("/m/a/b", "/m"), (std::vector<std::string>{"/m/a/b", "/m/a", "/m"}));
  EXPECT_EQ(lineage("/m", "/m"), (std::vector<std::string>{"/m"}));
}

TEST(FindGroup, TakesVersion1WhereALineNamesTheController) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "4:memory:/process_api/x\n0::/\n");
  tree.write("proc/self/mountinfo",
             std::string(kV1Mount) +
                 "40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  tree.make_folder("sys/fs/cgroup/memory/process_api/x");
  tree.make_folder("sys/fs/cgroup/unified");
  const auto group = find_group(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->version, CgroupVersion::v1);
  EXPECT_EQ(group->mount, tree.path("sys/fs/cgroup/memory"));
  EXPECT_EQ(group->path, tree.path("sys/fs/cgroup/memory/process_api/x"));
}

TEST(FindGroup, DoesNotMistakeAnotherControllersMount) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "4:memory:/x\n3:cpu:/x\n");
  tree.write("proc/self/mountinfo",
             std::string("33 30 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,memory2\n") +
                 kV1Mount);
  tree.make_folder("sys/fs/cgroup/cpu/x");
  tree.make_folder("sys/fs/cgroup/memory/x");
  const auto group = find_group(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->path, tree.path("sys/fs/cgroup/memory/x"));
}

TEST(FindGroup, FollowsAContainersBindMount) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  tree.write("proc/self/mountinfo",
             "34 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  tree.make_folder("sys/fs/cgroup/memory/inner");
  const auto group = find_group(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->path, tree.path("sys/fs/cgroup/memory/inner"));
}

TEST(FindGroup, PrefersTheMountThatShowsMostAncestors) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "0::/a/b\n");
  tree.write("proc/self/mountinfo",
             "1 2 0:3 /a/b /sys/narrow rw - cgroup2 none rw\n"
             "1 2 0:3 / /sys/wide rw - cgroup2 none rw\n"
             "1 2 0:3 /a /sys/middle rw - cgroup2 none rw\n");
  tree.make_folder("sys/narrow");
  tree.make_folder("sys/wide/a/b");
  tree.make_folder("sys/middle/b");
  const auto group = find_group(tree.roots());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->path, tree.path("sys/wide/a/b"));
}

TEST(FindGroup, FallsBackToTheMountWhoseTopFolderListsUs) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "0::/../elsewhere\n");
  tree.write("proc/self/mountinfo", kV2Mount);
  tree.write("sys/fs/cgroup/cgroup.procs", "1\n" + std::to_string(::getpid()) + "\n");
  const auto group = find_group(tree.roots());
  ASSERT_TRUE(group) << group.error().line();
  EXPECT_EQ(group->path, tree.path("sys/fs/cgroup"));
}

TEST(FindGroup, FailsWhereTheGroupIsHidden) {
  const FakeTree tree;
  tree.write("proc/self/cgroup", "0::/../elsewhere\n");
  tree.write("proc/self/mountinfo", kV2Mount);
  tree.write("sys/fs/cgroup/cgroup.procs", "1\n");
  const auto group = find_group(tree.roots());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, Status::cgroup_unreadable);
  EXPECT_NE(group.error().why.find("/../elsewhere"), std::string::npos);
}

TEST(FindGroup, SaysNoneWhereThereIsNone) {
  const FakeTree tree;
  tree.make_folder("proc/self");
  EXPECT_EQ(find_group(tree.roots())->version, CgroupVersion::none);  // kernel without groups
  tree.write("proc/self/cgroup", "4:memory:/x\n0::/\n");
  tree.write("proc/self/mountinfo", "");
  EXPECT_EQ(find_group(tree.roots())->version, CgroupVersion::none);  // mounted nowhere
  tree.write("proc/self/cgroup", "3:cpu:/x\n");
  tree.write("proc/self/mountinfo", kV1Mount);
  EXPECT_EQ(find_group(tree.roots())->version, CgroupVersion::none);  // no memory controller
}

TEST(FindGroup, FailsOnUnreadableProcFiles) {
  const FakeTree tree;
  tree.make_unreadable("proc/self/cgroup");
  auto group = find_group(tree.roots());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().what, tree.path("proc/self/cgroup"));
  std::filesystem::remove(tree.path("proc/self/cgroup"));
  tree.write("proc/self/cgroup", "0::/\n");
  group = find_group(tree.roots());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().what, tree.path("proc/self/mountinfo"));
}

TEST(KernelFile, ParsesLimitsOfBothVersions) {
  EXPECT_EQ(parse_limit("max\n"), kNoLimit);
  EXPECT_EQ(parse_limit(kV1None), kNoLimit);
  EXPECT_EQ(parse_limit("18446744073709551615"), kNoLimit);
  EXPECT_EQ(parse_limit("4096\n"), 4096U);
  EXPECT_EQ(parse_limit("0"), 0U);
  for (const char* bad : {"", "\n", "-1", "12 34", "0x10", "maximum", "18446744073709551616"}) {
    EXPECT_FALSE(parse_limit(bad)) << bad;
  }
}

TEST(KernelFile, FindsWholeWordsAlone) {
  EXPECT_TRUE(has_word("cpu memory io\n", "memory"));
  EXPECT_TRUE(has_word("memory", "memory"));
  EXPECT_TRUE(has_word("rw,memory", "memory", ','));
  EXPECT_FALSE(has_word("cpu memory2 xmemory\n", "memory"));
  EXPECT_FALSE(has_word("", "memory"));
}

TEST(KernelFile, ReadsKeyedLinesByTheirWholeKey) {
  const KeyedText text{"f", "shmem_thp 7\nshmem 5\ntotal_shmem 6\nbad x\n"};
  EXPECT_EQ(text.field("shmem")->value(), 5U);
  EXPECT_EQ(text.field("total_shmem")->value(), 6U);
  EXPECT_FALSE(text.field("shme")->has_value());
  ASSERT_FALSE(text.field("bad"));
  EXPECT_EQ(text.field("bad").error().what, "f");
}

// Text near enough to the real thing to reach every branch.
rc::Gen<std::string> kernelish_text() {
  return rc::gen::container<std::string>(rc::gen::weightedOneOf<char>(
      {{6, rc::gen::element(' ', ':', '/', '-', '\n', '\\', ',', '.', '0', '1', '4', '7')},
       {2, rc::gen::inRange('a', 'e')},
       {1, rc::gen::arbitrary<char>()}}));
}

RC_GTEST_PROP(Parsers, SurviveAnyText, ()) {
  const std::string text = *kernelish_text();
  const auto mounts = parse_mountinfo(text, "f");
  if (!mounts) RC_ASSERT(mounts.error().status == Status::cgroup_unreadable);
  const auto members = parse_memberships(text, "f");
  if (!members) RC_ASSERT(members.error().status == Status::cgroup_unreadable);
  std::string rest;
  if (below(text, *kernelish_text(), rest)) RC_ASSERT(rest.empty() || rest.front() == '/');
  (void)parse_limit(text);
  (void)has_word(text, "a");
  (void)KeyedText{"f", text}.field("a");
}

RC_GTEST_PROP(Parsers, GiveBackWhatWasWritten, ()) {
  const auto name = rc::gen::container<std::string>(
      rc::gen::element('a', ' ', '\t', '\n', '\\', ':', '.', '-', ',', '1'));
  const std::string root = "/" + *name;
  const std::string point = "/" + *name;
  const auto escape = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      switch (c) {
        case ' ':
          out += "\\040";
          break;
        case '\t':
          out += "\\011";
          break;
        case '\n':
          out += "\\012";
          break;
        case '\\':
          out += "\\134";
          break;
        default:
          out += c;
      }
    }
    return out;
  };
  const auto mounts = parse_mountinfo(
      "7 8 0:9 " + escape(root) + " " + escape(point) + " rw - cgroup2 none rw\n", "f");
  RC_ASSERT(mounts.has_value());
  RC_ASSERT(mounts->size() == 1U);
  RC_ASSERT(mounts->front().root == root);
  RC_ASSERT(mounts->front().point == point);
}

}  // namespace
}  // namespace resid::host

// What a figure depends on besides the settings.

#include "sweep/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "fake_cells.hpp"

namespace resid::sweep {
namespace {

using testing::HasSubstr;

// A made-up machine below a folder.
class Machine : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    const std::filesystem::path path = temp_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_all(path, text);
  }
  host::Roots roots() const { return {temp_ / "proc", temp_ / "sys"}; }
  TempFolder temp_;
};

TEST_F(Machine, IsToldByTheKernelsFiles) {
  put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Quick One\nflags\t\t: x\n");
  put("proc/loadavg", "0.42 0.3 0.2 1/100 7\n");
  put("proc/17/comm", "kdamond.0\n");
  put("proc/18/comm", "bash\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  put("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
  const auto facts = machine_facts(temp_.path(), roots());
  EXPECT_EQ(facts["processor"]["model"], "Quick One");
  EXPECT_EQ(facts["huge_pages"]["enabled"], "madvise");
  EXPECT_TRUE(facts["huge_pages"]["shmem"].is_null());
  EXPECT_EQ(facts["mglru"], "0x0007");
  EXPECT_EQ(facts["damon"]["threads"], 1);
  EXPECT_EQ(facts["load"], 0.42);
  EXPECT_THAT(machine_line(facts), HasSubstr("Quick One"));
}

TEST_F(Machine, WhatCannotBeFoundOutIsNull) {
  const auto facts = machine_facts(temp_ / "nowhere", roots());
  EXPECT_TRUE(facts["processor"]["model"].is_null());
  EXPECT_TRUE(facts["mglru"].is_null());
  EXPECT_TRUE(facts["memory"]["total_bytes"].is_null());
  EXPECT_TRUE(facts["disk"]["name"].is_null());
  EXPECT_THAT(machine_line(facts), HasSubstr("unknown processor"));
}

TEST_F(Machine, ThisOneIsKnown) {
  const auto facts = machine_facts(temp_.path());
  EXPECT_THAT(facts["kernel"].get<std::string>(), HasSubstr("Linux"));
  EXPECT_GT(facts["memory"]["total_bytes"], 0);
  EXPECT_TRUE(facts["disk"]["filesystem"].is_string());
}

TEST_F(Machine, AModelsFingerprintSeesItsSizeItsStartAndItsEnd) {
  std::string bytes(3 << 20, 'x');
  const auto print = [&] {
    put("m", bytes);
    return examine_model(temp_ / "m")->fingerprint;
  };
  const std::string base = print();
  EXPECT_EQ(base, print());
  bytes.front() = 'y';
  const std::string front = print();
  EXPECT_NE(front, base);
  bytes.back() = 'y';
  const std::string back = print();
  EXPECT_NE(back, front);
  bytes += 'y';
  EXPECT_NE(print(), back);
}

TEST_F(Machine, AModelThatIsNoneIsSaid) {
  EXPECT_EQ(examine_model(temp_ / "none").error().status, Status::no_such_file);
  EXPECT_EQ(examine_model(temp_.path()).error().status, Status::not_a_file);
  put("empty", "");
  EXPECT_EQ(examine_model(temp_ / "empty").error().status, Status::empty_file);
}

TEST(Environment, SettingsAreSeenPlacesAreNot) {
  ::setenv("RESIDCTL_FETCH_WORKERS", "3", 1);
  ::setenv("RESIDCTL_CACHE", "/somewhere", 1);
  const std::string text = settings_in_environment();
  EXPECT_THAT(text, HasSubstr("RESIDCTL_FETCH_WORKERS=3"));
  EXPECT_THAT(text, testing::Not(HasSubstr("somewhere")));
  ::unsetenv("RESIDCTL_FETCH_WORKERS");
  ::unsetenv("RESIDCTL_CACHE");
}

TEST(Version, NamesItsSources) {
  EXPECT_THAT(program_version()["version"].get<std::string>(), testing::MatchesRegex("[0-9.]+"));
  EXPECT_THAT(program_version()["git"].get<std::string>(),
              testing::MatchesRegex("[0-9a-f]{12,}|unknown"));
}

}  // namespace
}  // namespace resid::sweep

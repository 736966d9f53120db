// Every way to fail has a name, a remedy and an exit code; messages have one form.

#include <unistd.h>

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/status.hpp"

namespace resid {
namespace {

TEST(Statuses, HaveDistinctNamesARemedyAndAnExitCode) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Status::internal); ++i) {
    const auto status = static_cast<Status>(i);
    EXPECT_TRUE(names.insert(name(status)).second) << name(status);
    EXPECT_FALSE(remedy(status).empty());
    if (status == Status::ok) {
      EXPECT_EQ(exit_code(status), 0);
    } else {
      EXPECT_GE(exit_code(status), 1) << name(status);
      EXPECT_LE(exit_code(status), 4) << name(status);
    }
  }
}

TEST(Failures, AreShownAsWhatWhyAndWhatToDo) {
  const auto failed = fail(Status::no_such_file, "m.gguf", "it does not exist");
  EXPECT_EQ(failed.value().line(), "residctl: m.gguf : it does not exist : check the path");
  const auto own = fail(Status::usage, "--ram", "no", "say yes");
  EXPECT_EQ(own.value().line(), "residctl: --ram : no : say yes");
}

TEST(Failures, CarryTheTextOfAnErrno) {
  EXPECT_NE(fail_errno(Status::unreadable, "f", EACCES).value().line().find("Permission denied"),
            std::string::npos);
}

std::string emitted(RawLine& line) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const Fd reader(ends[0]);
  {
    const Fd writer(ends[1]);
    line.emit(writer.get());
  }
  std::string text(4096, '\0');
  const ssize_t n = ::read(reader.get(), text.data(), text.size());
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

TEST(RawLines, AreBuiltWithoutMemoryAndEndInANewline) {
  RawLine line;
  line << "chunk " << 0 << " of " << 18446744073709551615ULL;
  EXPECT_EQ(emitted(line), "chunk 0 of 18446744073709551615\n");
}

TEST(RawLines, AreCutWhenTheyGrowTooLong) {
  RawLine line;
  for (int i = 0; i < 100; ++i)
    line << "0123456789012345678901234567890123456789";
  const std::string text = emitted(line);
  EXPECT_EQ(text.size(), 1024U);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Descriptors, AreClosedOnceAndMove) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd a(ends[0]);
  const Fd b(ends[1]);
  Fd c = std::move(a);
  EXPECT_EQ(c.get(), ends[0]);
  c.reset();
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), -1);
}

}  // namespace
}  // namespace resid

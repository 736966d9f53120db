// Which programs the preload library can enter.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "run/program.hpp"

namespace resid::run {
namespace {

const std::string kDynamic = RESID_TEST_DIR "/resid_map_reader";
const std::string kStatic = RESID_TEST_DIR "/resid_static_program";

class FindProgram : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/residctl-program.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  void TearDown() override { (void)!std::system(("rm -rf " + folder_).c_str()); }

  std::string write(const std::string& name, const std::string& content, mode_t mode = 0755) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string copy(const std::string& from, const std::string& name) {
    std::ifstream in(from, std::ios::binary);
    return write(name, std::string(std::istreambuf_iterator<char>(in), {}));
  }
  static void expect(const Result<Program>& result, Status status, const std::string& why) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().status, status) << result.error().line();
    EXPECT_NE(result.error().why.find(why), std::string::npos) << result.error().line();
  }

  std::string folder_;
};

TEST_F(FindProgram, accepts_a_dynamic_program) {
  const auto program = find_program(kDynamic, nullptr);
  ASSERT_TRUE(program) << program.error().line();
  EXPECT_EQ(program->path, kDynamic);
  EXPECT_EQ(program->elf, kDynamic);
}

TEST_F(FindProgram, looks_in_the_folders_of_the_path) {
  const std::string path = copy(kDynamic, "reader");
  EXPECT_EQ(find_program("reader", ("/nowhere:" + folder_).c_str())->path, path);
  expect(find_program("reader", "/nowhere"), Status::program_not_found, "PATH");
}

TEST_F(FindProgram, refuses_what_is_not_there) {
  expect(find_program(folder_ + "/none", nullptr), Status::program_not_found, "no such file");
  expect(find_program("", nullptr), Status::program_not_found, "empty");
}

TEST_F(FindProgram, refuses_what_is_not_executable) {
  expect(find_program(folder_, nullptr), Status::program_not_found, "not a regular file");
  expect(find_program(write("plain", "text", 0644), nullptr), Status::program_not_found,
         "not executable");
}

TEST_F(FindProgram, refuses_a_static_program) {
  expect(find_program(kStatic, nullptr), Status::program_unsuitable, "statically linked");
  EXPECT_EQ(exit_code(Status::program_unsuitable), 3);
}

TEST_F(FindProgram, follows_a_script_to_its_interpreter) {
  const std::string interpreter = copy(kDynamic, "interpreter");
  const auto program = find_program(write("script", "#! " + interpreter + " -x\n"), nullptr);
  ASSERT_TRUE(program) << program.error().line();
  EXPECT_EQ(program->elf, interpreter);
}

TEST_F(FindProgram, follows_env_through_the_path) {
  const std::string interpreter = copy(kDynamic, "interpreter");
  const std::string script = write("script", "#!/usr/bin/env -S A=1 interpreter -x\n");
  const auto program = find_program(script, folder_.c_str());
  ASSERT_TRUE(program) << program.error().line();
  EXPECT_EQ(program->elf, interpreter);
}

TEST_F(FindProgram, refuses_a_script_with_a_static_interpreter) {
  expect(find_program(write("script", "#!" + kStatic + "\n"), nullptr), Status::program_unsuitable,
         "statically linked");
}

TEST_F(FindProgram, refuses_endless_scripts) {
  const std::string path = folder_ + "/loop";
  expect(find_program(write("loop", "#!" + path + "\n"), nullptr), Status::program_unsuitable,
         "script of a script");
  expect(find_program(write("bare", "#!\n"), nullptr), Status::program_unsuitable,
         "no interpreter");
}

TEST_F(FindProgram, refuses_what_is_neither_elf_nor_script) {
  expect(find_program(write("words", "echo hello\n"), nullptr), Status::program_unsuitable,
         "neither");
}

TEST_F(FindProgram, refuses_other_machines) {
  std::string bits(64, '\0');
  bits.replace(0, 4, "\177ELF", 4);
  bits[4] = 1;  // ELFCLASS32
  bits[5] = 1;
  expect(find_program(write("small", bits), nullptr), Status::program_unsuitable, "32-bit");
  bits[4] = 2;
  bits[18] = 8;  // EM_MIPS
  expect(find_program(write("mips", bits), nullptr), Status::program_unsuitable, "another kind");
  expect(find_program(write("cut", bits.substr(0, 20)), nullptr), Status::program_unsuitable,
         "cut off");
}

TEST_F(FindProgram, refuses_set_user_id_of_somebody_else) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can make a program of another user";
  const std::string path = copy(kDynamic, "setuid");
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  expect(find_program(path, nullptr), Status::program_unsuitable, "set-user-ID");
  ASSERT_EQ(::chmod(path.c_str(), 02755), 0);
  expect(find_program(path, nullptr), Status::program_unsuitable, "set-group-ID");
  ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  EXPECT_TRUE(find_program(path, nullptr)) << "set-user-ID of oneself changes nothing";
}

}  // namespace
}  // namespace resid::run

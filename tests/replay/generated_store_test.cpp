// Stores made by a formula.

#include "replay/generated_store.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "replay_support.hpp"

namespace resid {
namespace {

using test::fresh_path;
using test::GeneratedStore;
using test::MiB;

std::vector<std::uint64_t> words_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::uint64_t> words(bytes.size() / 8);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(words.data()));
  return words;
}

TEST(GeneratedStoreFile, HoldsEveryWordOfTheFormula) {
  const GeneratedStore store(5 * MiB + 4096);
  const auto words = words_of(store.path());
  ASSERT_EQ(words.size(), (5 * MiB + 4096) / 8);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < words.size(); ++i)
    wrong += words[i] != (i + 1) * 0x9e3779b97f4a7c15ULL;
  EXPECT_EQ(wrong, 0U);
}

TEST(GeneratedStoreFile, HasNoTwoWordsAlikeAndNoneZero) {
  const GeneratedStore store(MiB);
  const auto words = words_of(store.path());
  const std::set<std::uint64_t> different(words.begin(), words.end());
  EXPECT_EQ(different.size(), words.size());
  EXPECT_EQ(different.count(0), 0U);
}

TEST(GeneratedStoreFile, ReplacesNothing) {
  const GeneratedStore store(4096);
  const auto again = make_store(store.path(), 8192);
  ASSERT_FALSE(again);
  EXPECT_EQ(exit_code(again.error().status), 2);
  struct stat st {};
  ASSERT_EQ(::stat(store.path().c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 4096);
}

TEST(GeneratedStoreFile, LeavesNothingBehindWhenItIsStopped) {
  const std::string path = fresh_path();
  std::atomic<bool> stop{false};
  MakeStoreOptions options;
  options.stop = &stop;
  options.progress = [&](std::uint64_t, std::uint64_t) { stop = true; };
  EXPECT_FALSE(make_store(path, 16 * MiB, options));
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::string name = path.substr(path.rfind('/') + 1);
  DIR* dir = ::opendir(folder.c_str());
  ASSERT_NE(dir, nullptr);
  while (const dirent* entry = ::readdir(dir))
    EXPECT_NE(std::string(entry->d_name).rfind(name, 0), 0U) << entry->d_name;
  ::closedir(dir);
}

TEST(GeneratedStoreFile, RefusesABrokenPageAndAFolderThatIsNotThere) {
  EXPECT_FALSE(make_store(fresh_path(), 4097));
  EXPECT_FALSE(make_store(fresh_path(), 0));
  const auto nowhere = make_store("/no/such/folder/store", 4096);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().status, Status::write_failed);
}

TEST(GeneratedStoreFile, FailsEarlyOnADiskThatIsTooSmall) {
  const auto made = make_store(fresh_path(), std::uint64_t{1} << 50);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, Status::write_failed);
}

TEST(GeneratedStoreFile, IsToldFromOtherFiles) {
  const GeneratedStore store(MiB);
  const Fd fd(::open(store.path().c_str(), O_RDONLY));
  EXPECT_TRUE(is_generated_store(fd.get(), MiB, store.path()).value());
  store.spoil(8);
  EXPECT_FALSE(is_generated_store(fd.get(), MiB, store.path()).value());
}

}  // namespace
}  // namespace resid

// The whole file, as our own strict reader sees it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/model.hpp"
#include "synth/synth.hpp"

namespace resid {
namespace {

namespace fs = std::filesystem;

class SynthFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "synth-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }

  static SynthShape small(SynthArch arch, GgufType quant) {
    SynthRequest r;
    r.arch = arch;
    r.quant = quant;
    r.layers = 2;
    r.hidden = 64;
    r.ff = 96;
    r.vocab = 300;
    if (arch == SynthArch::qwen3moe) {
      r.experts = 6;
      r.used = 2;
    }
    return resolve_shape(r).value();
  }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string make(const SynthShape& shape, std::uint64_t seed, const char* name = "m.gguf") {
    SynthOptions options;
    options.seed = seed;
    options.replace = true;
    auto report = write_synth(shape, path(name), options);
    if (!report) ADD_FAILURE() << report.error().line();
    return read(path(name));
  }

  std::size_t files_left() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}));
  }

  fs::path folder_;
};

TEST_F(SynthFile, IsReadByTheStrictReaderInEveryArchitectureAndType) {
  for (const SynthArch arch : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    for (const GgufType quant : {GgufType::q4_0, GgufType::q8_0, GgufType::f16}) {
      const SynthShape shape = small(arch, quant);
      SynthOptions options;
      options.replace = true;
      auto report = write_synth(shape, path("m.gguf"), options);
      ASSERT_TRUE(report) << report.error().line();
      EXPECT_EQ(fs::file_size(path("m.gguf")), report->file_bytes);
      auto model = open_model(path("m.gguf"));
      ASSERT_TRUE(model) << model.error().line();
      ASSERT_EQ(model->files.size(), 1U);
      const ModelFile& file = model->files[0];
      EXPECT_EQ(file.version, 3U);
      EXPECT_EQ(file.architecture, name(arch));
      EXPECT_EQ(file.layers, 2U);
      EXPECT_EQ(file.data_offset, report->header_bytes);
      EXPECT_EQ(file.tensors.size(), report->tensors);
      EXPECT_EQ(file.alignment, 32U);
      EXPECT_EQ(file.experts, shape.experts);
      EXPECT_EQ(file.experts_used, shape.used);
      std::uint64_t parameters = 0;
      for (const Tensor& t : file.tensors) {
        std::uint64_t n = 1;
        for (const std::uint64_t d : t.dims)
          n *= d;
        parameters += n;
        EXPECT_NE(t.role, Role::other) << t.name;
      }
      EXPECT_EQ(parameters, report->parameters);
    }
  }
}

TEST_F(SynthFile, HasTheSizeAskedFor) {
  for (const SynthArch arch : {SynthArch::qwen3, SynthArch::qwen3moe}) {
    SynthRequest r;
    r.arch = arch;
    r.size = 12 << 20;
    auto shape = resolve_shape(r);
    ASSERT_TRUE(shape) << shape.error().line();
    const auto bytes = static_cast<double>(make(*shape, 1).size());
    EXPECT_NEAR(bytes / (12 << 20), 1.0, kSizeTolerance);
  }
}

TEST_F(SynthFile, SameSeedSameBytesOtherSeedOtherBytes) {
  const SynthShape shape = small(SynthArch::qwen3moe, GgufType::q4_0);
  const std::string first = make(shape, 7, "a.gguf");
  EXPECT_TRUE(first == make(shape, 7, "b.gguf"));
  const std::string other = make(shape, 8);
  EXPECT_EQ(first.size(), other.size());
  EXPECT_FALSE(first == other);
}

TEST_F(SynthFile, OutputRowsOfControlTokensAreZero) {
  const SynthShape shape = small(SynthArch::qwen3, GgufType::q8_0);
  const std::string bytes = make(shape, 1);
  auto model = open_model(path("m.gguf"));
  ASSERT_TRUE(model) << model.error().line();
  for (const Tensor& t : model->files[0].tensors) {
    if (t.name != "output.weight") continue;
    const std::size_t row = t.bytes / 300;
    const std::string plain = bytes.substr(t.offset + 'a' * row, row);
    EXPECT_NE(plain, std::string(row, '\0'));
    for (std::size_t token = 296; token < 300; ++token) {
      EXPECT_EQ(bytes.substr(t.offset + token * row, row), std::string(row, '\0'));
    }
    return;
  }
  FAIL() << "no output.weight";
}

TEST_F(SynthFile, ProgressEndsAtTheSizeOfTheFile) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  SynthOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  };
  auto report = write_synth(small(SynthArch::qwen3, GgufType::f16), path("m.gguf"), options);
  ASSERT_TRUE(report) << report.error().line();
  EXPECT_EQ(last, report->file_bytes);
  EXPECT_EQ(total, report->file_bytes);
}

TEST_F(SynthFile, StoppedWorkLeavesNothingBehind) {
  const std::atomic<bool> stop{true};
  SynthOptions options;
  options.stop = &stop;
  auto report = write_synth(small(SynthArch::qwen3, GgufType::q4_0), path("m.gguf"), options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().status, Status::write_failed);
  EXPECT_EQ(files_left(), 0U);
}

TEST_F(SynthFile, MemoryDoesNotGrowWithTheFile) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory would be counted";
#endif
  // Two children, because the peak of a process never falls: 8 MiB and 64 MiB.
  const auto peak_kib = [&](std::uint64_t size) -> long {
    const pid_t child = ::fork();
    if (child == 0) {
      SynthRequest r;
      r.size = size;
      auto shape = resolve_shape(r);
      SynthOptions options;
      options.replace = true;
      ::_exit(shape && write_synth(*shape, path("m.gguf"), options) ? 0 : 1);
    }
    int status = 0;
    rusage usage{};
    EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return usage.ru_maxrss;
  };
  const long small_file = peak_kib(8 << 20);
  const long large_file = peak_kib(64 << 20);
  EXPECT_LT(large_file - small_file, 4 * 1024);
  EXPECT_LT(large_file, 64 * 1024);
}

}  // namespace
}  // namespace resid

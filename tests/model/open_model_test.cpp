#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gguf_bytes.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "safetensors_bytes.hpp"

namespace resid::test {
namespace {

namespace fs = std::filesystem;

class OpenModel : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "resid-open-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string part_name(int number, int count) {
    char text[64];
    std::snprintf(text, sizeof text, "m-%05d-of-%05d.gguf", number, count);
    return text;
  }
  // One part of a split model with a tensor of its own.
  static GgufBytes part(std::uint32_t number, std::uint32_t count, std::int32_t tensors) {
    GgufBytes out;
    out.key("split.no", kU16, le(number - 1, 2)).key("split.count", kU16, le(count, 2));
    out.key("split.tensors.count", kI32, u32(static_cast<std::uint32_t>(tensors)));
    out.floats("blk." + std::to_string(number) + ".attn_q.weight", 8);
    return out;
  }
  void write_parts(int count) {
    for (int i = 1; i <= count; ++i) {
      write(part_name(i, count), part(i, count, count).build());
    }
  }

  void expect_failure(const std::string& path, Status status, const std::string& what,
                      const std::string& why) {
    const auto model = open_model(path);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(name(model.error().status), name(status)) << model.error().line();
    EXPECT_NE(model.error().what.find(what), std::string::npos) << model.error().what;
    EXPECT_NE(model.error().why.find(why), std::string::npos) << model.error().why;
    EXPECT_EQ(exit_code(model.error().status), 2);
  }

  fs::path folder_;
};

TEST_F(OpenModel, OpensASingleFile) {
  const auto model = open_model(write("m.gguf", small_gguf().build()));
  ASSERT_TRUE(model.has_value()) << model.error().line();
  ASSERT_EQ(model->files.size(), 1U);
  EXPECT_EQ(model->bytes(), fs::file_size(path("m.gguf")));
  EXPECT_EQ(model->files[0].path, path("m.gguf"));
}

TEST_F(OpenModel, GoesByContentNotName) {
  EXPECT_TRUE(open_model(write("weights", small_gguf().build())).has_value());
  EXPECT_TRUE(open_model(write("m.gguf", small_safetensors())).has_value());
}

TEST_F(OpenModel, RefusesAMissingFile) {
  expect_failure(path("none.gguf"), Status::no_such_file, "none.gguf", "No such file");
}

TEST_F(OpenModel, RefusesAPathThroughAFile) {
  const std::string file = write("m.gguf", small_gguf().build());
  expect_failure(file + "/x", Status::no_such_file, "/x", "Not a directory");
}

TEST_F(OpenModel, RefusesADirectory) {
  expect_failure(folder_.string(), Status::not_a_file, folder_.string(), "is a directory");
}

TEST_F(OpenModel, RefusesAFifoWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_failure(path("fifo"), Status::not_a_file, "fifo", "not a regular file");
}

TEST_F(OpenModel, RefusesADevice) {
  expect_failure("/dev/zero", Status::not_a_file, "/dev/zero", "not a regular file");
}

TEST_F(OpenModel, RefusesAnEmptyFile) {
  expect_failure(write("m.gguf", ""), Status::empty_file, "m.gguf", "empty");
}

TEST_F(OpenModel, RefusesOtherContent) {
  expect_failure(write("m.gguf", "this is not a model"), Status::not_a_model, "m.gguf",
                 "offset 0: magic");
}

TEST_F(OpenModel, RefusesAFileThatMayNotBeRead) {
  const std::string file = write("m.gguf", small_gguf().build());
  ASSERT_EQ(::chmod(file.c_str(), 0), 0);
  // Root reads everything; become somebody for the one call.
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto model = open_model(file);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().status, Status::unreadable);
  EXPECT_NE(model.error().line().find("Permission denied"), std::string::npos);
}

TEST_F(OpenModel, RefusesALinkLoop) {
  fs::create_symlink("b", path("a"));
  fs::create_symlink("a", path("b"));
  expect_failure(path("a"), Status::unreadable, "a", "symbolic links");
}

TEST_F(OpenModel, OpensAllPartsFromAnyOne) {
  write_parts(3);
  for (int i = 1; i <= 3; ++i) {
    const auto model = open_model(path(part_name(i, 3)));
    ASSERT_TRUE(model.has_value()) << model.error().line();
    ASSERT_EQ(model->files.size(), 3U);
    for (std::uint32_t f = 0; f < 3; ++f)
      EXPECT_EQ(model->files[f].split_no, f);
  }
}

TEST_F(OpenModel, OpensAPartNamedWithoutAFolder) {
  write_parts(2);
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const auto model = open_model(part_name(2, 2));
  fs::current_path(before);
  ASSERT_TRUE(model.has_value()) << model.error().line();
  EXPECT_EQ(model->files.size(), 2U);
}

TEST_F(OpenModel, NamesTheMissingPart) {
  write_parts(3);
  fs::remove(path(part_name(2, 3)));
  expect_failure(path(part_name(1, 3)), Status::no_such_file, part_name(2, 3), "part 2 of 3");
}

TEST_F(OpenModel, NamesTheDamagedPart) {
  write_parts(3);
  write(part_name(3, 3), part(3, 3, 3).build().substr(0, 30));
  expect_failure(path(part_name(1, 3)), Status::malformed, part_name(3, 3),
                 "offset 8: tensor count");
}

TEST_F(OpenModel, RefusesPartsThatDisagreeOnTheirCount) {
  write_parts(2);
  write(part_name(2, 2), part(2, 3, 2).build());
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(2, 2), "split.count");
}

TEST_F(OpenModel, RefusesAPartUnderAnothersName) {
  write_parts(2);
  write(part_name(2, 2), part(1, 2, 2).build());
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(2, 2), "split.no");
}

TEST_F(OpenModel, RefusesPartsThatDisagreeOnTheTensorCount) {
  write_parts(2);
  write(part_name(2, 2), part(2, 2, 5).build());
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(2, 2), "split.tensors.count");
}

TEST_F(OpenModel, RefusesAWrongTotalOfTensors) {
  for (int i = 1; i <= 2; ++i)
    write(part_name(i, 2), part(i, 2, 9).build());
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(1, 2),
                 "9 tensors, the 2 parts have 2");
}

TEST_F(OpenModel, RefusesATensorInTwoParts) {
  write_parts(1);
  for (int i = 1; i <= 2; ++i) {
    write(part_name(i, 2), part(i, 2, 4).floats("twice.weight", 8).build());
  }
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(2, 2),
                 "tensor 'twice.weight': also in");
}

TEST_F(OpenModel, RefusesAPartWithoutAPartsName) {
  expect_failure(write("m.gguf", part(2, 3, 3).build()), Status::malformed, "m.gguf",
                 "the name does not end in -00002-of-00003");
}

TEST_F(OpenModel, ANameAloneDoesNotSplitAGguf) {
  const auto model = open_model(write(part_name(1, 9), small_gguf().build()));
  ASSERT_TRUE(model.has_value()) << model.error().line();
  EXPECT_EQ(model->files.size(), 1U);
}

TEST_F(OpenModel, RefusesAnotherFormatAmongTheParts) {
  write_parts(2);
  write(part_name(2, 2), small_safetensors());
  expect_failure(path(part_name(1, 2)), Status::malformed, part_name(2, 2), "format");
}

TEST_F(OpenModel, OpensAllShardsOfASafetensorsModel) {
  const auto shard = [](const std::string& tensor) {
    return safetensors("{" + entry(tensor, "U8", "[4]", 0, 4) + "}", 4);
  };
  write("model-00001-of-00002.safetensors", shard("a"));
  write("model-00002-of-00002.safetensors", shard("b"));
  const auto model = open_model(path("model-00002-of-00002.safetensors"));
  ASSERT_TRUE(model.has_value()) << model.error().line();
  ASSERT_EQ(model->files.size(), 2U);
  EXPECT_EQ(model->files[0].tensors[0].name, "a");
}

// The trained model in the tree, with what its card says about it.
TEST(RealModel, IsReadInFull) {
  const std::string path = RESID_SOURCE_DIR "/models/linnet-moe-q4.gguf";
  const auto model = open_model(path);
  ASSERT_TRUE(model.has_value()) << model.error().line();
  ASSERT_EQ(model->files.size(), 1U);
  const ModelFile& file = model->files[0];
  EXPECT_EQ(file.version, 3U);
  EXPECT_EQ(file.architecture, "qwen3moe");
  EXPECT_EQ(file.model_name, "linnet-moe-41m");
  EXPECT_EQ(file.layers, 6U);
  EXPECT_EQ(file.experts, 32U);
  EXPECT_EQ(file.experts_used, 4U);
  EXPECT_EQ(file.bytes, 24'691'104U);
  ASSERT_EQ(file.tensors.size(), 74U);

  std::uint64_t parameters = 0;
  std::uint64_t end = file.data_offset;
  for (const Tensor& tensor : file.tensors) {
    EXPECT_LT(tensor.offset - end, file.alignment) << tensor.name;
    end = tensor.offset + tensor.bytes;
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims)
      elements *= dim;
    parameters += elements;
    EXPECT_NE(tensor.role, Role::other) << tensor.name;
    if (tensor.experts > 0) {
      EXPECT_EQ(tensor.experts, 32U);
      EXPECT_EQ(tensor.bytes / tensor.experts, 36'864U);
    }
  }
  EXPECT_LT(file.bytes - end, file.alignment);
  EXPECT_EQ(parameters, 41'078'784U);
}

TEST(RealModel, ItsPlanReadsOneExpertWithinTwoPages) {
  const auto model = open_model(RESID_SOURCE_DIR "/models/linnet-moe-q4.gguf");
  ASSERT_TRUE(model.has_value());
  const ModelFile& file = model->files[0];
  const auto plan = ChunkPlan::make(file);
  ASSERT_TRUE(plan.has_value()) << plan.error().line();
  std::uint32_t slices = 0;
  for (const Tensor& tensor : file.tensors) {
    for (std::uint32_t e = 0; e < tensor.experts; ++e) {
      const std::uint64_t begin = tensor.offset + e * 36'864ULL;
      const ChunkSpan span = plan->span(begin + 20'000, true);
      std::uint64_t bytes = 0;
      for (ChunkIndex i = span.first; i < span.first + span.count; ++i)
        bytes += (*plan)[i].bytes;
      EXPECT_LE((*plan)[span.first].offset, begin);
      EXPECT_GE((*plan)[span.first].offset + bytes, begin + 36'864);
      EXPECT_LE(bytes, 36'864 + 2 * kPage);
      EXPECT_EQ((*plan)[plan->find(begin + 20'000)].expert, static_cast<std::int32_t>(e));
      ++slices;
    }
  }
  EXPECT_EQ(slices, 6U * 3 * 32);
}

}  // namespace
}  // namespace resid::test

// Which chunks hold which expert's slice.

#include "model/expert_index.hpp"

#include <gtest/gtest.h>

namespace resid::test {
namespace {

struct Experts {
  ModelFile file;

  Experts& tensor(std::uint64_t offset, std::uint64_t bytes, Role role, std::int32_t layer,
                  std::uint32_t experts) {
    Tensor t;
    t.name = "t" + std::to_string(file.tensors.size());
    t.offset = offset;
    t.bytes = bytes;
    t.role = role;
    t.layer = layer;
    t.experts = experts;
    file.tensors.push_back(t);
    file.bytes = offset + bytes;
    return *this;
  }
  ChunkPlan plan(std::uint64_t chunk_max = ChunkPlan::kDefaultChunkMax) {
    file.path = "experts";
    file.format = Format::gguf;
    file.data_offset = kPage;
    auto made = ChunkPlan::make(file, chunk_max);
    if (!made) ADD_FAILURE() << made.error().line();
    return *made;
  }
};

std::vector<ChunkIndex> list(std::span<const ChunkIndex> chunks) {
  return {chunks.begin(), chunks.end()};
}

TEST(ExpertIndex, IsEmptyWhereNothingIsStacked) {
  Experts model;
  const ChunkPlan plan = model.tensor(kPage, 4 * kPage, Role::attention, 0, 0).plan();
  const ExpertIndex index = ExpertIndex::make(model.file, plan);
  EXPECT_TRUE(index.empty());
  EXPECT_TRUE(index.stacks(0).empty());
  EXPECT_TRUE(index.stacks(-1).empty());
}

TEST(ExpertIndex, NamesTheStacksOfALayerInTheOrderOfReading) {
  Experts model;
  const ChunkPlan plan = model.tensor(kPage, 4 * kPage, Role::expert_down, 1, 2)
                             .tensor(5 * kPage, 4 * kPage, Role::expert_gate, 1, 2)
                             .tensor(9 * kPage, 4 * kPage, Role::expert_up, 1, 2)
                             .tensor(13 * kPage, 4 * kPage, Role::expert_gate, 3, 2)
                             .plan();
  const ExpertIndex index = ExpertIndex::make(model.file, plan);
  std::vector<std::uint32_t> tensors;
  for (const auto& stack : index.stacks(1))
    tensors.push_back(stack.tensor);
  EXPECT_EQ(tensors, (std::vector<std::uint32_t>{1, 2, 0}));
  EXPECT_TRUE(index.stacks(0).empty());
  EXPECT_TRUE(index.stacks(2).empty());
  EXPECT_EQ(index.stacks(3).size(), 1U);
  EXPECT_TRUE(index.stacks(4).empty());
}

TEST(ExpertIndex, GivesEachExpertTheChunksOfItsSliceAndNoSeam) {
  Experts model;
  // Slices that end within pages, each in two chunks.
  constexpr std::uint64_t kSlice = 9 * kPage + 128;
  const ChunkPlan plan =
      model.tensor(kPage + 32, 3 * kSlice, Role::expert_up, 0, 3).plan(4 * kPage);
  const ExpertIndex index = ExpertIndex::make(model.file, plan);
  ASSERT_EQ(index.stacks(0).size(), 1U);
  const auto& stack = index.stacks(0)[0];
  ASSERT_EQ(stack.experts, 3U);
  std::vector<bool> named(plan.size());
  for (std::uint32_t e = 0; e < stack.experts; ++e) {
    const auto chunks = list(index.chunks(stack, e));
    EXPECT_GE(chunks.size(), 2U);
    for (const ChunkIndex i : chunks) {
      EXPECT_FALSE(plan[i].seam);
      EXPECT_EQ(plan[i].expert, static_cast<std::int32_t>(e));
      named[i] = true;
    }
  }
  for (ChunkIndex i = 0; i < plan.size(); ++i) {
    const bool is_slice = plan[i].tensor == 0 && !plan[i].seam;
    EXPECT_EQ(named[i], is_slice) << i;
  }
}

TEST(ExpertIndex, ASliceWithinOnePageHasNoChunkOfItsOwn) {
  Experts model;
  const ChunkPlan plan = model.tensor(kPage, 4 * 1024, Role::expert_gate, 0, 4)
                             .tensor(2 * kPage, 4 * kPage, Role::expert_up, 0, 4)
                             .plan();
  const ExpertIndex index = ExpertIndex::make(model.file, plan);
  ASSERT_EQ(index.stacks(0).size(), 2U);
  std::size_t of_gate = 0;
  for (std::uint32_t e = 0; e < 4; ++e) {
    of_gate += index.chunks(index.stacks(0)[0], e).size();
    EXPECT_EQ(index.chunks(index.stacks(0)[1], e).size(), 1U);
  }
  EXPECT_LE(of_gate, 1U);
}

}  // namespace
}  // namespace resid::test

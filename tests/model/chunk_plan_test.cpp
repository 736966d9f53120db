#include "model/chunk_plan.hpp"

#include <gtest/gtest.h>

#include "plan_checks.hpp"

namespace resid::test {
namespace {

// A file with `data_offset` bytes of metadata and tensors at given places.
struct Layout {
  ModelFile file;

  explicit Layout(std::uint64_t data_offset, std::uint64_t bytes) {
    file.path = "layout";
    file.format = Format::gguf;
    file.data_offset = data_offset;
    file.bytes = bytes;
  }
  Layout& tensor(std::uint64_t offset, std::uint64_t bytes, Role role = Role::attention,
                 std::int32_t layer = 0, std::uint32_t experts = 0) {
    Tensor t;
    t.name = "t" + std::to_string(file.tensors.size());
    t.offset = offset;
    t.bytes = bytes;
    t.role = role;
    t.layer = layer;
    t.experts = experts;
    file.tensors.push_back(t);
    return *this;
  }
  ChunkPlan plan(std::uint64_t chunk_max = ChunkPlan::kDefaultChunkMax) const {
    Result<ChunkPlan> made = ChunkPlan::make(file, chunk_max);
    if (!made) ADD_FAILURE() << made.error().line();
    expect_invariants(file, *made, chunk_max);
    return *made;
  }
};

std::vector<std::uint32_t> sizes_in_pages(const ChunkPlan& plan) {
  std::vector<std::uint32_t> out;
  for (const Chunk& chunk : plan.chunks())
    out.push_back(chunk.bytes / kPage);
  return out;
}

TEST(ChunkPlan, CutsAtTensorBoundaries) {
  const ChunkPlan plan =
      Layout(kPage, 6 * kPage).tensor(kPage, 2 * kPage).tensor(3 * kPage, 3 * kPage).plan();
  EXPECT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(plan[0].role, Role::header);
  EXPECT_EQ(plan[0].tensor, kNoTensor);
  EXPECT_EQ(plan[1].tensor, 0U);
  EXPECT_EQ(plan[2].tensor, 1U);
  for (const Chunk& chunk : plan.chunks())
    EXPECT_FALSE(chunk.seam);
  EXPECT_EQ(plan.largest(), 3 * kPage);
}

TEST(ChunkPlan, MakesASharedPageASeamOfTheTensorThatBeginsInIt) {
  const ChunkPlan plan = Layout(kPage, 5 * kPage)
                             .tensor(kPage, kPage + 100, Role::attention, 3)
                             .tensor(2 * kPage + 128, 3 * kPage - 128, Role::router, 4)
                             .plan();
  ASSERT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 1, 2}));
  const Chunk& seam = plan[2];
  EXPECT_TRUE(seam.seam);
  EXPECT_EQ(seam.tensor, 1U);
  EXPECT_EQ(seam.layer, 4);
  EXPECT_EQ(seam.role, Role::router);
  EXPECT_EQ(seam.head, 100);
  EXPECT_EQ(seam.tail, 128);
}

TEST(ChunkPlan, APageWithOneTensorAndPaddingIsNoSeam) {
  const ChunkPlan plan =
      Layout(kPage, 4 * kPage).tensor(kPage, 100).tensor(2 * kPage, kPage + 1).plan();
  ASSERT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 2}));
  EXPECT_FALSE(plan[1].seam);
}

TEST(ChunkPlan, SmallTensorsInOnePageAreOneSeam) {
  const ChunkPlan plan = Layout(kPage, 3 * kPage)
                             .tensor(kPage, 64, Role::attention_norm)
                             .tensor(kPage + 64, 64)
                             .tensor(kPage + 128, 64)
                             .tensor(2 * kPage, kPage)
                             .plan();
  ASSERT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 1}));
  EXPECT_TRUE(plan[1].seam);
  EXPECT_EQ(plan[1].role, Role::attention_norm);
  EXPECT_EQ(plan[1].head, 0);
  EXPECT_EQ(plan[1].tail, kPage);
}

TEST(ChunkPlan, MetadataAndTheFirstTensorShareASeamThatIsTheTensors) {
  const ChunkPlan plan = Layout(100, 3 * kPage).tensor(128, 3 * kPage - 128).plan();
  ASSERT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_TRUE(plan[0].seam);
  EXPECT_EQ(plan[0].tensor, 0U);
}

TEST(ChunkPlan, ATensorOfTwoSharedPagesIsTwoSeams) {
  const ChunkPlan plan = Layout(kPage, 5 * kPage)
                             .tensor(kPage, kPage + 8)
                             .tensor(2 * kPage + 8, kPage)
                             .tensor(3 * kPage + 8, kPage)
                             .plan();
  ASSERT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 1, 1, 1}));
  EXPECT_TRUE(plan[2].seam);
  EXPECT_TRUE(plan[3].seam);
  const ChunkSpan span = plan.span(2 * kPage + 100, true);
  EXPECT_EQ(span.first, 2U);
  EXPECT_EQ(span.count, 2U);
}

TEST(ChunkPlan, TailOfTheFileIsHeader) {
  const ChunkPlan plan = Layout(kPage, 20 * kPage + 5).tensor(kPage, kPage).plan(8 * kPage);
  EXPECT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 7, 6, 6}));
  EXPECT_EQ(plan[4].role, Role::header);
  EXPECT_EQ(plan.mapped_bytes(), 21 * kPage);
}

TEST(ChunkPlan, HoleBetweenTensorsIsHeader) {
  const ChunkPlan plan =
      Layout(kPage, 8 * kPage).tensor(kPage, kPage).tensor(6 * kPage, 2 * kPage).plan();
  EXPECT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 1, 4, 2}));
  EXPECT_EQ(plan[2].role, Role::header);
  EXPECT_EQ(plan[2].tensor, kNoTensor);
}

TEST(ChunkPlan, CutsALargeTensorEvenly) {
  const ChunkPlan plan = Layout(kPage, 18 * kPage).tensor(kPage, 17 * kPage).plan(8 * kPage);
  EXPECT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 6, 6, 5}));
}

TEST(ChunkPlan, GivesEachExpertItsSlice) {
  const ChunkPlan plan = Layout(kPage, kPage + 4 * 9 * kPage + 32)
                             .tensor(kPage + 32, 4 * 9 * kPage, Role::expert_up, 2, 4)
                             .plan();
  // Slices of nine pages that begin 32 bytes late: eight whole pages each and a seam between two;
  // the first page and the last have one owner.
  EXPECT_EQ(sizes_in_pages(plan), (std::vector<std::uint32_t>{1, 9, 1, 8, 1, 8, 1, 9}));
  EXPECT_EQ(plan[1].expert, 0);
  EXPECT_EQ(plan[2].expert, 1);
  EXPECT_TRUE(plan[2].seam);
  EXPECT_EQ(plan[3].expert, 1);
  EXPECT_EQ(plan[7].expert, 3);
  EXPECT_EQ(plan[7].layer, 2);
  EXPECT_EQ(plan[7].role, Role::expert_up);
}

TEST(ChunkPlan, SpanOfASliceIsItsChunkWithItsSeams) {
  const ChunkPlan plan = Layout(kPage, kPage + 4 * 9 * kPage + 32)
                             .tensor(kPage + 32, 4 * 9 * kPage, Role::expert_up, 2, 4)
                             .plan();
  const std::uint64_t slice = kPage + 32 + 9 * kPage;  // of expert 1
  for (const std::uint64_t at : {slice, slice + 3 * kPage, slice + 9 * kPage - 1}) {
    const ChunkSpan span = plan.span(at, true);
    EXPECT_EQ(span.first, 2U) << at;
    EXPECT_EQ(span.count, 3U) << at;
  }
}

TEST(ChunkPlan, SpanOfASeamTakesTheSideThatWasTouched) {
  const ChunkPlan plan = Layout(kPage, 5 * kPage)
                             .tensor(kPage, kPage + 100)
                             .tensor(2 * kPage + 1000, 3 * kPage - 1000)
                             .plan();
  const std::uint64_t seam = 2 * kPage;
  EXPECT_EQ(plan.span(seam + 99, true).first, 1U);
  EXPECT_EQ(plan.span(seam + 99, true).count, 2U);
  EXPECT_EQ(plan.span(seam + 1000, true).first, 2U);
  EXPECT_EQ(plan.span(seam + 1000, true).count, 2U);
  EXPECT_EQ(plan.span(seam + 500, true).count, 1U);  // padding: neither
  EXPECT_EQ(plan.span(seam, false).first, 2U);       // unknown: what begins here
  EXPECT_EQ(plan.span(seam, false).count, 2U);
}

TEST(ChunkPlan, SpanDoesNotReachIntoASeamOfOthers) {
  // Tensor 2 begins on a page boundary; the seam before it is tensor 0's and 1's.
  const ChunkPlan plan = Layout(kPage, 5 * kPage)
                             .tensor(kPage, kPage + 100)
                             .tensor(2 * kPage + 128, 64)
                             .tensor(3 * kPage, 2 * kPage)
                             .plan();
  const ChunkSpan span = plan.span(3 * kPage + 5, true);
  EXPECT_EQ(span.first, plan.find(3 * kPage));
  EXPECT_EQ(span.count, 1U);
}

TEST(ChunkPlan, SpanOfAMiddlePieceIsThePieceAlone) {
  const ChunkPlan plan = Layout(100, 40 * kPage).tensor(128, 40 * kPage - 128).plan(8 * kPage);
  const ChunkSpan span = plan.span(20 * kPage, false);
  EXPECT_EQ(span.count, 1U);
}

TEST(ChunkPlan, EmptyTensorsHaveNoChunks) {
  const ChunkPlan plan =
      Layout(kPage, 2 * kPage).tensor(kPage, 0).tensor(kPage, kPage).tensor(2 * kPage, 0).plan();
  EXPECT_EQ(plan.size(), 2U);
  EXPECT_FALSE(plan[1].seam);
  EXPECT_EQ(plan[1].tensor, 1U);
}

TEST(ChunkPlan, UniformChunksAreEqualButForTheLast) {
  const auto plan = ChunkPlan::uniform(10 * kPage + 1, 4 * kPage);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(sizes_in_pages(*plan), (std::vector<std::uint32_t>{4, 4, 3}));
  EXPECT_EQ(plan->largest(), 4 * kPage);
  EXPECT_EQ(plan->find(4 * kPage), 1U);
}

TEST(ChunkPlan, RefusesAnEmptyFile) {
  EXPECT_EQ(ChunkPlan::uniform(0, kPage).error().status, Status::empty_file);
  EXPECT_EQ(ChunkPlan::make(Layout(0, 0).file).error().status, Status::empty_file);
}

TEST(ChunkPlan, RefusesABadChunkSize) {
  const Layout layout = Layout(kPage, 2 * kPage).tensor(kPage, kPage);
  for (const std::uint64_t bad : {std::uint64_t{0}, kPage - 1, kPage + 1,
                                  (std::uint64_t{1} << 30) + kPage, ~std::uint64_t{0}}) {
    EXPECT_EQ(ChunkPlan::make(layout.file, bad).error().status, Status::usage) << bad;
    EXPECT_EQ(ChunkPlan::uniform(kPage, bad).error().status, Status::usage) << bad;
  }
  EXPECT_TRUE(ChunkPlan::make(layout.file, 1ULL << 30).has_value());
}

TEST(ChunkPlan, RefusesMoreChunksThanItCanHold) {
  const auto plan = ChunkPlan::uniform(std::uint64_t{1} << 60, kPage);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().status, Status::usage);
  EXPECT_NE(plan.error().line().find("raise --chunk-max"), std::string::npos);
}

// A thousand tensors of 65,535 one-byte slices need 16 pages each: few chunks, much work.
TEST(ChunkPlan, RefusesMoreSlicesThanItWillWalk) {
  Layout layout(kPage, kPage + 1100 * 65535ULL);
  for (std::uint64_t i = 0; i < 1100; ++i) {
    layout.tensor(kPage + i * 65535, 65535, Role::expert_up, 0, 65535);
  }
  const auto plan = ChunkPlan::make(layout.file);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().status, Status::unsupported);
  EXPECT_NE(plan.error().why.find("72088500 expert slices"), std::string::npos) << plan.error().why;
}

TEST(ChunkPlan, RefusesATableThatNoReaderMade) {
  const auto refused = [](const Layout& layout) {
    return ChunkPlan::make(layout.file).error().status == Status::internal;
  };
  EXPECT_TRUE(refused(Layout(kPage, 2 * kPage).tensor(kPage, kPage + 1)));
  EXPECT_TRUE(refused(Layout(kPage, 9 * kPage).tensor(kPage, kPage).tensor(kPage, kPage)));
  EXPECT_TRUE(refused(Layout(kPage, 9 * kPage).tensor(0, kPage)));
  EXPECT_TRUE(refused(Layout(kPage, 9 * kPage).tensor(kPage, kPage, Role::expert_up, 0, 3)));
}

}  // namespace
}  // namespace resid::test

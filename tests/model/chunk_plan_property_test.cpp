// Random layouts against the slow reference of plan_checks.hpp.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "model/chunk_plan.hpp"
#include "plan_checks.hpp"

namespace resid::test {
namespace {

// Places tensors of the sizes that matter - a few bytes, about a page, many pages; alone or in
// slices - with and without holes between them.
ModelFile random_layout() {
  ModelFile file;
  file.path = "random";
  file.data_offset = *rc::gen::element<std::uint64_t>(0, 1, 100, kPage - 1, kPage, kPage + 1,
                                                      5 * kPage, 5 * kPage + 32);
  std::uint64_t end = file.data_offset;
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(i);
    tensor.layer = i % 4 - 1;
    tensor.role = *rc::gen::element(Role::attention, Role::router, Role::ffn_up, Role::embedding);
    end +=
        *rc::gen::weightedElement<std::uint64_t>({{6, 0}, {3, 32}, {1, kPage}, {1, 3 * kPage + 8}});
    if (*rc::gen::weightedElement<bool>({{1, true}, {2, false}})) {
      end = page_up(end);
    }
    std::uint64_t bytes = *rc::gen::weightedOneOf<std::uint64_t>(
        {{3, rc::gen::inRange<std::uint64_t>(0, 200)},
         {3, rc::gen::inRange<std::uint64_t>(kPage - 2, 2 * kPage + 3)},
         {2, rc::gen::map(rc::gen::inRange<std::uint64_t>(1, 12),
                          [](std::uint64_t pages) { return pages * kPage; })},
         {3, rc::gen::inRange<std::uint64_t>(2 * kPage, 40 * kPage)}});
    if (*rc::gen::weightedElement<bool>({{1, true}, {2, false}}) && bytes > 0) {
      tensor.experts = *rc::gen::inRange(1U, 9U);
      bytes *= tensor.experts;
    } else if (*rc::gen::weightedElement<bool>({{1, true}, {4, false}})) {
      tensor.expert = i;
    }
    tensor.offset = end;
    tensor.bytes = bytes;
    end += bytes;
    file.tensors.push_back(tensor);
  }
  file.bytes = end + *rc::gen::element<std::uint64_t>(0, 1, 31, kPage, 30 * kPage);
  if (file.bytes == 0) file.bytes = 1;
  return file;
}

std::uint64_t random_chunk_max() {
  return *rc::gen::inRange<std::uint64_t>(1, 20) * kPage;
}

Result<ChunkPlan> make_plan(const ModelFile& file, std::uint64_t chunk_max) {
  Result<ChunkPlan> plan = ChunkPlan::make(file, chunk_max);
  RC_ASSERT(plan.has_value());
  return plan;
}

// Runs `body` on random plans and fails the test with rapidcheck's report.
template <class Body>
void check(Body body) {
  EXPECT_TRUE(rc::check([&] {
    const ModelFile file = random_layout();
    const std::uint64_t chunk_max = random_chunk_max();
    const Result<ChunkPlan> plan = make_plan(file, chunk_max);
    body(file, *plan, chunk_max);
  }));
}

TEST(ChunkPlanProperty, InvariantsHold) {
  check([](const ModelFile& file, const ChunkPlan& plan, std::uint64_t chunk_max) {
    expect_invariants(file, plan, chunk_max);
    RC_ASSERT(!testing::Test::HasFailure());
  });
}

TEST(ChunkPlanProperty, FindEqualsLinearSearch) {
  check([](const ModelFile&, const ChunkPlan& plan, std::uint64_t) {
    const auto offset = *rc::gen::inRange<std::uint64_t>(0, plan.mapped_bytes());
    ChunkIndex expected = 0;
    while (plan[expected].offset + plan[expected].bytes <= offset)
      ++expected;
    RC_ASSERT(plan.find(offset) == expected);
    RC_ASSERT(plan.find(plan[expected].offset) == expected);
  });
}

TEST(ChunkPlanProperty, SpanHoldsTheChunkAndAtMostOneThatIsNoSeam) {
  check([](const ModelFile&, const ChunkPlan& plan, std::uint64_t) {
    const auto offset = *rc::gen::inRange<std::uint64_t>(0, plan.mapped_bytes());
    for (const bool exact : {false, true}) {
      const ChunkSpan span = plan.span(exact ? offset : page_down(offset), exact);
      RC_ASSERT(span.count >= 1U && span.count <= 3U);
      RC_ASSERT(span.first + span.count <= plan.size());
      const ChunkIndex found = plan.find(offset);
      RC_ASSERT(span.first <= found && found < span.first + span.count);
      int whole = 0;
      for (ChunkIndex i = span.first; i < span.first + span.count; ++i)
        whole += !plan[i].seam;
      RC_ASSERT(whole <= 1);
    }
  });
}

// For a byte of an extent that is a tensor or a slice of one: what is fetched lies within the pages
// of that extent, and is all of it when one chunk can hold it.
TEST(ChunkPlanProperty, SpanReadsNothingBeyondThePagesOfWhatWasTouched) {
  check([](const ModelFile& file, const ChunkPlan& plan, std::uint64_t chunk_max) {
    for (const Owner& owner : owners_of(file)) {
      const auto offset = *rc::gen::inRange(owner.begin, owner.end);
      const ChunkSpan span = plan.span(offset, true);
      const Chunk& last = plan[span.first + span.count - 1];
      const std::uint64_t begin = plan[span.first].offset;
      const std::uint64_t end = last.offset + last.bytes;
      RC_ASSERT(begin >= page_down(owner.begin));
      RC_ASSERT(end <= page_up(owner.end));
      if (owner.end - owner.begin <= chunk_max - std::min(chunk_max, 2 * kPage)) {
        RC_ASSERT(begin <= owner.begin || plan[plan.find(offset)].seam);
        if (!plan[plan.find(offset)].seam) RC_ASSERT(end >= owner.end);
        RC_ASSERT(end - begin < owner.end - owner.begin + 2 * kPage);
      }
    }
  });
}

TEST(ChunkPlanProperty, PiecesOfATensorDifferByAPageAtMost) {
  check([](const ModelFile&, const ChunkPlan& plan, std::uint64_t) {
    for (ChunkIndex i = 1; i < plan.size(); ++i) {
      const Chunk& a = plan[i - 1];
      const Chunk& b = plan[i];
      if (a.seam || b.seam || a.tensor != b.tensor || a.expert != b.expert) continue;
      if (a.tensor == kNoTensor) continue;
      RC_ASSERT(a.bytes >= b.bytes && a.bytes - b.bytes <= kPage);
    }
  });
}

}  // namespace
}  // namespace resid::test

#pragma once
// The invariants of a chunk plan, checked the slow way: page by page, against every tensor.

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "model/chunk_plan.hpp"

namespace resid::test {

// Whoever has bytes in a page: (tensor, expert), the metadata being (kNoTensor, kNoExpert).
struct Owner {
  std::uint32_t tensor;
  std::int32_t expert;
  std::uint64_t begin;
  std::uint64_t end;
};

inline std::vector<Owner> owners_of(const ModelFile& file) {
  std::vector<Owner> out;
  const std::uint64_t header = std::min(file.data_offset, file.bytes);
  if (header > 0) out.push_back({kNoTensor, kNoExpert, 0, header});
  for (std::uint32_t t = 0; t < file.tensors.size(); ++t) {
    const Tensor& tensor = file.tensors[t];
    const std::uint64_t slices = std::max(tensor.experts, 1U);
    for (std::uint64_t e = 0; e < slices && tensor.bytes > 0; ++e) {
      const std::uint64_t stride = tensor.bytes / slices;
      out.push_back({t, tensor.experts > 0 ? static_cast<std::int32_t>(e) : tensor.expert,
                     tensor.offset + e * stride, tensor.offset + (e + 1) * stride});
    }
  }
  return out;
}

inline std::vector<Owner> owners_between(const std::vector<Owner>& all, std::uint64_t begin,
                                         std::uint64_t end) {
  std::vector<Owner> out;
  for (const Owner& owner : all) {
    if (owner.begin < end && owner.end > begin) out.push_back(owner);
  }
  return out;
}

inline void expect_invariants(const ModelFile& file, const ChunkPlan& plan,
                              std::uint64_t chunk_max) {
  const std::vector<Owner> all = owners_of(file);
  std::uint64_t end = 0;
  std::uint32_t largest = 0;
  for (const Chunk& chunk : plan.chunks()) {
    ASSERT_EQ(chunk.offset, end) << "C-1";
    ASSERT_GT(chunk.bytes, 0U) << "C-1";
    ASSERT_EQ(chunk.bytes % kPage, 0U) << "C-1";
    ASSERT_LE(chunk.bytes, chunk_max) << "C-2";
    end = chunk.offset + chunk.bytes;
    largest = std::max(largest, chunk.bytes);

    const std::vector<Owner> here = owners_between(all, chunk.offset, end);
    if (chunk.seam) {
      ASSERT_EQ(chunk.bytes, kPage) << "C-3";
      ASSERT_GE(here.size(), 2U) << "C-3";
    } else {
      ASSERT_LE(here.size(), 1U) << "C-3 at " << chunk.offset;
    }

    // C-4: the first tensor that begins in the chunk, else the one that is there.
    const Owner* expected = nullptr;
    for (const Owner& owner : here) {
      if (owner.tensor == kNoTensor) continue;
      if (expected == nullptr || (expected->begin < chunk.offset && owner.begin >= chunk.offset)) {
        expected = &owner;
      }
    }
    ASSERT_EQ(chunk.tensor, expected ? expected->tensor : kNoTensor) << "C-4";
    ASSERT_EQ(chunk.expert, expected ? expected->expert : kNoExpert) << "C-4";
    ASSERT_EQ(chunk.layer, expected ? file.tensors[expected->tensor].layer : kNoLayer) << "C-4";
    ASSERT_EQ(chunk.role, expected ? file.tensors[expected->tensor].role : Role::header) << "C-4";

    if (chunk.seam) {
      std::uint64_t head = 0;
      std::uint64_t tail = kPage;
      for (const Owner& owner : here) {
        if (owner.begin < chunk.offset) head = owner.end - chunk.offset;
        if (owner.end > end) tail = owner.begin - chunk.offset;
      }
      ASSERT_EQ(chunk.head, head);
      ASSERT_EQ(chunk.tail, tail);
    }
  }
  ASSERT_EQ(end, page_up(file.bytes)) << "C-1";
  ASSERT_EQ(plan.largest(), largest);
  ASSERT_EQ(plan.mapped_bytes(), end);
}

}  // namespace resid::test

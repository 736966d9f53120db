#pragma once
// A small model of experts under a pager: a page of header, then layers of three stacks.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "pager_fixture.hpp"

namespace resid::test {

inline constexpr std::uint64_t kSlice = 64 * 1024;
inline constexpr std::uint32_t kExperts = 8;
inline constexpr std::uint32_t kLayers = 2;
inline constexpr std::uint64_t kStack = kExperts * kSlice;
inline constexpr std::uint64_t kLayer = 3 * kStack;
inline constexpr std::uint64_t kFile = kPage + kLayers * kLayer;

inline ModelFile experts_file(const StoreFile& store) {
  ModelFile file;
  file.path = store.path();
  file.format = Format::gguf;
  file.bytes = store.bytes();
  file.data_offset = kPage;
  file.layers = kLayers;
  file.experts = kExperts;
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    for (const Role role : {Role::expert_gate, Role::expert_up, Role::expert_down}) {
      Tensor t;
      t.name = "t" + std::to_string(file.tensors.size());
      t.offset = kPage + file.tensors.size() * kStack;
      t.bytes = kStack;
      t.role = role;
      t.layer = static_cast<std::int32_t>(l);
      t.experts = kExperts;
      file.tensors.push_back(t);
    }
  }
  return file;
}

// Slice `expert` of stack `stack` (0 gate, 1 up, 2 down) of a layer: its first byte in the file.
inline std::uint64_t slice(std::uint32_t layer, std::uint32_t stack, std::uint32_t expert) {
  return kPage + layer * kLayer + stack * kStack + expert * kSlice;
}

struct ExpertRig {
  explicit ExpertRig(PagerConfig config, const char* policy = "expert_lru") {
    config.policy = policy;
    auto made = Pager::create(config, stats, &Failures::hook, &failures);
    if (!made) std::abort();
    pager = std::move(*made);
    ModelFile file = experts_file(store);
    auto plan = ChunkPlan::make(file, ChunkPlan::kDefaultChunkMax);
    if (!plan) std::abort();
    auto region = pager->add_region(store.fd(), store.path(), std::move(file), std::move(*plan));
    if (!region) std::abort();
    auto mapped = pager->map_view(*region, nullptr, store.bytes(), 0, 0);
    if (!mapped) std::abort();
    view = static_cast<const std::uint8_t*>(*mapped);
  }
  bool use(std::uint32_t layer, std::vector<ExpertId> experts) {
    const auto used = static_cast<std::uint32_t>(experts.size());
    return pager->use_experts(view + slice(layer, 0, 0), experts, used);
  }
  // Reads all slices of these experts; the words that differ from the store.
  std::uint64_t mismatches(std::uint32_t layer, const std::vector<ExpertId>& experts) const {
    std::uint64_t wrong = 0;
    for (std::uint32_t s = 0; s < 3; ++s) {
      for (const ExpertId expert : experts) {
        const std::uint64_t begin = slice(layer, s, expert);
        wrong += store.mismatches(view, begin, begin + kSlice);
      }
    }
    return wrong;
  }
  bool resident(std::uint32_t layer, std::uint32_t expert) const {
    std::uint64_t sum = 0;
    for (std::uint32_t s = 0; s < 3; ++s)
      sum += pager->resident_under(view + slice(layer, s, expert), kSlice);
    return sum == 3 * kSlice;
  }
  void expect_clean(std::uint64_t budget) {
    pager->settle();
    EXPECT_EQ(failures.count.load(), 0) << failures.text();
    EXPECT_TRUE(pager->reconcile().has_value());
    EXPECT_LE(stats.resident_peak_bytes.load(), budget);
    EXPECT_EQ(stats.infeasible.load(), 0U);
    EXPECT_EQ(stats.policy_lapses.load(), 0U);
  }

  StoreFile store{kFile};
  PagerStats stats;
  Failures failures;
  std::unique_ptr<Pager> pager;
  const std::uint8_t* view = nullptr;
};

}  // namespace resid::test

#pragma once
// The expert board: what became of each layer's experts, as plain atomics of fixed layout, so that
// it can live in memory shared with the process that writes the report and outlive a killed
// program.
//
//   B-1  Layers are numbered as in the model; experts within their layer. What is beyond the
//        board's size is not counted, and nothing else depends on it.
//   B-2  Whenever nobody is inside use_experts(), asked = pinned + cached + prefetched + missed, in
//        slices and in bytes.
//   B-3  Writers hold the accounting lock; readers, in whatever process, hold nothing: each number
//        is right by itself, and two of them may be from different moments.
//   B-4  Counting allocates nothing and takes no time to speak of (I-13).
//
// A slice here is a chunk of one: a slice larger than `--chunk-max` counts once a piece. Seams
// belong to two slices and are left out.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/expert_id.hpp"
#include "pager/stats.hpp"

namespace resid {

struct ExpertBoard {
  static constexpr std::uint32_t kLayersMost = 512;
  static constexpr std::uint32_t kExpertsMost = 1024;

  struct Tally {
    Counter slices{0};
    Counter bytes{0};
    void add(std::uint64_t more) {
      bump(slices);
      bump(bytes, more);
    }
  };

  struct Layer {
    std::atomic<std::uint32_t> experts{0};  // that the layer has; 0: none of its experts is known
    Counter tokens{0};                      // rows that its router has spoken for
    // Where the slices that the router asked for were at that moment.
    Tally asked;
    Tally pinned;      // resident because a pin keeps them
    Tally cached;      // resident otherwise
    Tally prefetched;  // resident or on their way because they were fetched before it had spoken
    Tally missed;      // not there; or on their way because they had been missed a moment before
    Counter read_bytes{0};  // of its slices that were read, for whatever reason
    // Of each run of chunks (a slice with its seams) that a thread of the program touched before it
    // was there: from the moment at which the fault thread learned of the first such touch until
    // the run was mapped, or its fetch given up. Once a run, however many threads slept on it; so
    // of two threads that slept on two runs both times count, and the sum may exceed the time that
    // has passed. What was mapped before anybody touched it costs nothing here, however long its
    // fetch took.
    Counter wait_ns{0};
  };

  // The sizes that follow, for whoever reads a board of another build.
  std::uint32_t layers_most = kLayersMost;
  std::uint32_t experts_most = kExpertsMost;
  std::uint32_t layer_bytes = sizeof(Layer);
  std::uint32_t reserved = 0;
  std::array<Layer, kLayersMost> layers{};
  // By layer and expert: tokens that have chosen it; stays at its largest value.
  std::array<std::atomic<std::uint32_t>, std::size_t{kLayersMost} * kExpertsMost> uses{};

  // nullptr for a layer that the board has no place for.
  Layer* layer(std::int32_t number) {
    return number >= 0 && static_cast<std::uint32_t>(number) < kLayersMost
               ? &layers[static_cast<std::size_t>(number)]
               : nullptr;
  }
  std::atomic<std::uint32_t>& uses_of(std::uint32_t layer, std::uint32_t expert) {
    return uses[std::size_t{layer} * kExpertsMost + expert];
  }
  const std::atomic<std::uint32_t>& uses_of(std::uint32_t layer, std::uint32_t expert) const {
    return uses[std::size_t{layer} * kExpertsMost + expert];
  }
  // One writer at a time (B-3): no exchange is needed to stay at the largest value.
  void use(std::uint32_t layer, ExpertId expert) {
    if (expert >= kExpertsMost) return;
    std::atomic<std::uint32_t>& count = uses_of(layer, expert);
    const std::uint32_t before = count.load(std::memory_order_relaxed);
    if (before != std::numeric_limits<std::uint32_t>::max()) {
      count.store(before + 1, std::memory_order_relaxed);
    }
  }
};

static_assert(std::is_standard_layout_v<ExpertBoard> &&
              std::is_trivially_destructible_v<ExpertBoard>);

}  // namespace resid

// What layer_order_spread makes of workloads: bytes read from the store a pass, and whether it
// notices what the workload does.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "spread_machine.hpp"

namespace resid {
namespace {

using Mode = OrderReport::Mode;

constexpr double kMiB = 1 << 20;

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

std::uint64_t share(std::uint64_t total, double ratio) {
  return static_cast<std::uint64_t>(static_cast<double>(total) * ratio) / 4096 * 4096;
}

MachineOptions with_budget(const DenseModel& model, double ratio) {
  MachineOptions options;
  options.budget = share(model.total, ratio);
  return options;
}

std::span<const ChunkId> part(const std::vector<ChunkId>& order, std::size_t first,
                              std::size_t end) {
  return std::span(order).subspan(first, end - first);
}

constexpr std::array kRatios{0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95};

TEST(SpreadPaging, a_scan_reads_what_does_not_fit_and_the_window) {
  const DenseModel model = dense_model(40);
  std::printf("a pass over %.0f MiB, window 6 MiB, in MiB beyond n - budget\n", mib(model.total));
  for (const double ratio : kRatios) {
    for (const std::uint32_t prefetch : {0U, 1U, 2U}) {
      for (const std::uint32_t tripwires : {0U, 40U}) {
        MachineOptions options = with_budget(model, ratio);
        options.prefetch = prefetch;
        options.tripwires = tripwires;
        options.window += prefetch * std::uint64_t{kLargeChunk};
        SpreadMachine machine(model, options);
        machine.read_all(model.order);
        machine.read_all(model.order);
        const std::uint64_t floor = model.total - options.budget;
        std::uint64_t most = 0;
        std::uint64_t demand = machine.demand();
        for (int pass = 0; pass < 4; ++pass)
          most = std::max(most, machine.cost(model.order));
        demand = machine.demand() - demand;
        EXPECT_LE(most, floor + options.window + kLargeChunk)
            << ratio << ", " << prefetch << " ahead, " << tripwires << " tripwires";
        EXPECT_GE(most, floor);
        const OrderReport report = machine.report();
        EXPECT_EQ(report.mode, Mode::cyclic);
        EXPECT_EQ(report.surprises, 0U) << ratio << ", " << prefetch << ", " << tripwires;
        EXPECT_EQ(report.streams, 1U);
        EXPECT_EQ(report.replans, 0U);
        EXPECT_LE(machine.armed(), 6U * tripwires);
        std::printf("  %2.0f %%, %u ahead, %2u tripwires: %7.2f, by demand %5.1f %%\n", ratio * 100,
                    prefetch, tripwires, mib(most) - mib(floor),
                    100.0 * static_cast<double>(demand) / 4 / static_cast<double>(most));
      }
    }
  }
}

// The two read what streams once each, but for what is still in the window.
TEST(SpreadPaging, two_streams_read_what_streams_twice_at_most) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  for (const double ratio : kRatios) {
    for (const std::uint32_t prefetch : {0U, 2U}) {
      MachineOptions options = with_budget(model, ratio);
      options.prefetch = prefetch;
      options.window += 2 * std::uint64_t{kLargeChunk};
      SpreadMachine machine(model, options);
      const auto pass = [&] {
        const std::uint64_t before = machine.fetched();
        for (std::size_t i = 0; i < size; ++i) {
          machine.read(model.order[i]);
          machine.read(model.order[(i + size / 2) % size]);
        }
        return machine.fetched() - before;
      };
      pass();
      pass();
      const OrderReport early = machine.report();
      std::uint64_t most = 0;
      for (int i = 0; i < 4; ++i)
        most = std::max(most, pass());
      const OrderReport report = machine.report();
      EXPECT_LE(most, 2 * report.streamed_bytes) << ratio;
      EXPECT_EQ(report.streams, 2U) << ratio;
      EXPECT_EQ(report.mode, Mode::cyclic);
      EXPECT_EQ(report.fallbacks, 0U);
      EXPECT_LE(early.surprises, 3U) << ratio;
      EXPECT_EQ(report.surprises, early.surprises) << ratio;
      EXPECT_EQ(report.replans, 0U);
      std::printf("two streams, %2.0f %%, %u ahead: %.1f of %.1f MiB streamed, %lu surprises\n",
                  ratio * 100, prefetch, mib(most), mib(report.streamed_bytes), report.surprises);
    }
  }
}

TEST(SpreadPaging, four_streams_at_once) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  MachineOptions options = with_budget(model, 0.6);
  options.window = 6 * std::uint64_t{kLargeChunk};
  SpreadMachine machine(model, options);
  for (std::size_t i = 0; i < 6 * size; ++i) {
    for (std::size_t s = 0; s < 4; ++s)
      machine.read(model.order[(i + s * size / 4) % size]);
  }
  const OrderReport report = machine.report();
  EXPECT_EQ(report.streams, 4U);
  EXPECT_LE(report.surprises, 12U);
  EXPECT_EQ(report.mode, Mode::cyclic);
}

TEST(SpreadPaging, two_streams_become_one_without_leaving_a_ghost) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  SpreadMachine machine(model, with_budget(model, 0.6));
  for (std::size_t i = 0; i < 2 * size; ++i) {
    machine.read(model.order[i % size]);
    machine.read(model.order[(i + size / 2) % size]);
  }
  ASSERT_EQ(machine.report().streams, 2U);
  machine.read_all(part(model.order, 0, size / 2));
  EXPECT_EQ(machine.report().streams, 1U);
}

TEST(SpreadPaging, jumps_cost_what_they_miss) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  for (const double ratio : {0.25, 0.5, 0.75, 0.9}) {
    SpreadMachine machine(model, with_budget(model, ratio));
    std::mt19937 random(7);
    for (int i = 0; i < 3; ++i)
      machine.read_all(model.order);
    const std::uint64_t calm = machine.cost(model.order);
    constexpr int kPasses = 10;
    std::uint64_t jumps = 0;
    const std::uint64_t before = machine.fetched();
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const ChunkId chunk : model.order) {
        machine.read(chunk);
        if (random() % 50 != 0) continue;
        const ChunkId other = model.order[random() % size];
        if (!machine.resident(other)) jumps += model.bytes[other];
        machine.read(other);
      }
    }
    const std::uint64_t cost = machine.fetched() - before;
    const OrderReport report = machine.report();
    std::printf(
        "2 %% jumps, %2.0f %%: %.1f MiB a pass, calm %.1f, the jumps' own %.1f; %lu of %lu "
        "surprises, %u streams\n",
        ratio * 100, mib(cost) / kPasses, mib(calm), mib(jumps) / kPasses, report.surprises,
        report.signals, report.streams);
    EXPECT_LE(static_cast<double>(cost), 1.05 * static_cast<double>(calm * kPasses + jumps));
    EXPECT_EQ(report.mode, Mode::cyclic);
    EXPECT_EQ(report.fallbacks, 0U);
    EXPECT_EQ(report.replans, 0U);
  }
}

// A program that stops in the middle of a pass now and then.
TEST(SpreadPaging, early_exits_change_no_plan) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  SpreadMachine machine(model, with_budget(model, 0.6));
  std::mt19937 random(3);
  for (int pass = 0; pass < 30; ++pass)
    machine.read_all(part(model.order, 0, pass % 3 == 2 ? size / 4 + random() % (size / 2) : size));
  EXPECT_EQ(machine.report().replans, 0U);
  EXPECT_EQ(machine.report().mode, Mode::cyclic);
}

TEST(SpreadPaging, a_range_of_layers_becomes_the_path) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  const std::size_t first = size / 4;
  const std::size_t end = size * 7 / 8;
  const auto range = part(model.order, first, end);
  DenseModel alone = model;
  alone.order.assign(range.begin(), range.end());
  std::uint64_t bytes = 0;
  for (const ChunkId chunk : std::set<ChunkId>(range.begin(), range.end()))
    bytes += model.bytes[chunk];
  for (const double ratio : {0.25, 0.4, 0.5, 0.55}) {
    for (const std::uint32_t tripwires : {0U, 60U}) {
      MachineOptions options = with_budget(model, ratio);
      options.tripwires = tripwires;
      SpreadMachine machine(model, options);
      machine.read_all(model.order);
      machine.read_all(model.order);
      for (int pass = 0; pass < 4; ++pass)
        machine.read_all(range);
      std::uint64_t most = 0;
      for (int pass = 0; pass < 4; ++pass)
        most = std::max(most, machine.cost(range));
      const OrderReport in_range = machine.report();
      std::printf(
          "a range of %.0f MiB, %2.0f %%, %u tripwires: %.1f MiB a pass, floor %.1f, %lu replans, "
          "%lu surprises\n",
          mib(bytes), ratio * 100, tripwires, mib(most), mib(bytes - options.budget),
          in_range.replans, in_range.surprises);
      EXPECT_LE(most, bytes - options.budget + options.window + kLargeChunk) << ratio;
      EXPECT_GE(in_range.replans, 1U);
      EXPECT_EQ(in_range.mode, Mode::cyclic);
      // And back.
      machine.read_all(model.order);
      machine.read_all(model.order);
      std::uint64_t again = 0;
      for (int pass = 0; pass < 2; ++pass)
        again = std::max(again, machine.cost(model.order));
      EXPECT_LE(again, model.total - options.budget + options.window + kLargeChunk) << ratio;
      EXPECT_LE(machine.report().replans, in_range.replans + 2);
    }
  }
}

TEST(SpreadPaging, random_reads_are_noticed_and_a_scan_after_them_too) {
  for (const bool same_order : {true, false}) {
    const DenseModel model = dense_model(40);
    for (const double ratio : {0.25, 0.5, 0.75, 0.9}) {
      MachineOptions options = with_budget(model, ratio);
      SpreadMachine machine(model, options);
      std::mt19937 random(5);
      for (int i = 0; i < 3; ++i)
        machine.read_all(model.order);
      const std::uint64_t before = machine.signals();
      while (machine.report().mode != Mode::recency && machine.signals() < before + 1000)
        machine.read(model.order[random() % model.order.size()]);
      const std::uint64_t noticed = machine.signals() - before;
      EXPECT_LE(noticed, 200U) << ratio;
      EXPECT_EQ(machine.report().fallbacks, 1U);
      std::array<ChunkId, 4> out{};
      EXPECT_EQ(machine.policy().upcoming(out), 0U);
      EXPECT_EQ(machine.policy().spent(), kNoChunk);
      for (std::size_t i = 0; i < 3 * model.order.size(); ++i)
        machine.read(model.order[random() % model.order.size()]);
      EXPECT_EQ(machine.report().mode, Mode::recency) << ratio;

      std::vector<ChunkId> order = model.order;
      if (!same_order) std::shuffle(order.begin(), order.end(), random);
      int passes = 0;
      while (machine.report().mode != Mode::cyclic && passes < 12) {
        machine.read_all(order);
        ++passes;
      }
      // By age each pass misses other chunks, at 90 % some 20 % of them: that many passes it takes
      // until a chunk is missed again.
      EXPECT_LE(passes, same_order ? 3 : ratio < 0.8 ? 4 : 12) << ratio;
      for (int i = 0; i < 3; ++i)
        machine.read_all(order);
      const std::uint64_t cost = machine.cost(order);
      const OrderReport report = machine.report();
      std::printf(
          "random reads, %2.0f %%: noticed after %lu signals; a scan of %s order after %d passes, "
          "then %.1f MiB a pass, floor %.1f\n",
          ratio * 100, noticed, same_order ? "the declared" : "another", passes, mib(cost),
          mib(model.total - options.budget));
      EXPECT_EQ(report.mode, Mode::cyclic);
      EXPECT_LE(report.fallbacks, 2U);
      // An order learned from misses is right but for some places.
      const std::uint64_t floor = model.total - options.budget;
      EXPECT_LE(cost, floor + options.window + kLargeChunk + (same_order ? 0 : floor / 50))
          << ratio;
    }
  }
}

TEST(SpreadPaging, an_order_is_learned_without_a_declaration) {
  const DenseModel model = dense_model(40);
  for (const double ratio : kRatios) {
    MachineOptions options = with_budget(model, ratio);
    options.declared = false;
    SpreadMachine machine(model, options);
    const std::uint64_t first = machine.cost(model.order);
    EXPECT_EQ(first, model.total);
    const std::uint64_t second = machine.cost(model.order);
    const std::uint64_t third = machine.cost(model.order);
    std::uint64_t most = 0;
    for (int pass = 0; pass < 3; ++pass)
      most = std::max(most, machine.cost(model.order));
    const std::uint64_t floor = model.total - options.budget;
    std::printf("learned, %2.0f %%: second pass %.1f, third %.1f, then %.1f MiB, floor %.1f\n",
                ratio * 100, mib(second), mib(third), mib(most), mib(floor));
    EXPECT_EQ(machine.report().mode, Mode::cyclic);
    EXPECT_LE(most, floor + options.window + kLargeChunk) << ratio;
    EXPECT_EQ(machine.report().fallbacks, 0U);
  }
}

TEST(SpreadPaging, late_joiners_take_their_places) {
  const DenseModel model = dense_model(20);
  std::vector<ChunkId> first;
  for (std::size_t i = 0; i < model.order.size(); ++i) {
    if (i % 40 != 17) first.push_back(model.order[i]);
  }
  MachineOptions options = with_budget(model, 0.5);
  options.declared = false;
  SpreadMachine machine(model, options);
  for (int pass = 0; pass < 3; ++pass)
    machine.read_all(first);
  for (int pass = 0; pass < 4; ++pass)
    machine.read_all(model.order);
  for (const ChunkId chunk : model.order)
    EXPECT_NE(machine.policy().next_use_distance(chunk), kNeverUsed);
  EXPECT_LE(machine.cost(model.order), model.total - options.budget + options.window + kLargeChunk);
}

TEST(SpreadPaging, eight_threads_out_of_step) {
  const DenseModel model = dense_model(40);
  for (const double ratio : kRatios) {
    for (const std::uint32_t prefetch : {0U, 3U}) {
      MachineOptions options = with_budget(model, ratio);
      options.keep = 8;
      options.prefetch = prefetch;
      options.window = (9 + prefetch) * std::uint64_t{kLargeChunk};
      SpreadMachine machine(model, options);
      std::mt19937 random(11);
      const auto pass = [&] {
        const std::uint64_t before = machine.fetched();
        std::vector<ChunkId> order = model.order;
        for (std::size_t i = 0; i < order.size(); i += 8) {
          const auto end =
              order.begin() + static_cast<std::ptrdiff_t>(std::min(i + 8, order.size()));
          std::shuffle(order.begin() + static_cast<std::ptrdiff_t>(i), end, random);
        }
        machine.read_all(order);
        return machine.fetched() - before;
      };
      pass();
      pass();
      std::uint64_t most = 0;
      for (int i = 0; i < 4; ++i)
        most = std::max(most, pass());
      const OrderReport report = machine.report();
      std::printf("eight threads, %2.0f %%, %u ahead: %.1f MiB a pass, floor %.1f, %lu surprises\n",
                  ratio * 100, prefetch, mib(most), mib(model.total - options.budget),
                  report.surprises);
      EXPECT_LE(most, model.total - options.budget + options.window + kLargeChunk) << ratio;
      EXPECT_EQ(report.mode, Mode::cyclic);
      EXPECT_EQ(report.streams, 1U);
      EXPECT_EQ(report.surprises, 0U) << ratio;
    }
  }
}

TEST(SpreadPaging, a_new_budget_in_the_middle_changes_few_chunks) {
  const DenseModel model = dense_model(40);
  const std::size_t size = model.order.size();
  MachineOptions options = with_budget(model, 0.7);
  SpreadMachine machine(model, options);
  for (int i = 0; i < 3; ++i)
    machine.read_all(model.order);
  const std::uint64_t calm = machine.cost(model.order);
  machine.read_all(part(model.order, 0, size / 3));
  const std::uint64_t less = 5 * std::uint64_t{kLargeChunk};
  machine.set_budget(options.budget - less);
  const std::uint64_t rest = machine.cost(part(model.order, size / 3, size));
  EXPECT_LE(rest, calm * 2 / 3 + 3 * less);
  const std::uint64_t next = machine.cost(model.order);
  EXPECT_LE(next, calm + less + 2 * kLargeChunk);
  machine.set_budget(options.budget);
  const std::uint64_t back = machine.cost(model.order);
  EXPECT_LE(back, calm + less + 2 * kLargeChunk);
  EXPECT_LE(machine.cost(model.order), calm + kLargeChunk);
  EXPECT_EQ(machine.report().replans, 2U);
  EXPECT_EQ(machine.report().surprises, 0U);
}

}  // namespace
}  // namespace resid

// Tripwires: resident chunks that tell when they are reached.
//
// A chunk is armed by taking its first page out of the app views (madvise DONTNEED: the page stays
// in the memfd). The next touch is a minor fault that reads nothing; it is mapped again at once and
// the policy learns where the workload is. Arming 1.7 us, tripping about 8 us here, so how many are
// armed follows from how long a pass takes (sense/tripwire_rate.hpp).
//
// Nothing depends on an armed page being unmapped still: a touch between the mark and the madvise
// is a signal less, one after an eviction is an ordinary fault.

#include <sys/mman.h>

#include <array>

#include "base/clock.hpp"
#include "base/sys.hpp"
#include "pager/impl.hpp"

namespace resid {

void Pager::Impl::take_down(const OrderReport& order) {
  const auto set = [](Counter& counter, std::uint64_t value) {
    counter.store(value, std::memory_order_relaxed);
  };
  set(stats.order_mode, static_cast<std::uint64_t>(order.mode));
  set(stats.order_streams, order.streams);
  set(stats.order_cycles, order.cycles);
  set(stats.order_signals, order.signals);
  set(stats.order_surprises, order.surprises);
  set(stats.order_replans, order.replans);
  set(stats.order_fallbacks, order.fallbacks);
  set(stats.plan_fixed_bytes, order.fixed_bytes);
  set(stats.plan_streamed_bytes, order.streamed_bytes);
}

void Pager::Impl::follow_order(std::uint64_t now) {
  struct Page {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
  };
  std::array<ChunkId, 16> wanted{};
  std::array<Page, 16> pages{};
  std::size_t count_ = 0;
  {
    Lock lock(mutex);
    const std::size_t n = policy->to_arm(wanted);
    for (std::size_t i = 0; i < n; ++i) {
      const Place place = locate(wanted[i]);
      ChunkState& chunk = place.region->chunk(place.index);
      if (chunk.phase() != ChunkPhase::resident || chunk.prefetched() || chunk.armed()) continue;
      chunk.set_armed(lock, true);
      pages[count_++] = {place.region->id, place.region->plan()[place.index].offset};
    }
    const OrderReport order = policy->order_report();
    if (config.tripwires && tripwire_rate.cycle(order.cycles, now)) {
      policy->set_tripwires(tripwire_rate.most());
    }
    take_down(order);
  }
  for (std::size_t i = 0; i < count_; ++i) {
    // Under the view table's lock: the addresses are views of ours still.
    views.for_each(pages[i].region, pages[i].offset, kPage, [](const ViewSpan& span) {
      sys::madvise(reinterpret_cast<void*>(span.address), kPage, MADV_DONTNEED);
    });
  }
  if (count_ != 0) bump(stats.armed, count_);
}

}  // namespace resid

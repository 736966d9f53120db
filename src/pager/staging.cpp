#include "pager/staging.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/units.hpp"

namespace resid {

std::uint64_t Staging::slots_for(std::uint64_t run_bytes, std::uint64_t budget) {
  const std::uint64_t least = run_bytes <= kBytes / 4 ? 4 : 2;
  return std::clamp<std::uint64_t>(std::min(kBytes, budget / 16) / std::max(run_bytes, kPage),
                                   least, kMostSlots);
}

Staging::Slots Staging::make_slots(std::uint64_t run_bytes, std::uint64_t budget) {
  Slots slots;
  for (std::uint64_t i = slots_for(run_bytes, budget); i != 0; --i) {
    slots.push_back(std::make_unique<Slot>());
    slots.back()->area = ReadBuffer::make(run_bytes);
    if (!slots.back()->area) return {};
  }
  return slots;
}

void Staging::adopt(const Lock&, Slots& made, std::uint64_t run_bytes) {
  if (run_bytes <= run_bytes_) return;
  run_bytes_ = run_bytes;
  std::size_t at = 0;
  // With larger runs there are fewer slots; those beyond stay as they are, for small runs.
  for (; at < slots_.size() && at < made.size(); ++at) {
    Slot& slot = *slots_[at];
    ReadBuffer& mine = slot.phase == SlotPhase::free ? slot.area : slot.larger;
    mine = std::move(made[at]->area);
  }
  for (; at < made.size(); ++at) {
    slots_.push_back(std::move(made[at]));
    slots_.back()->request.tag = static_cast<std::uint32_t>(at);
    free_.push_back(*slots_.back());
  }
}

std::uint64_t Staging::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& slot : slots_)
    sum += slot->area.bytes() + slot->larger.bytes();
  return sum;
}

// A quarter of those that hold the largest run stays for demand: others may not hold what it needs.
bool Staging::spare(const Slot& slot, bool demand) const {
  if (demand || slot.area.bytes() < run_bytes_) return true;
  std::size_t whole = 0;
  std::size_t free = 0;
  for (const auto& each : slots_) {
    if (each->area.bytes() < run_bytes_) continue;
    ++whole;
    free += each->phase == SlotPhase::free ? 1U : 0U;
  }
  return free > std::max<std::size_t>(1, whole / 4);
}

Slot* Staging::fitting(std::uint64_t bytes, bool demand) const {
  Slot* best = nullptr;
  for (Slot* slot = free_.front(); slot != nullptr; slot = slot->next) {
    if (slot->area.bytes() < bytes) continue;
    if (best == nullptr || slot->area.bytes() < best->area.bytes()) best = slot;
  }
  return best != nullptr && spare(*best, demand) ? best : nullptr;
}

bool Staging::has_room_ahead(const Lock&, std::uint64_t bytes) const {
  return fitting(bytes, false) != nullptr;
}

bool Staging::comes_free(const Lock&, std::uint64_t bytes) const {
  for (const auto& slot : slots_) {
    // A prefetch that is being read may find no room and keep its slot.
    if (slot->phase != SlotPhase::free && slot->demand && slot->area.bytes() >= bytes) return true;
  }
  return false;
}

std::uint64_t Staging::bytes_on_their_way(bool for_spare_room) const {
  std::uint64_t sum = 0;
  for (const auto& slot : slots_) {
    const bool coming = slot->phase == SlotPhase::reading || slot->phase == SlotPhase::staged;
    sum += coming && slot->spare == for_spare_room ? slot->request.bytes : 0;
  }
  return sum;
}

std::uint64_t Staging::coming_bytes(const Lock&) const {
  return bytes_on_their_way(false);
}

std::uint64_t Staging::spare_bytes(const Lock&) const {
  return bytes_on_their_way(true);
}

Slot* Staging::take(const Lock&, std::uint64_t bytes, bool demand) {
  Slot* slot = fitting(bytes, demand);
  if (slot == nullptr) return nullptr;
  free_.remove(*slot);
  slot->phase = SlotPhase::reading;
  slot->demand = demand;
  slot->spare = false;
  ++reading_;
  return slot;
}

void Staging::give_back(const Lock&, Slot& slot) {
  assert(slot.phase == SlotPhase::filling);
  slot.phase = SlotPhase::free;
  slot.head = kNoChunk;
  if (slot.larger) slot.area = std::move(slot.larger);
  slot.larger = {};
  // The memory that was used last is the likeliest to be in the processor's cache.
  free_.push_front(slot);
}

void Staging::read_done(const Lock&, Slot& slot) {
  assert(slot.phase == SlotPhase::reading);
  slot.phase = SlotPhase::staged;
  --reading_;
  list_of(slot).push_back(slot);
}

void Staging::begin_fill(const Lock&, Slot& slot) {
  assert(slot.phase == SlotPhase::staged);
  list_of(slot).remove(slot);
  slot.phase = SlotPhase::filling;
}

void Staging::put_back(const Lock&, Slot& slot) {
  assert(slot.phase == SlotPhase::filling);
  slot.phase = SlotPhase::staged;
  list_of(slot).push_front(slot);
}

void Staging::make_demand(const Lock&, Slot& slot) {
  if (slot.demand) return;
  if (slot.phase == SlotPhase::staged) prefetch_.remove(slot);
  slot.demand = true;
  slot.spare = false;
  if (slot.phase == SlotPhase::staged) demand_.push_back(slot);
}

}  // namespace resid

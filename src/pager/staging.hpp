#pragma once
// Where a read lands before its bytes go into a region.
//
// The disk is not pointed at the region's own pages, for three reasons. Small pages slow it down
// (read_buffer.hpp). Memory that is used again and again needs no clearing. And budget is needed
// only when the bytes have come (I-11), so that what is on its way from the disk takes no room from
// what stays.
//
// A slot is one read under way or waiting for its turn to be filled in:
//
//     FREE --take--> READING --read_done--> STAGED --begin_fill--> FILLING --give_back--> FREE
//                                             ^                       |
//                                             +--------put_back-------+   (no room yet)
//
// The slots are the pager's own memory and are not charged to the budget; `bytes()` says what they
// take.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/linked_list.hpp"
#include "base/status.hpp"
#include "pager/chunk_state.hpp"
#include "storage/read_buffer.hpp"
#include "storage/reader.hpp"

namespace resid {

enum class SlotPhase : std::uint8_t { free, reading, staged, filling };

struct Slot {
  ReadRequest request;
  ChunkId head = kNoChunk;  // of the run that is read
  SlotPhase phase = SlotPhase::free;
  bool demand = false;  // someone waits for it
  bool spare = false;   // takes room only where there is some (warm_start.cpp)
  Slot* next = nullptr;
  Slot* prev = nullptr;
  ReadBuffer area;
  ReadBuffer larger;  // takes the area's place when the slot is given back
};

using SlotList = LinkedList<Slot>;

// All members but make_slots() with the accounting lock held.
class Staging {
 public:
  static constexpr std::uint32_t kMostSlots = 64;
  static constexpr std::uint64_t kBytes = 16 * 1024 * 1024;

  Staging() { slots_.reserve(kMostSlots); }

  // How many: a sixteenth of the budget, 16 MiB at most; four at least, two of large ones.
  static std::uint64_t slots_for(std::uint64_t run_bytes, std::uint64_t budget);
  using Slots = std::vector<std::unique_ptr<Slot>>;
  // Slots for runs of up to `run_bytes` beside a budget of `budget`; none where there is no memory.
  // Slow, and allocates: no lock held.
  static Slots make_slots(std::uint64_t run_bytes, std::uint64_t budget);
  // Makes what is there as large as `made`, whose memory is taken over; what is left in it is the
  // caller's to free, without the lock. Slots in use change when they are given back.
  void adopt(const Lock& lock, Slots& made, std::uint64_t run_bytes);
  std::uint64_t run_bytes() const { return run_bytes_; }
  std::uint64_t bytes() const;

  // A free slot for a run of `bytes`, now READING; nullptr when there is none. The last ones are
  // kept for demand.
  Slot* take(const Lock& lock, std::uint64_t bytes, bool demand);
  // Whether a prefetch of `bytes` would get one now.
  bool has_room_ahead(const Lock& lock, std::uint64_t bytes) const;
  // Whether a slot for `bytes` will come free without anybody reading on: it holds a demand.
  bool comes_free(const Lock& lock, std::uint64_t bytes) const;
  // What is on its way for spare room alone; not in coming_bytes().
  std::uint64_t spare_bytes(const Lock& lock) const;
  void give_back(const Lock& lock, Slot& slot);
  // Of all that is being read or waits to be filled in.
  std::uint64_t coming_bytes(const Lock& lock) const;

  // READING -> STAGED
  void read_done(const Lock& lock, Slot& slot);
  // STAGED -> FILLING
  void begin_fill(const Lock& lock, Slot& slot);
  // FILLING -> STAGED, in front of what came later
  void put_back(const Lock& lock, Slot& slot);
  // A prefetch that is wanted now.
  void make_demand(const Lock& lock, Slot& slot);

  Slot* first_demand() const { return demand_.front(); }
  Slot* first_prefetch() const { return prefetch_.front(); }
  Slot& at(std::uint32_t tag) { return *slots_[tag]; }
  std::uint32_t reading() const { return reading_; }
  std::uint32_t waiting() const { return prefetch_.size(); }

 private:
  bool spare(const Slot& slot, bool demand) const;
  std::uint64_t bytes_on_their_way(bool for_spare_room) const;
  // The smallest free slot that holds `bytes`; small runs leave the large slots to large ones.
  Slot* fitting(std::uint64_t bytes, bool demand) const;
  SlotList& list_of(const Slot& slot) { return slot.demand ? demand_ : prefetch_; }

  Slots slots_;
  SlotList free_;
  SlotList demand_;    // staged
  SlotList prefetch_;  // staged
  std::uint32_t reading_ = 0;
  std::uint64_t run_bytes_ = 0;
};

}  // namespace resid

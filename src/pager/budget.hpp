#pragma once
// Who holds how many bytes. Every byte of a memfd is in exactly one of three accounts:
//
//   reserved  covered by a fetch that is under way; from 0 to all of it is in the memfd
//   resident  in the memfd, published
//   evicting  being punched; from all to 0 of it is in the memfd
//
// so that  resident <= bytes in the memfds <= resident + reserved + evicting  holds whenever the
// accounting lock is held (I-7), and  resident + reserved + evicting <= limit  always (I-11).

#include <cassert>
#include <cstdint>
#include <utility>

#include "pager/chunk_state.hpp"
#include "pager/stats.hpp"

namespace resid {

class Budget;

// Bytes set aside before a fetch starts. Must be committed or released, with the lock held.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    assert(budget_ == nullptr);
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { assert(budget_ == nullptr); }
  explicit operator bool() const { return budget_ != nullptr; }

  void commit(const Lock& lock);   // reserved -> resident; before publish (I-11)
  void release(const Lock& lock);  // reserved -> free

 private:
  friend class Budget;
  Reservation(Budget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {}
  Budget* budget_ = nullptr;
  std::uint64_t bytes_ = 0;
};

class Budget {
 public:
  Budget(std::uint64_t limit, PagerStats& stats) : limit_(limit), stats_(stats) {}

  std::uint64_t limit() const { return limit_; }
  void set_limit(const Lock&, std::uint64_t bytes) { limit_ = bytes; }
  std::uint64_t resident() const { return resident_; }
  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t evicting() const { return evicting_; }
  std::uint64_t held() const { return resident_ + reserved_ + evicting_; }
  std::uint64_t pinned = 0;  // bytes claimed by Pin handles; guarded by the accounting lock

  // What pins leave of the limit.
  std::uint64_t unpinned() const { return pinned < limit_ ? limit_ - pinned : 0; }

  // An empty reservation when there is no room now.
  Reservation try_reserve(const Lock& lock, std::uint64_t bytes) {
    assert(lock.owns_lock());
    (void)lock;
    if (held() + bytes > limit_) return {};
    reserved_ += bytes;
    raise_to(stats_.resident_peak_bytes, held());
    return {this, bytes};
  }
  void begin_evict(const Lock&, std::uint64_t bytes) {
    assert(resident_ >= bytes);
    resident_ -= bytes;
    evicting_ += bytes;
    publish();
  }
  void finish_evict(const Lock&, std::uint64_t bytes) {
    assert(evicting_ >= bytes);
    evicting_ -= bytes;
  }

 private:
  friend class Reservation;
  void publish() { stats_.resident_bytes.store(resident_, std::memory_order_relaxed); }
  std::uint64_t limit_;
  std::uint64_t resident_ = 0;
  std::uint64_t reserved_ = 0;
  std::uint64_t evicting_ = 0;
  PagerStats& stats_;
};

inline void Reservation::commit(const Lock& lock) {
  assert(lock.owns_lock() && budget_ != nullptr);
  (void)lock;
  budget_->reserved_ -= bytes_;
  budget_->resident_ += bytes_;
  budget_->publish();
  budget_ = nullptr;
  bytes_ = 0;
}

inline void Reservation::release(const Lock& lock) {
  assert(lock.owns_lock() && budget_ != nullptr);
  (void)lock;
  budget_->reserved_ -= bytes_;
  budget_ = nullptr;
  bytes_ = 0;
}

}  // namespace resid

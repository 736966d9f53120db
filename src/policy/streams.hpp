#pragma once
// A cyclic order of chunks and the places in it at which the workload is reading now.
//
// A program may go through its weights at several places at once: the slots of a server, two
// contexts. Each such place is a stream. All that is known of them are signals, each naming a chunk
// that is about to be read, and only few chunks signal: what is resident is read in silence.
//
// Invariants:
//   S-1  A signal belongs to the stream from which it is the shortest way, a foreseen step ahead or
//        a small step back; a step back (at most kStepBack) moves nothing.
//   S-2  A step ahead is foreseen when the workload cannot have gone it without more signals than
//        may be late or lost: it passes over at most kSkips chunks that were expected to signal,
//        apart from those that the last kStepBack entries hold, which other threads may be about to
//        signal yet. Steps of a few entries are always foreseen. The end of the order is followed
//        by its beginning.
//   S-3  Any other signal is a surprise: a jump. It starts a stream where it is, or moves there the
//        one that has been idle longest. It is not known which stream jumped, if any.
//   S-4  A stream that stays while the others go on for as long as it should have needed for its
//        next few signals is dropped, and after a cycle of theirs in any case: a jump leaves no
//        ghost behind, which would keep what lies ahead of it.
//   S-5  Whoever jumps twice from the same place to the same place, and went all the way from the
//        second to the first in between, reads that path and nothing else: closed_path().
//   S-6  The path may be a stretch of the order only (restrict()), itself a cycle. All positions
//        are those of the whole order, all steps those of the path.
//
// grow() allocates, nothing else does.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policy/index_set.hpp"
#include "policy/occurrences.hpp"
#include "policy/order_policy.hpp"
#include "policy/policy.hpp"
#include "policy/stream_plan.hpp"

namespace resid {

// A chunk that joins the order behind the entry at position `after`; `nth` tells those of one
// position apart.
struct Joiner {
  std::uint32_t after = 0;
  std::uint32_t nth = 0;
  ChunkId chunk = kNoChunk;
};

struct Stretch {
  std::uint32_t first = 0;  // positions, both included
  std::uint32_t last = 0;
};

class Streams {
 public:
  static constexpr std::uint32_t kMost = 4;
  static constexpr std::uint32_t kNone = IndexSet::kNone;

  enum class Step : std::uint8_t { first, ahead, back, jump };

  // Makes room for chunk ids below `chunks` and an order of `entries`. Never shrinks.
  void grow(std::uint32_t chunks, std::uint32_t entries);
  // Replaces the order and forgets the streams. Its ids and its size are as grow() was told.
  void assign(std::span<const ChunkId> order);
  // Inserts chunks that the order does not name, in the order of (after, nth). Ends a restriction.
  // The order is then at most as large as grow() was told.
  void join(std::span<const Joiner> joiners);

  // ---- The order and the path.
  std::uint32_t size() const { return static_cast<std::uint32_t>(order_.size()); }
  std::uint32_t length() const { return length_; }
  bool whole() const { return length_ == size(); }
  Path path() const { return {order_, first_, length_}; }
  ChunkId chunk_at(std::uint32_t position) const { return order_[position]; }
  bool in_order(ChunkId chunk) const { return places_.contains(chunk); }
  bool in_path(ChunkId chunk) const { return ahead(chunk, first_) != kNone; }
  // The nearest place of `chunk` in the path at or after `from`, which is in the path; kNone when
  // it is outside.
  std::uint32_t ahead(ChunkId chunk, std::uint32_t from) const;
  std::uint32_t steps(std::uint32_t from, std::uint32_t to) const {
    const std::uint32_t a = step_of(from);
    const std::uint32_t b = step_of(to);
    return b >= a ? b - a : b + (length_ - a);
  }
  std::uint32_t following(std::uint32_t position) const;
  std::uint32_t preceding(std::uint32_t position) const;

  void restrict(Stretch stretch);  // streams outside of it are dropped
  void widen();                    // to the whole order
  // The path with `chunk` in it, when that lies at most `reach` entries outside of it.
  std::optional<Stretch> extended(ChunkId chunk, std::uint32_t reach) const;

  // ---- The streams.
  // `expected`: positions that cannot be read in silence; `gap`: the usual steps between signals at
  // most. `chunk` is in the path.
  Step signal(ChunkId chunk, const IndexSet& expected, std::uint32_t gap);
  void start(std::uint32_t position);  // forgets the others

  std::uint32_t count() const { return count_; }
  std::uint32_t position(std::uint32_t stream) const { return streams_[stream].at; }
  std::uint32_t latest() const { return streams_[latest_].at; }  // of the stream that moved last
  bool is_read(std::uint32_t position) const;                    // a stream is there
  // Steps until a stream comes to `chunk`, which is in the path; before the first signal from the
  // beginning.
  std::uint32_t distance(ChunkId chunk) const;

  // Of the last signal: how far its stream went, and whether past the end of the path.
  std::uint32_t advanced() const { return advanced_; }
  bool came_round() const { return came_round_; }
  // After a jump: the stretch of S-5.
  std::optional<Stretch> closed_path() const { return closed_path_; }

  // Takes the next member of `set` that lies behind stream `i`, one entry at least between them,
  // since the last call; kNone when there is none.
  std::uint32_t take_passed(std::uint32_t i, const IndexSet& set);

 private:
  static constexpr std::uint32_t kSkips = 1;        // S-2
  static constexpr std::uint32_t kAlways = 32;      // S-2: a few entries, of a long order
  static constexpr std::uint32_t kIdleSteps = 64;   // S-4
  static constexpr std::uint32_t kIdleSignals = 4;  // S-4

  struct Stream {
    std::uint32_t at = 0;
    std::uint32_t untaken = 0;  // entries behind it that take_passed() has not gone over
    std::uint64_t idle = 0;     // steps that the others went since it moved
  };
  struct Jump {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t travel = 0;  // steps ahead since, by whichever stream
  };

  std::uint32_t step_of(std::uint32_t position) const {
    return position >= first_ ? position - first_ : position + (size() - first_);
  }
  std::uint32_t steps_back(ChunkId chunk, std::uint32_t from) const;
  bool foreseen(std::uint32_t from, std::uint32_t steps, const IndexSet& expected,
                std::uint32_t gap) const;
  void advance(Stream& stream, std::uint32_t to, std::uint32_t by);
  void jump(std::uint32_t from, std::uint32_t to, std::uint32_t gap);
  void drop_idle(std::uint32_t gap);
  void drop(std::uint32_t stream);
  void index_order();

  std::vector<ChunkId> order_;
  Occurrences places_;
  std::uint32_t first_ = 0;  // of the path
  std::uint32_t length_ = 0;
  std::array<Stream, kMost> streams_{};
  std::uint32_t count_ = 0;
  std::uint32_t latest_ = 0;
  std::optional<Jump> last_jump_;
  std::optional<Stretch> closed_path_;
  std::uint32_t advanced_ = 0;
  bool came_round_ = false;
};

// What comes next of a set of positions of the path, nearest first. Every stream looks as far as
// the next one, so nothing is named twice; where a stream is now is not named. Before the first
// signal the first entry is still to come.
class LookAhead {
 public:
  LookAhead(const Streams& streams, const IndexSet& set);

  bool next();  // false: that was all. O(log n).
  std::uint32_t position() const { return position_; }
  std::uint32_t steps() const { return steps_; }  // from the stream before it

 private:
  struct Look {
    std::uint32_t from = 0;
    std::uint32_t at = Streams::kNone;
    std::uint32_t steps = 0;
    std::uint32_t limit = 0;  // steps; at most as many means that it sees nothing more
  };

  const Streams& streams_;
  const IndexSet& set_;
  std::array<Look, Streams::kMost> looks_{};
  std::uint32_t count_ = 0;
  std::uint32_t position_ = 0;
  std::uint32_t steps_ = 0;
};

}  // namespace resid

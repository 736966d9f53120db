// `layer_order_spread`: a fixed set stays for ever, the rest passes through a window, spread evenly
// along the order (stream_plan.hpp says which and why), at up to four places at once (streams.hpp
// says where the workload is).
//
// Victims, first to last, while the workload keeps to the order:
//   V-1  What spent() names: a streamed candidate that has been passed. It will be read once more
//        whatever happens, so it costs nothing.
//   V-2  Candidates outside the order, oldest first: nothing says that they will be used at all,
//        but some are, once a token (the embedding's rows). Then the other streamed candidates, the
//        furthest next use first. Of those between two streams that is the one before the second,
//        so one look behind each stream is exact.
//   V-3  Fixed candidates, only when nothing else is left: the window was too small for what is
//        pinned or in transit. Again the furthest next use first: by age it would be the one that
//        is needed soonest, and each would push out the next, all round the order and for ever.
//        Those that the path names more than once come after the others, oldest first.
//   V-4  What a stream is reading right now, and the chunk before it where the two lie beside each
//        other: matrix kernels take a few rows at a time, so that for some microseconds they go
//        back and forth over the border.
//
// The order is declared, or, when it is not, learned:
//   L-1  Until a cycle is on record (order_record.hpp) nothing is known of the next use but that
//        what has just been read comes last in any repeating order. So the youngest candidate but
//        one goes (the youngest is being read), as Belady would have it for a scan.
//   L-2  A chunk that signals for the first time after that joins the order behind the position,
//        at the end of the cycle, since that takes O(n).
//
// An order that the workload does not keep to does harm:
//   D-1  When more than half of some 64 signals are surprises, victims go by age alone and nothing
//        is foreseen, until (D-2) over a whole cycle less than one signal in ten is a surprise to
//        the old order, or (D-3) a new one is on record and confirmed as well as that. What is
//        armed stays armed: those signals are what a return to the order is recognised by.
//   D-4  Single jumps cost what they miss and change no plan. A stretch that is read over and over
//        (streams.hpp, S-5) becomes the path, and what is outside of it goes, as V-2. A chunk
//        just outside widens the path (its ends were seen only as exactly as chunks signal); three
//        others within 64 signals bring the whole order back.
//
// It reads no signal mode: a signal after the use keeps one chunk longer than it need, the one that
// has just been read. Faults move no position (see layer_order_declared.cpp); the pager passes them
// to on_access().
//
// Without set_room() everything that is named once streams: furthest next use, as
// layer_order_declared.
//
// Allocations are in grow() and declare_sequence(). O(n) besides these: set_room(),
// set_tripwires(), and replan() when the order, its path or the mode of learning changes.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "policy/age_list.hpp"
#include "policy/index_set.hpp"
#include "policy/order_record.hpp"
#include "policy/policies.hpp"
#include "policy/stream_plan.hpp"
#include "policy/streams.hpp"
#include "policy/tripwires.hpp"

namespace resid {

namespace {

constexpr std::uint32_t kForeseen = 16;         // of spent(): streamed chunks that come before
constexpr std::int32_t kOne = 1 << 16;          // the surprise rate in fixed point
constexpr std::int32_t kMemory = 64;            // signals that it remembers, about
constexpr std::uint32_t kLearned = 8;           // signals that confirm a first order
constexpr std::uint32_t kRelearned = 64;        // D-3
constexpr std::size_t kStrangers = 3;           // D-4
constexpr std::uint64_t kStrangersWithin = 64;  // D-4: signals

class LayerOrderSpread final : public Policy {
 public:
  using Mode = OrderReport::Mode;

  std::string_view name() const override { return "layer_order_spread"; }
  void grow(std::span<const std::uint32_t> bytes) override;
  void declare_sequence(std::span<const ChunkId> sequence) override;
  void set_signal_mode(SignalMode /*mode*/) override {}
  void set_protect_current(bool on) override { protect_ = on; }

  void on_fault(ChunkId chunk) override {
    if (known(chunk)) touch(chunk);
  }
  void on_access(ChunkId chunk) override;
  void candidate(ChunkId chunk) override;
  void withdraw(ChunkId chunk) override;

  ChunkId select_victim() override;
  ChunkId predict_next(ChunkId chunk) const override;
  std::size_t upcoming(std::span<ChunkId> out) const override;
  std::int64_t next_use_distance(ChunkId chunk) const override;

  void set_room(std::uint64_t budget, std::uint64_t window) override;
  bool plans() const override { return mode_ == Mode::cyclic && budget_ != 0; }
  bool streams_neighbours() const override { return plan_.neighbours(); }
  bool keeps(ChunkId chunk) const override {
    return plans() && known(chunk) && plan_.part(chunk) == Part::fixed;
  }
  ChunkId spent() override;
  void set_tripwires(std::uint32_t most) override;
  std::size_t to_arm(std::span<ChunkId> out) override;
  OrderReport order_report() const override;

 private:
  // IndexSets over positions of the order.
  struct Places {
    IndexSet streamed;
    IndexSet resident;  // of these, the candidates
    IndexSet missing;   // and the others, which cannot be read in silence
    IndexSet kept;      // fixed candidates that the path names once
    IndexSet armed;     // tripwires

    void resize(std::uint32_t entries) {
      for (IndexSet* set : {&streamed, &resident, &missing, &kept, &armed})
        set->resize(entries);
    }
  };
  struct Stranger {  // D-4
    ChunkId chunk = kNoChunk;
    std::uint64_t seen = 0;  // by count of signals
  };
  struct Trial {  // D-2
    std::uint64_t signals = 0;
    std::uint64_t surprises = 0;
    std::uint64_t travel = 0;
  };

  // Ids that grow() has not made room for are ignored everywhere.
  bool known(ChunkId chunk) const { return chunk < bytes_.size(); }
  std::uint32_t place(ChunkId chunk) const { return streams_.ahead(chunk, streams_.path().first); }

  void touch(ChunkId chunk);
  void join_part(ChunkId chunk);
  void leave_part(ChunkId chunk);
  void replan();

  bool named_once(ChunkId chunk) const {
    return streams_.ahead(chunk, streams_.following(place(chunk))) == place(chunk);
  }
  // Of the candidates at these places.
  ChunkId furthest(const IndexSet& places) const;
  bool is_read(ChunkId chunk) const;

  void follow(ChunkId chunk);
  bool admit_stranger(ChunkId chunk);
  void fall_back(ChunkId chunk);
  void watch(ChunkId chunk);
  void adopt_record(ChunkId chunk);
  void wait_to_join(ChunkId chunk);
  void merge_joiners();
  void count_step(Streams::Step step);

  std::vector<std::uint32_t> bytes_;  // by chunk
  std::uint32_t entries_ = 0;         // room for that long an order
  std::uint64_t budget_ = 0;
  std::uint64_t window_ = 0;
  std::uint32_t tripwires_ = 0;
  bool protect_ = false;

  Streams streams_;
  StreamPlan plan_;
  Places places_;
  AgeList all_;      // every candidate
  AgeList outside_;  // those outside the path
  AgeList shared_;   // fixed ones that the path names more than once

  Mode mode_ = Mode::learning;
  bool learned_ = false;  // the order is not a declared one
  OrderRecord record_;
  std::uint64_t record_restarts_ = 0;  // when the recording began
  std::vector<Joiner> joiners_;        // L-2
  std::vector<bool> waits_;            // by chunk: among the joiners
  std::int32_t surprise_rate_ = 0;
  Trial trial_;
  std::array<Stranger, kStrangers> strangers_{};
  std::uint32_t border_ = 0;  // D-4: how inexactly the ends of the path were seen

  OrderReport counts_;  // what only counts
};

// ---- What there is

void LayerOrderSpread::grow(std::span<const std::uint32_t> bytes) {
  if (bytes.size() < bytes_.size()) return;
  const auto chunks = static_cast<std::uint32_t>(bytes.size());
  const std::uint32_t entries = std::max(entries_, chunks);
  // All memory first. What has grown when a later one throws does no harm: bytes_ says what counts.
  std::vector<std::uint32_t> sizes(bytes.begin(), bytes.end());
  Places places;
  places.resize(entries);
  all_.grow(chunks);
  outside_.grow(chunks);
  shared_.grow(chunks);
  plan_.grow(chunks);
  streams_.grow(chunks, entries);
  record_.grow(chunks);
  joiners_.reserve(chunks);
  waits_.resize(chunks, false);
  bytes_.swap(sizes);
  std::swap(places_, places);
  entries_ = entries;
  replan();
}

void LayerOrderSpread::declare_sequence(std::span<const ChunkId> sequence) {
  std::vector<ChunkId> order;
  order.reserve(sequence.size());
  for (const ChunkId chunk : sequence) {
    if (known(chunk)) order.push_back(chunk);
  }
  const auto size = static_cast<std::uint32_t>(order.size());
  if (size > entries_) {
    Places places;
    places.resize(size);
    streams_.grow(0, size);
    std::swap(places_, places);
    entries_ = size;
  }
  streams_.assign(order);
  mode_ = order.empty() ? Mode::learning : Mode::cyclic;
  learned_ = false;
  record_.restart();
  record_restarts_ = record_.restarts();
  joiners_.clear();
  std::fill(waits_.begin(), waits_.end(), false);
  surprise_rate_ = 0;
  replan();
}

void LayerOrderSpread::set_room(std::uint64_t budget, std::uint64_t window) {
  if (budget == budget_ && window == window_) return;
  budget_ = budget;
  window_ = window;
  if (counts_.signals != 0) ++counts_.replans;
  replan();
}

void LayerOrderSpread::set_tripwires(std::uint32_t most) {
  if (most == tripwires_) return;
  tripwires_ = most;
  choose_tripwires(streams_, plan_, tripwires_, places_.armed);
}

void LayerOrderSpread::replan() {
  plan_.make(streams_.path(), bytes_, budget_, window_);
  outside_.clear();
  shared_.clear();
  places_.streamed.clear();
  places_.resident.clear();
  places_.missing.clear();
  places_.kept.clear();
  const Path path = streams_.path();
  for (std::uint32_t step = 0; step < path.length; ++step) {
    if (plan_.part(path.chunk(step)) != Part::streamed) continue;
    places_.streamed.insert(path.position(step));
    places_.missing.insert(path.position(step));
  }
  for (ChunkId chunk = all_.oldest(); chunk != kNoChunk; chunk = all_.younger(chunk))
    join_part(chunk);
  choose_tripwires(streams_, plan_, tripwires_, places_.armed);
}

// ---- Candidates

void LayerOrderSpread::touch(ChunkId chunk) {
  if (!all_.contains(chunk)) return;
  all_.touch(chunk);
  if (outside_.contains(chunk)) outside_.touch(chunk);
  if (shared_.contains(chunk)) shared_.touch(chunk);
}

void LayerOrderSpread::join_part(ChunkId chunk) {
  switch (plan_.part(chunk)) {
    case Part::outside:
      outside_.push(chunk);
      break;
    case Part::fixed:
      if (named_once(chunk)) {
        places_.kept.insert(place(chunk));
      } else {
        shared_.push(chunk);
      }
      break;
    case Part::streamed:
      places_.resident.insert(place(chunk));
      places_.missing.erase(place(chunk));
  }
}

void LayerOrderSpread::leave_part(ChunkId chunk) {
  switch (plan_.part(chunk)) {
    case Part::outside:
      outside_.erase(chunk);
      break;
    case Part::fixed:
      if (shared_.contains(chunk)) {
        shared_.erase(chunk);
      } else {
        places_.kept.erase(place(chunk));
      }
      break;
    case Part::streamed:
      places_.resident.erase(place(chunk));
      places_.missing.insert(place(chunk));
  }
}

void LayerOrderSpread::candidate(ChunkId chunk) {
  if (!known(chunk) || all_.contains(chunk)) return;
  all_.push(chunk);
  join_part(chunk);
}

void LayerOrderSpread::withdraw(ChunkId chunk) {
  if (!known(chunk) || !all_.contains(chunk)) return;
  all_.erase(chunk);
  leave_part(chunk);
}

// ---- Victims

bool LayerOrderSpread::is_read(ChunkId chunk) const {
  for (std::uint32_t s = 0; s < streams_.count(); ++s) {
    const std::uint32_t at = streams_.position(s);
    if (streams_.chunk_at(at) == chunk) return true;
    const ChunkId before = streams_.chunk_at(streams_.preceding(at));
    if (before == chunk && (protect_ || chunk + 1 == streams_.chunk_at(at))) return true;
  }
  return false;
}

// V-2
ChunkId LayerOrderSpread::furthest(const IndexSet& places) const {
  if (streams_.count() == 0) {
    const std::uint32_t at = places.previous_around(streams_.path().first);
    return at == IndexSet::kNone ? kNoChunk : streams_.chunk_at(at);
  }
  ChunkId furthest = kNoChunk;
  std::uint32_t most = 0;
  for (std::uint32_t s = 0; s < streams_.count(); ++s) {
    std::uint32_t at = places.previous_around(streams_.position(s));
    if (at == IndexSet::kNone) return kNoChunk;
    // At most as many are protected as there are places to read at, and as many before them.
    for (std::uint32_t i = 0; i < 2 * Streams::kMost && is_read(streams_.chunk_at(at)); ++i)
      at = places.previous_around(at);
    const ChunkId chunk = streams_.chunk_at(at);
    const std::uint32_t distance = is_read(chunk) ? 0 : streams_.distance(chunk);
    if (furthest != kNoChunk && distance <= most) continue;
    furthest = chunk;
    most = distance;
  }
  return furthest;
}

ChunkId LayerOrderSpread::select_victim() {
  if (mode_ == Mode::recency) return all_.oldest();
  if (mode_ == Mode::learning) {  // L-1
    const ChunkId youngest = all_.youngest();
    if (youngest == kNoChunk) return kNoChunk;
    const ChunkId next = all_.older(youngest);
    return next == kNoChunk ? youngest : next;
  }
  if (const ChunkId chunk = spent(); chunk != kNoChunk) return chunk;
  if (const ChunkId chunk = outside_.oldest(); chunk != kNoChunk) return chunk;
  const ChunkId streamed = furthest(places_.resident);
  if (streamed != kNoChunk && !is_read(streamed)) return streamed;
  const ChunkId kept = furthest(places_.kept);
  if (kept != kNoChunk && !is_read(kept)) return kept;
  ChunkId shared = shared_.oldest();
  // The streams are few.
  while (shared != kNoChunk && is_read(shared))
    shared = shared_.younger(shared);
  if (shared != kNoChunk) return shared;
  if (streamed != kNoChunk) return streamed;
  return kept != kNoChunk ? kept : shared_.oldest();
}

std::size_t LayerOrderSpread::upcoming(std::span<ChunkId> out) const {
  if (mode_ == Mode::learning) return record_.upcoming(out);
  if (mode_ != Mode::cyclic || out.empty()) return 0;
  std::size_t count = 0;
  for (LookAhead look(streams_, places_.streamed); count < out.size() && look.next();)
    out[count++] = streams_.chunk_at(look.position());
  return count;
}

ChunkId LayerOrderSpread::spent() {
  if (mode_ != Mode::cyclic || streams_.count() == 0) return kNoChunk;
  const ChunkId chunk = furthest(places_.resident);
  // Room is short when anything streams; then what is outside the order goes before what is fixed.
  const ChunkId outside = plan_.streamed() == 0 ? kNoChunk : outside_.oldest();
  if (chunk == kNoChunk || is_read(chunk)) return outside;
  // Where less streams than that, what comes in the first half of the cycle.
  std::uint32_t left = std::min(kForeseen, plan_.streamed() / 2);
  std::uint32_t foreseen = 0;
  for (LookAhead look(streams_, places_.streamed); left != 0 && look.next(); --left)
    foreseen = look.steps();
  return streams_.distance(chunk) > foreseen ? chunk : outside;
}

ChunkId LayerOrderSpread::predict_next(ChunkId chunk) const {
  if (mode_ == Mode::learning || !known(chunk) || !streams_.in_path(chunk)) return kNoChunk;
  const std::uint32_t from = streams_.count() == 0 ? streams_.path().first : streams_.latest();
  return streams_.chunk_at(streams_.following(streams_.ahead(chunk, from)));
}

std::int64_t LayerOrderSpread::next_use_distance(ChunkId chunk) const {
  if (mode_ != Mode::cyclic || !known(chunk) || !streams_.in_path(chunk)) return kNeverUsed;
  return is_read(chunk) ? 0 : std::int64_t{streams_.distance(chunk)};
}

std::size_t LayerOrderSpread::to_arm(std::span<ChunkId> out) {
  std::size_t count = 0;
  for (std::uint32_t s = 0; s < streams_.count(); ++s) {
    while (count < out.size()) {
      const std::uint32_t at = streams_.take_passed(s, places_.armed);
      if (at == Streams::kNone) break;
      out[count++] = streams_.chunk_at(at);
    }
  }
  return count;
}

OrderReport LayerOrderSpread::order_report() const {
  OrderReport report = counts_;
  report.mode = mode_;
  report.streams = streams_.count();
  report.fixed_bytes = plan_.fixed_bytes();
  report.streamed_bytes = plan_.streamed_bytes();
  return report;
}

// ---- Signals

void LayerOrderSpread::on_access(ChunkId chunk) {
  if (!known(chunk)) return;
  touch(chunk);
  ++counts_.signals;
  switch (mode_) {
    case Mode::cyclic:
      follow(chunk);
      break;
    case Mode::learning:
      record_.note(chunk);
      if (record_.closed(kLearned)) {
        adopt_record(chunk);
      } else if (record_.restarts() != record_restarts_) {
        fall_back(chunk);
      }
      break;
    case Mode::recency:
      record_.note(chunk);
      watch(chunk);
      if (mode_ == Mode::recency && record_.closed(kRelearned)) adopt_record(chunk);
      break;
    case Mode::none:
      break;
  }
}

void LayerOrderSpread::count_step(Streams::Step step) {
  if (step == Streams::Step::jump) ++counts_.surprises;
  if (streams_.came_round()) ++counts_.cycles;
}

void LayerOrderSpread::follow(ChunkId chunk) {
  if (!streams_.in_order(chunk)) {
    if (learned_) wait_to_join(chunk);
    return;
  }
  if (!streams_.in_path(chunk) && !admit_stranger(chunk)) return;
  const Streams::Step step = streams_.signal(chunk, places_.missing, plan_.widest_gap());
  count_step(step);
  const bool surprise = step == Streams::Step::jump;
  surprise_rate_ += ((surprise ? kOne : 0) - surprise_rate_) / kMemory;
  if (surprise_rate_ > kOne / 2) {
    fall_back(chunk);
  } else if (const auto stretch = streams_.closed_path()) {
    border_ = std::max(border_, kStepBack + plan_.widest_gap());
    strangers_ = {};
    streams_.restrict(*stretch);
    ++counts_.replans;
    replan();
  } else if (streams_.came_round() && !joiners_.empty()) {
    merge_joiners();
  }
}

// D-4. The chunk is in the order and outside the path; says whether it is in the path now.
bool LayerOrderSpread::admit_stranger(ChunkId chunk) {
  if (const auto stretch = streams_.extended(chunk, border_)) {
    streams_.restrict(*stretch);
  } else {
    Stranger* oldest = &strangers_[0];
    for (Stranger& each : strangers_) {
      if (each.chunk == chunk) {
        oldest = &each;
        break;
      }
      if (each.seen < oldest->seen) oldest = &each;
    }
    *oldest = {chunk, counts_.signals};
    for (const Stranger& each : strangers_) {
      if (each.chunk == kNoChunk || each.seen + kStrangersWithin < counts_.signals) return false;
    }
    streams_.widen();
  }
  ++counts_.replans;
  replan();
  return true;
}

void LayerOrderSpread::wait_to_join(ChunkId chunk) {
  if (waits_[chunk] || streams_.count() == 0) return;
  waits_[chunk] = true;
  joiners_.push_back({streams_.latest(), static_cast<std::uint32_t>(joiners_.size()), chunk});
}

void LayerOrderSpread::merge_joiners() {
  std::sort(joiners_.begin(), joiners_.end(), [](const Joiner& a, const Joiner& b) {
    return a.after != b.after ? a.after < b.after : a.nth < b.nth;
  });
  streams_.join(joiners_);
  for (const Joiner& joiner : joiners_)
    waits_[joiner.chunk] = false;
  joiners_.clear();
  ++counts_.replans;
  replan();
}

// D-1
void LayerOrderSpread::fall_back(ChunkId chunk) {
  mode_ = Mode::recency;
  ++counts_.fallbacks;
  trial_ = {};
  record_.restart();
  record_.note(chunk);
  if (streams_.whole()) return;
  streams_.widen();
  ++counts_.replans;
  replan();
}

// D-2
void LayerOrderSpread::watch(ChunkId chunk) {
  if (!streams_.in_path(chunk)) return;
  const Streams::Step step = streams_.signal(chunk, places_.missing, plan_.widest_gap());
  count_step(step);
  ++trial_.signals;
  trial_.travel += streams_.advanced();
  if (step == Streams::Step::jump) ++trial_.surprises;
  // A trial that began in the disorder is given up, so that it does not weigh on what follows.
  if (trial_.surprises * 10 > trial_.signals + 10) trial_ = {};
  const std::uint64_t least = std::min<std::uint64_t>(kRelearned, streams_.length());
  if (trial_.signals < least || trial_.travel < streams_.length()) return;
  if (trial_.surprises * 10 >= trial_.signals) {
    trial_ = {};
    return;
  }
  mode_ = Mode::cyclic;
  surprise_rate_ = 0;
}

// L-1, D-3
void LayerOrderSpread::adopt_record(ChunkId chunk) {
  streams_.assign(record_.entries());
  streams_.start(streams_.ahead(chunk, 0));
  learned_ = true;
  mode_ = Mode::cyclic;
  surprise_rate_ = 0;
  for (const Joiner& joiner : joiners_)
    waits_[joiner.chunk] = false;
  joiners_.clear();
  record_.restart();
  ++counts_.replans;
  replan();
}

}  // namespace

std::unique_ptr<Policy> make_layer_order_spread() {
  return std::make_unique<LayerOrderSpread>();
}

}  // namespace resid

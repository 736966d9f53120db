#include "trace/bounds.hpp"

#include <algorithm>
#include <bit>
#include <compare>
#include <tuple>
#include <utility>

#include "trace/belady.hpp"
#include "trace/use_set.hpp"

namespace resid::solver {

namespace {

// How many victims are looked at for the one that wastes least.
constexpr unsigned kWindow = 8;
// A schedule is improved by itself so often at most; the second time seldom finds anything.
constexpr int kRounds = 2;
// 2^kExactChunks sets of chunks, kExactSteps of them over all accesses: a tenth of a second.
constexpr std::uint32_t kExactChunks = 16;
constexpr std::uint64_t kExactSteps = std::uint64_t{1} << 25;

}  // namespace

// Belady's rule on bytes. At every access what is resident must fit; what is too much is taken from
// the stays that end last.
//
// Why this is the optimum of the relaxed problem: for every stay I let y(I) <= its chunk's bytes be
// what is kept of it. The constraints are, for every position t, that what is kept of the stays
// across t fits beside the chunk accessed at t; the sum of all y is to be largest. Let G be our
// choice after position t, G' before it (what is cut is never given back, so G <= G', and G' fits
// at every position before t). Claim: some optimum O has O <= G for every stay; at the end O = G
// follows, since G fits everywhere. By induction O <= G'. Where O > G for a stay I, I crosses t and
// was cut there, so G fills t to the brim and O, which fits, must have less than G of another stay
// J across t. J has bytes left in G although I was cut, so I ends no earlier than J. Move one byte
// in O from I to J. From t on, J takes room only where I has given it up. Before t, O is still <=
// G', which fits. So O stays feasible and optimal, and is by one byte less above G. Repeat.
//
// A schedule of whole chunks keeps all or nothing of each stay, so it is one of those compared.
Schedule relaxed_optimum(const Problem& p, const Tick& tick) {
  const auto n = static_cast<std::uint32_t>(p.accesses.size());
  UseSet live(n);                                         // next uses of what is resident in part
  std::vector<std::uint32_t> held(p.chunk_bytes.size());  // resident bytes of those
  std::uint64_t used = 0;
  Schedule result;
  result.kept.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i % kStride == 0) tick(i);
    const std::uint32_t chunk = p.accesses[i];
    const std::uint32_t bytes = p.chunk_bytes[chunk];
    std::uint32_t present = 0;
    if (live.contains(i)) {
      present = held[chunk];
      live.erase(i);
    }
    const bool whole = present == bytes;
    result.kept[i] = whole;
    if (!whole) ++result.misses;
    result.bytes += bytes - present;
    used += bytes - present;
    while (used > p.capacity) {
      const std::uint32_t last = live.furthest();
      std::uint32_t& victim = held[p.accesses[last]];
      const auto taken =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(victim, used - p.capacity));
      victim -= taken;
      used -= taken;
      if (victim == 0) live.erase(last);
    }
    if (p.next[i] == kNeverAgain) {
      used -= bytes;
    } else {
      held[chunk] = bytes;
      live.insert(p.next[i]);
    }
  }
  return result;
}

Schedule whole_schedule(const Problem& p, const std::vector<bool>& must, unsigned window,
                        const Tick& tick) {
  const auto n = static_cast<std::uint32_t>(p.accesses.size());
  UseSet optional(n);  // next uses of what is resident and may go
  std::uint64_t used = 0;
  Schedule result;
  result.kept.resize(n);
  const auto size_at = [&](std::uint32_t at) { return p.chunk_bytes[p.accesses[at]]; };
  const auto victim = [&] {
    const std::uint64_t excess = used - p.capacity;
    const std::uint32_t furthest = optional.furthest();
    std::uint32_t best = UseSet::kNone;
    std::uint32_t at = furthest;
    for (unsigned seen = 0; seen < window && at != UseSet::kNone; ++seen) {
      const bool enough = size_at(at) >= excess;
      if (enough && (best == UseSet::kNone || size_at(at) < size_at(best))) best = at;
      at = optional.before(at);
    }
    return best == UseSet::kNone ? furthest : best;
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i % kStride == 0) tick(i);
    const std::uint32_t bytes = size_at(i);
    bool hit = !must.empty() && must[i];
    if (!hit && optional.contains(i)) {
      hit = true;
      optional.erase(i);
    }
    result.kept[i] = hit;
    if (!hit) {
      ++result.misses;
      result.bytes += bytes;
      used += bytes;
      // What must stay fits beside any access, so there is always something optional to give up.
      while (used > p.capacity) {
        const std::uint32_t out = victim();
        optional.erase(out);
        used -= size_at(out);
      }
    }
    const std::uint32_t next = p.next[i];
    if (next == kNeverAgain) {
      used -= bytes;
    } else if (must.empty() || !must[next]) {
      optional.insert(next);
    }
  }
  return result;
}

Schedule best_schedule(const Problem& p, const Schedule& relaxed, const Tick& tick) {
  Schedule best = whole_schedule(p, {}, 1, tick);
  const auto take = [&](Schedule other) {
    if (other.bytes >= best.bytes) return false;
    best = std::move(other);
    return true;
  };
  const auto optimal = [&] { return best.bytes == relaxed.bytes; };
  if (!optimal()) take(whole_schedule(p, {}, kWindow, tick));
  // The relaxed optimum rounded down: what it keeps whole stays, the rest fills the gaps.
  if (!optimal()) take(whole_schedule(p, relaxed.kept, 1, tick));
  if (!optimal()) take(whole_schedule(p, relaxed.kept, kWindow, tick));
  // Evicted late, a chunk has kept others out for nothing: what the best schedule keeps, kept from
  // the start, may leave room for more.
  for (int round = 0; round < kRounds && !optimal(); ++round) {
    if (!take(whole_schedule(p, best.kept, kWindow, tick))) break;
  }
  return best;
}

// After the access at i, `best[set]` is the most that can have been saved so far if the stays kept
// across that moment are those of the chunks in `set`. A stay is either kept from its first moment
// or never, so each access offers one choice: to keep the stay that begins, or not.
std::optional<Schedule> exact_schedule(const Problem& p) {
  std::vector<std::uint32_t> distinct(p.accesses.begin(), p.accesses.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() > kExactChunks) return std::nullopt;
  const std::size_t sets = std::size_t{1} << distinct.size();
  if (p.accesses.size() > kExactSteps / sets) return std::nullopt;

  struct Saved {
    std::uint64_t bytes = 0;
    std::uint64_t hits = 0;
    bool possible = false;
    auto operator<=>(const Saved& other) const {
      return std::tie(possible, bytes, hits) <=> std::tie(other.possible, other.bytes, other.hits);
    }
    bool operator==(const Saved&) const = default;
  };
  std::vector<std::uint64_t> weight(sets, 0);
  for (std::size_t set = 1; set < sets; ++set) {
    const std::size_t rest = set & (set - 1);
    const auto lowest = static_cast<std::size_t>(std::countr_zero(set));
    weight[set] = weight[rest] + p.chunk_bytes[distinct[lowest]];
  }
  std::vector<Saved> best(sets);
  best[0].possible = true;
  Schedule result;
  for (std::size_t i = 0; i < p.accesses.size(); ++i) {
    const auto found = std::lower_bound(distinct.begin(), distinct.end(), p.accesses[i]);
    const std::size_t bit = std::size_t{1} << (found - distinct.begin());
    const std::uint64_t bytes = p.chunk_bytes[*found];
    result.bytes += bytes;
    ++result.misses;
    for (std::size_t set = 0; set < sets; ++set) {
      if ((set & bit) != 0) continue;
      Saved& without = best[set];
      Saved& with = best[set | bit];
      Saved kept = with;
      kept.bytes += bytes;
      ++kept.hits;
      // After the chunk's last access the set with it is never better, and does no harm.
      without = weight[set | bit] > p.capacity ? Saved{} : std::max(without, kept);
      with = without;
    }
  }
  const Saved most = *std::max_element(best.begin(), best.end());
  result.bytes -= most.bytes;
  result.misses -= most.hits;
  return result;
}

}  // namespace resid::solver

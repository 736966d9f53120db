#include "expert/routing_hits.hpp"

#include <algorithm>
#include <new>
#include <numeric>

#include <fmt/format.h>

#include "expert/routing_checks.hpp"
#include "policy/expert_ranking.hpp"

namespace resid {

double RoutingHits::rate() const {
  const std::uint64_t all = std::accumulate(hits.begin(), hits.end(), std::uint64_t{0});
  return static_cast<double>(all) / (static_cast<double>(asked) * static_cast<double>(hits.size()));
}

namespace routing {

Result<void> check(const RoutingTrace& trace, const ExpertRoom& room) {
  if (trace.tokens.empty()) return fail(Status::usage, "routing trace", "there is no token");
  if (room.caps.size() != trace.layers.size()) {
    return fail(
        Status::usage, "cap",
        fmt::format("{} caps for a trace of {} layers", room.caps.size(), trace.layers.size()),
        "give one for each layer");
  }
  for (const std::uint32_t cap : room.caps) {
    if (cap == 0) {
      return fail(Status::usage, "cap", "no room for a single expert", "give 1 or more");
    }
  }
  return {};
}

std::uint64_t pool_cap(const ExpertRoom& room) {
  return std::accumulate(room.caps.begin(), room.caps.end(), std::uint64_t{0});
}

}  // namespace routing

namespace {

RoutingHits run(const RoutingTrace& trace, ExpertRanking& ranking, const ExpertRoom& room) {
  const std::size_t layers = trace.layers.size();
  std::vector<ExpertCache> caches;
  if (room.pool) {
    const auto all = static_cast<std::uint32_t>(layers * trace.experts);
    const auto cap =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(routing::pool_cap(room), all));
    caches.emplace_back(all, cap, room.hold);
  } else {
    for (const std::uint32_t cap : room.caps)
      caches.emplace_back(trace.experts, cap, room.hold);
  }
  RoutingHits out{std::vector<std::uint64_t>(layers, 0), trace.tokens.size() * trace.used};
  for (std::size_t token = 0; token < trace.tokens.size(); ++token) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const auto chosen = trace.choice(token, layer);
      ExpertCache& cache = room.pool ? caches.front() : caches[layer];
      const std::uint32_t offset = room.pool ? layer * trace.experts : 0;
      const auto worth = room.pool ? ranking.worth() : ranking.worth(layer);
      ranking.choose(layer, chosen);
      cache.begin(chosen, offset);
      for (const ExpertId expert : chosen) {
        out.hits[layer] += cache.use(offset + expert, worth).hit ? 1 : 0;
        ranking.use(layer, expert);
      }
    }
  }
  return out;
}

}  // namespace

Result<RoutingHits> routing_hits(const RoutingTrace& trace, std::string_view ranking,
                                 const ExpertRoom& room) try {
  if (auto ok = routing::check(trace, room); !ok) return tl::unexpected(ok.error());
  ExpertShape shape;
  shape.layers = static_cast<std::uint32_t>(trace.layers.size());
  shape.experts = trace.experts;
  shape.used = trace.used;
  auto made = make_expert_ranking(ranking, shape);
  if (!made) return tl::unexpected(made.error());
  return run(trace, **made, room);
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "routing trace", "no memory to judge it");
}

}  // namespace resid

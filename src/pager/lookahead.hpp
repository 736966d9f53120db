#pragma once
// One file's lookahead, shared by the threads that compute with it.

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "sense/lookahead_switch.hpp"
#include "sense/router_lookahead.hpp"

namespace resid {

struct Lookahead {
  Lookahead(std::unique_ptr<RouterLookahead> guesser, LookaheadSwitch::Mode mode)
      : router(std::move(guesser)), pays(mode) {}

  // Not the accounting lock: a guess takes longer than anything that is done under that one.
  // Whoever finds it taken (a second context of the same program) goes without a guess.
  std::mutex mutex;
  std::unique_ptr<RouterLookahead> router;
  LookaheadSwitch pays;
  std::uint64_t token_began_ns = 0;  // of the last token; 0: none since a long batch
  std::thread::id owner;             // whose states the guesses are of
};

}  // namespace resid

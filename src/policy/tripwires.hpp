#pragma once
// Which resident chunks are to tell of their first touch, so that the position is known between two
// streamed chunks, too.
//
// Invariants:
//   T-1  First the chunk that follows each streamed one: its touch says that the streamed one has
//        been read and may go. Then others, evenly along the path.
//   T-2  Only chunks that stay and that the path names once: the streamed ones signal anyway, and a
//        touch of one that is named again would not tell the place.
//   T-3  At most as many as asked for, and all of those when there are so many.

#include <cstdint>

#include "policy/index_set.hpp"
#include "policy/stream_plan.hpp"
#include "policy/streams.hpp"

namespace resid {

// Replaces the positions in `armed`, whose bound is the order's size at least. O(n log n) at worst,
// allocates nothing.
void choose_tripwires(const Streams& streams, const StreamPlan& plan, std::uint32_t most,
                      IndexSet& armed);

}  // namespace resid

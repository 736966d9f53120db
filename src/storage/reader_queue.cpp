#include "storage/reader_queue.hpp"

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"

namespace resid {
namespace {

// How often in a row the kernel may put an attempt off (EAGAIN and the like) before it counts as
// failed.
constexpr std::uint32_t kRefusalsMost = 64;

// What of a request a direct read can have; nothing once it is tried again, buffered.
ReadExtent extent_of(const ReadRequest& request) {
  ReadExtent extent = request.store->extent(request.offset, request.bytes);
  if (request.outcome.retried) extent.direct = 0;
  return extent;
}

bool stop(ReadPiece& piece, Status status, int error) {
  piece.outcome = {status, error, piece.at(), false};
  return false;
}

}  // namespace

// ---- From the caller

void QueuedReader::submit(ReadRequest& request) {
  request.outcome = {};
  request.began_ns = 0;
  request.ended_ns = 0;
  request.started_bytes = 0;
  request.in_flight = 0;
  request.failed = false;
  request.hopeless = false;
  // Nothing to read is no reason to call done() here: the caller may hold a lock of its own.
  const bool nothing = extent_of(request).bytes == 0;
  request.queued = !nothing;
  Lock held = lock();
  if (nothing) {
    request.began_ns = request.ended_ns = now_ns();
    over_.push_back(request);
  } else {
    queue_of(request).push_back(request);
  }
  added(std::move(held));
}

void QueuedReader::urge(ReadRequest& request) {
  const Lock held = lock();
  if (request.urgent) return;
  if (request.queued) {
    other_.remove(request);
    urgent_.push_back(request);
  }
  // Also where nothing is queued: it may still have to be tried again.
  request.urgent = true;
}

ReaderStats QueuedReader::stats() const {
  const Lock held = lock();
  return stats_;
}

// ---- Pieces

bool QueuedReader::take(const Lock& lock, ReadPiece& piece) {
  if (!queued(lock)) return false;
  RequestList& queue = urgent_.empty() ? other_ : urgent_;
  ReadRequest* request = queue.front();
  ReadExtent extent = extent_of(*request);
  piece.store = request->store;
  piece.direct = request->started_bytes < extent.direct;
  piece.offset = request->offset + request->started_bytes;
  piece.bytes = 0;
  piece.done = 0;
  piece.part_count = 0;
  piece.refusals = 0;
  piece.outcome = {};
  const std::uint64_t now = now_ns();
  for (;;) {
    const std::uint64_t started = request->started_bytes;
    const std::uint64_t limit = piece.direct ? extent.direct : extent.bytes;
    const std::uint64_t bytes = std::min(limit - started, piece_bytes_ - piece.bytes);
    piece.parts[piece.part_count++] = {request, request->into + started, bytes};
    piece.bytes += bytes;
    request->started_bytes += bytes;
    ++request->in_flight;
    if (request->began_ns == 0) request->began_ns = now;
    if (started == 0 && bytes < extent.bytes) ++stats_.split;
    if (request->started_bytes < extent.bytes) break;
    queue.remove(*request);
    request->queued = false;
    // What is tried again goes alone, so that its neighbours do not share its fate.
    ReadRequest* neighbour = queue.front();
    if (neighbour == nullptr || request->outcome.retried || neighbour->outcome.retried) break;
    if (piece.part_count == ReadPiece::kPartsMost || piece.bytes == piece_bytes_) break;
    if (neighbour->store != piece.store || neighbour->started_bytes != 0) break;
    if (neighbour->offset != piece.offset + piece.bytes) break;
    extent = extent_of(*neighbour);
    if (piece.direct != (extent.direct != 0)) break;
    request = neighbour;
    ++stats_.merged;
  }
  ++stats_.pieces;
  stats_.most_in_flight = std::max(stats_.most_in_flight, ++in_flight_);
  return true;
}

bool QueuedReader::prepare(ReadPiece& piece) {
  // Before every piece: which one of a request starts first is not known here.
  if (piece.done == 0 && piece.refusals == 0 && piece.store->check_identity() != Status::ok) {
    return stop(piece, Status::store_changed, 0);
  }
  const std::uint64_t left = piece.bytes - piece.done;
  if (const int injected = injected_read_fault(piece.at(), left, piece.direct)) {
    return stop(piece, Status::read_failed, injected == kShortRead ? 0 : injected);
  }
  piece.memory_count = 0;
  std::uint64_t skip = piece.done;
  for (const ReadPiece::Part& part : std::span(piece.parts.data(), piece.part_count)) {
    if (skip >= part.bytes) {
      skip -= part.bytes;
      continue;
    }
    std::uint8_t* into = part.into + skip;
    const std::size_t bytes = part.bytes - skip;
    skip = 0;
    iovec* last = piece.memory_count == 0 ? nullptr : &piece.memory[piece.memory_count - 1];
    if (last != nullptr && static_cast<std::uint8_t*>(last->iov_base) + last->iov_len == into) {
      last->iov_len += bytes;
    } else {
      piece.memory[piece.memory_count++] = {into, bytes};
    }
  }
  return true;
}

bool QueuedReader::advance(ReadPiece& piece, std::int64_t result) {
  if (result < 0) {
    const bool put_off = result == -EINTR || result == -EAGAIN || result == -ECANCELED;
    if (put_off && ++piece.refusals <= kRefusalsMost) return true;
    return stop(piece, Status::read_failed, static_cast<int>(-result));
  }
  piece.refusals = 0;
  const auto got = static_cast<std::uint64_t>(result);
  if (!piece.store->advance(got, piece.bytes, piece.direct, piece.done)) {
    return stop(piece, Status::read_failed, 0);
  }
  return piece.done < piece.bytes;
}

bool QueuedReader::end(const Lock&, ReadPiece& piece) {
  const std::uint64_t now = now_ns();
  const ReadOutcome& outcome = piece.outcome;
  bool again = false;
  std::uint64_t begin = 0;
  for (const ReadPiece::Part& part : std::span(piece.parts.data(), piece.part_count)) {
    ReadRequest& request = *part.request;
    const std::uint64_t end = begin + part.bytes;
    const bool had = outcome.status == Status::ok ||
                     (outcome.status == Status::read_failed && end <= piece.done);
    if (!had) {
      const bool changed = outcome.status == Status::store_changed;
      const bool hopeless = changed || !piece.direct;  // only direct reads are tried again
      // The first failure is the one that is told, unless it can still be mended.
      if (!request.failed || (hopeless && !request.hopeless)) {
        request.outcome.status = outcome.status;
        request.outcome.error = outcome.error;
        request.outcome.offset =
            changed ? request.offset : std::max(outcome.offset, piece.offset + begin);
      }
      request.failed = true;
      request.hopeless = request.hopeless || hopeless;
      if (request.queued) queue_of(request).remove(request);
      request.queued = false;
    }
    begin = end;
    request.ended_ns = now;
    if (--request.in_flight == 0 && !request.queued) again |= settle(request);
  }
  --in_flight_;
  return again;
}

// Nothing of it is in flight nor waits to be.
bool QueuedReader::settle(ReadRequest& request) {
  if (request.failed && !request.hopeless) {
    // whole, and in front of its queue, where it has been once already.
    request.failed = false;
    request.started_bytes = 0;
    request.outcome = {};
    request.outcome.retried = true;
    request.queued = true;
    queue_of(request).push_front(request);
    ++stats_.retries;
    return true;
  }
  over_.push_back(request);
  return false;
}

void QueuedReader::deliver(ReadRequest& request) {
  const Store& store = *request.store;
  ReadOutcome& outcome = request.outcome;
  if (outcome.status == Status::ok) {
    if (!store.direct() || outcome.retried) store.drop_pages(request.offset, request.bytes);
    // a write during the read has set the times before it changed the first byte.
    if (const Status status = store.check_identity(); status != Status::ok) {
      outcome.status = status;
      outcome.offset = request.offset;
    }
  } else if (store.check_identity() != Status::ok) {
    outcome.status = Status::store_changed;
  }
  done_(context_, request);
}

}  // namespace resid

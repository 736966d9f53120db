#pragma once
// What a replay reads: a store, its chunks, the order of one pass, and what every chunk must hold.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/status.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "replay/generated_store.hpp"

namespace resid {

// The sum that stands for a chunk's content, made page by page so that several threads can each add
// their part: the sum of a page's words, times an odd number that depends on the page's place.
// `words` points to one page (512 words); `page` is its number in the store.
std::uint64_t page_sum(const std::uint64_t* words, std::uint64_t page);

// The pages of a chunk that thread `thread` of `threads` reads.
struct PageRange {
  std::uint64_t begin = 0;  // numbers of pages in the store
  std::uint64_t end = 0;
};
PageRange slice(const Chunk& chunk, std::uint32_t thread, std::uint32_t threads);

struct Workload {
  std::string path;
  Fd fd;
  ModelFile file;
  ChunkPlan plan;
  // One pass: the order in which chunks are consumed. A chunk may stand in it more than once.
  std::vector<std::uint32_t> sequence;
  // True when the sequence is 0, 1, ..., chunks - 1.
  bool cyclic_scan = false;
  std::uint64_t fingerprint = 0;        // see storage/fingerprint.hpp
  std::vector<std::uint64_t> expected;  // page sums, by page of the store

  std::uint64_t sequence_bytes() const;    // consumed in one pass
  std::uint64_t referenced_bytes() const;  // of the chunks in the sequence, each once

  // A generated store (see generated_store.hpp) in chunks of `chunk_bytes`, scanned in order. The
  // expected content comes from the formula, not from the file. usage: the file is none.
  static Result<Workload> scan(const std::string& path, std::uint64_t chunk_bytes);
  // A model file, read in the order of a forward pass. The expected content is read from the file
  // past the page cache where the file system allows it, until `stop` is set. unsupported: one part
  // of a split model.
  static Result<Workload> model(const std::string& path, std::uint64_t chunk_max,
                                const std::atomic<bool>* stop = nullptr);
};

}  // namespace resid

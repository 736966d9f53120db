#pragma once
// How one file is cut into chunks, the units of residency.
//
// Invariants of a plan:
//   C-1  Chunks are disjoint, sorted, page aligned, and cover [0, page_up(file size)) exactly.
//   C-2  A chunk is at most `chunk_max` bytes.
//   C-3  A page shared by two tensors, by two expert slices, or by the metadata and a tensor is a
//        chunk of its own: a seam.
//        Every other chunk holds bytes of one tensor (or one expert's slice) only. So residency of
//        one expert costs at most two pages beyond its slice.
//   C-4  Layer, role and expert of every chunk are known; a seam takes those of the tensor whose
//        first byte lies in it (else of the one that ends in it).
//   C-5  Where `chunk_max` is a multiple of the large page, a run of bytes that holds whole aligned
//        stretches of `chunk_max` is cut at these; what is left at its ends is cut evenly.
//   C-6  An embedding that is not the output too is cut into chunks of 64 KiB at most: a token
//   reads
//        one row of it, and nothing says which.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/units.hpp"
#include "model/model.hpp"

namespace resid {

using ChunkIndex = std::uint32_t;  // position in one plan
inline constexpr std::uint32_t kNoTensor = 0xffffffffU;

struct Chunk {
  std::uint64_t offset = 0;  // in the file, page aligned
  std::uint32_t bytes = 0;   // a multiple of the page size; may reach past the end of the file
  std::uint32_t tensor = kNoTensor;
  std::int32_t layer = kNoLayer;
  std::int32_t expert = kNoExpert;
  // Of a seam: its bytes [0, head) belong to what began in an earlier chunk, [tail, kPage) to what
  // goes on in the next one. 0 and kPage when nothing does.
  std::uint16_t head = 0;
  std::uint16_t tail = kPage;
  Role role = Role::header;
  bool seam = false;
};

// Chunks [first, first + count) that should be fetched by one request.
struct ChunkSpan {
  ChunkIndex first = 0;
  ChunkIndex count = 0;
};

class ChunkPlan {
 public:
  static constexpr std::uint64_t kDefaultChunkMax = 2 * 1024 * 1024;
  // More chunks than this would take more memory than they save: 2^26, 128 TiB at the default size.
  static constexpr std::uint64_t kMaxChunks = 1ULL << 26;

  // `chunk_max`: a multiple of the page size, at least one page, at most 1 GiB. Statuses: usage (a
  // bad or too small `chunk_max`), unsupported (too many expert slices), internal (a table of
  // tensors that no reader made).
  static Result<ChunkPlan> make(const ModelFile& file, std::uint64_t chunk_max = kDefaultChunkMax);
  // Chunks of `chunk_max` bytes (the last may be smaller), for files whose structure is unknown
  // (`--match`).
  static Result<ChunkPlan> uniform(std::uint64_t file_bytes, std::uint64_t chunk_max);

  std::span<const Chunk> chunks() const { return chunks_; }
  const Chunk& operator[](ChunkIndex i) const { return chunks_[i]; }
  ChunkIndex size() const { return static_cast<ChunkIndex>(chunks_.size()); }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t mapped_bytes() const { return page_up(file_bytes_); }
  std::uint32_t largest() const { return largest_; }  // bytes of the largest chunk

  // The most that one span() holds where no chunk is larger than `largest`: a chunk and the seams
  // on both sides of it.
  static constexpr std::uint64_t span_bytes(std::uint32_t largest) {
    return std::uint64_t{largest} + 2 * kPage;
  }

  // The chunk that holds byte `offset`; O(log n). `offset` < mapped_bytes().
  ChunkIndex find(std::uint64_t offset) const;

  // The chunks worth fetching together when byte `offset` is missing: an expert's slice comes with
  // its seams, a tensor's first or last piece with the seam beside it. `exact` says that `offset`
  // is the byte that was touched (userfaultfd EXACT_ADDRESS, kernel 5.18), not its page: then a
  // fault in a seam tells which side was meant. The span holds at most one chunk that is no seam,
  // and always the chunk find(offset).
  ChunkSpan span(std::uint64_t offset, bool exact) const;

 private:
  ChunkSpan after_seam(ChunkIndex i) const;
  ChunkSpan before_seam(ChunkIndex i) const;

  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> starts_;  // chunk offsets alone: the binary search stays in cache
  std::uint64_t file_bytes_ = 0;
  std::uint32_t largest_ = 0;
};

// A chunk of one of several plans.
struct OrderEntry {
  std::uint32_t file = 0;
  ChunkIndex chunk = 0;
};

// The order in which a forward pass reads the weights: layer by layer, by role and step inside a
// layer, by expert, by offset inside a tensor; output last. A token embedding that doubles as the
// output (tied: no file has a tensor with Role::output) stands where the output would. Chunks that
// are not read in a fixed order (header, untied embedding, draft layers) are left out.
//
// A seam is named once for every tensor that has bytes in it, at that tensor's place, because that
// is when it is read: a victim is judged by its next use, and leaving out the later one would give
// up a page that is about to be wanted. Neighbours in the order are never the same chunk.
// `files[i]` belongs to `plans[i]`.
std::vector<OrderEntry> declared_order(std::span<const ModelFile* const> files,
                                       std::span<const ChunkPlan* const> plans);

}  // namespace resid

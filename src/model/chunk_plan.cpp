#include "model/chunk_plan.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace resid {
namespace {

constexpr std::uint64_t kLargestChunkMax = 1ULL << 30;

// Of an embedding a token reads one row.
constexpr std::uint64_t kRowsMax = 64 * 1024;

// Bytes that belong together: the metadata, a tensor, or one expert's slice of a tensor.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t tensor = kNoTensor;
  std::int32_t expert = kNoExpert;
};

// Hands out the extents of a file in order, without ever holding all of them.
class ExtentWalk {
 public:
  explicit ExtentWalk(const ModelFile& file) : file_(file) {}

  bool next(Extent& out) {
    if (!header_done_) {
      header_done_ = true;
      const std::uint64_t end = std::min(file_.data_offset, file_.bytes);
      if (end > 0) {
        out = Extent{0, end, kNoTensor, kNoExpert};
        return true;
      }
    }
    while (tensor_ < file_.tensors.size()) {
      const Tensor& tensor = file_.tensors[tensor_];
      const std::uint64_t slices = std::max(tensor.experts, 1U);
      if (tensor.bytes == 0 || slice_ == slices) {
        ++tensor_;
        slice_ = 0;
        continue;
      }
      const std::uint64_t stride = tensor.bytes / slices;
      out.begin = tensor.offset + slice_ * stride;
      out.end = out.begin + stride;
      out.tensor = static_cast<std::uint32_t>(tensor_);
      out.expert = tensor.experts > 0 ? static_cast<std::int32_t>(slice_) : tensor.expert;
      ++slice_;
      return true;
    }
    return false;
  }

 private:
  const ModelFile& file_;
  bool header_done_ = false;
  std::size_t tensor_ = 0;
  std::uint64_t slice_ = 0;
};

// A page-aligned stretch that is one seam, or that has one owner and is yet to be cut to size.
struct Run {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t tensor = kNoTensor;
  std::int32_t expert = kNoExpert;
  bool seam = false;
  std::uint16_t head = 0;
  std::uint16_t tail = kPage;
};

// Walks the file once and calls `emit` with its runs, in order and without gaps (C-1, C-3).
template <class Emit>
void walk_runs(const ModelFile& file, Emit&& emit) {
  ExtentWalk walk(file);
  std::uint64_t covered = 0;  // everything below has been emitted, or is in `seam`
  std::optional<Run> seam;    // the last page emitted is shared and may have more owners to come
  Extent extent;
  Extent following;
  bool more = walk.next(extent);
  while (more) {
    const bool has_following = walk.next(following);
    std::uint64_t begin = page_down(extent.begin);
    const std::uint64_t end = page_up(extent.end);
    const std::uint64_t last_page = end - kPage;
    const bool shares_end = has_following && page_down(following.begin) < end;

    if (seam && extent.begin >= seam->begin + kPage) {
      emit(*seam);
      seam.reset();
    }
    if (seam) {
      begin = seam->begin + kPage;
      if (extent.end > begin) {
        // It goes on beyond the page, so it is the last to have bytes in it.
        seam->tail = static_cast<std::uint16_t>(extent.begin - seam->begin);
        emit(*seam);
        seam.reset();
      }
    } else if (begin > covered) {
      // Whole pages that nothing owns: padding, or data no tensor describes.
      emit(Run{covered, begin, kNoTensor, kNoExpert});
    }
    covered = std::max(covered, begin);

    if (!seam && covered < end) {
      const std::uint64_t own_end = shares_end ? last_page : end;
      if (own_end > covered) {
        emit(Run{covered, own_end, extent.tensor, extent.expert});
        covered = own_end;
      }
      if (shares_end) {
        Run page{last_page, end, extent.tensor, extent.expert, true};
        if (extent.begin < last_page)
          page.head = static_cast<std::uint16_t>(extent.end - last_page);
        // C-4: the first tensor that begins in the page owns it. The next extent does, by being
        // here; this one does if it began here too. Metadata never owns a page with a tensor in it.
        if (extent.begin < last_page || extent.tensor == kNoTensor) {
          page.tensor = following.tensor;
          page.expert = following.expert;
        }
        seam = page;
        covered = end;
      }
    }
    extent = following;
    more = has_following;
  }
  if (seam) emit(*seam);
  const std::uint64_t end = page_up(file.bytes);
  if (covered < end) emit(Run{covered, end, kNoTensor, kNoExpert});
}

std::uint64_t pieces(std::uint64_t bytes, std::uint64_t chunk_max) {
  return (bytes + chunk_max - 1) / chunk_max;
}

// Hands out the stretches [begin, end) that a run is cut into.
template <class F>
void cut(std::uint64_t begin, std::uint64_t end, std::uint64_t chunk_max, F&& emit) {
  // Pieces of nearly equal size, not full ones and a remainder: a request costs a latency whatever
  // its size, so a remainder of a page would cost as much as a megabyte; and every piece then takes
  // about as long to read as to compute with, which is what prefetch counts on.
  const auto equally = [&](std::uint64_t from, std::uint64_t to) {
    const std::uint64_t pages = (to - from) / kPage;
    const std::uint64_t n = pieces(to - from, chunk_max);
    for (std::uint64_t i = 0; i < n; ++i) {
      // pages * i cannot wrap: both are below 2^52 / 2^26 for every file that passed the count.
      const std::uint64_t first = from + (pages / n * i + std::min(i, pages % n)) * kPage;
      emit(first, first + (pages / n + (i < pages % n ? 1 : 0)) * kPage);
    }
  };
  // C-5: but whole large pages where there are any. They can be had and given back as one piece of
  // memory, which is worth more than equal sizes.
  const std::uint64_t first = (begin + chunk_max - 1) / chunk_max * chunk_max;
  const std::uint64_t last = end / chunk_max * chunk_max;
  if (chunk_max % kLargePage != 0 || first >= last) {
    equally(begin, end);
    return;
  }
  equally(begin, first);
  for (std::uint64_t at = first; at < last; at += chunk_max)
    emit(at, at + chunk_max);
  equally(last, end);
}

// C-6. Only where the file says that the embedding is not the output as well.
std::uint32_t rows_tensor(const ModelFile& file) {
  std::uint32_t rows = kNoTensor;
  bool output = false;
  for (std::uint32_t i = 0; i < file.tensors.size(); ++i) {
    if (file.tensors[i].role == Role::embedding) rows = i;
    output |= file.tensors[i].role == Role::output;
  }
  return output ? rows : kNoTensor;
}

Result<void> check_chunk_max(std::uint64_t chunk_max) {
  if (chunk_max >= kPage && chunk_max % kPage == 0 && chunk_max <= kLargestChunkMax) return {};
  return fail(Status::usage, "chunk size",
              fmt::format("{} is not a multiple of {} between {} and {}", chunk_max, kPage, kPage,
                          kLargestChunkMax));
}

Result<void> check_count(std::uint64_t count, std::uint64_t chunk_max) {
  if (count <= ChunkPlan::kMaxChunks) return {};
  return fail(
      Status::usage, "chunk size",
      fmt::format("{} makes {} chunks; {} are allowed", chunk_max, count, ChunkPlan::kMaxChunks),
      "raise --chunk-max");
}

// The readers guarantee all of this; a table built by hand may not.
Result<void> check_table(const ModelFile& file) {
  std::uint64_t end = 0;
  std::uint64_t slices = 0;
  for (const Tensor& tensor : file.tensors) {
    slices += tensor.experts;
    const bool inside = tensor.offset <= file.bytes && tensor.bytes <= file.bytes - tensor.offset;
    const bool after = tensor.bytes == 0 || tensor.offset >= std::max(end, file.data_offset);
    if (!inside || !after || (tensor.experts > 0 && tensor.bytes % tensor.experts != 0)) {
      return fail(Status::internal, file.path,
                  fmt::format("tensor '{}' lies outside the file, overlaps or is not in order",
                              tensor.name));
    }
    end = tensor.offset + tensor.bytes;
  }
  // Slices of a few bytes share pages, so the count of chunks alone does not bound the work.
  if (slices > ChunkPlan::kMaxChunks) {
    return fail(
        Status::unsupported, file.path,
        fmt::format("{} expert slices; at most {} are planned for", slices, ChunkPlan::kMaxChunks));
  }
  if (file.tensors.size() >= kNoTensor)
    return fail(Status::internal, file.path, "too many tensors");
  return {};
}

}  // namespace

Result<ChunkPlan> ChunkPlan::make(const ModelFile& file, std::uint64_t chunk_max) try {
  if (auto good = check_chunk_max(chunk_max); !good) return tl::unexpected<Failure>(good.error());
  if (file.bytes == 0) return fail(Status::empty_file, file.path, "the file is empty");
  if (auto good = check_table(file); !good) return tl::unexpected<Failure>(good.error());

  const std::uint32_t rows = rows_tensor(file);
  const auto most = [&](const Run& run) {
    return run.tensor == rows && rows != kNoTensor ? std::min(chunk_max, kRowsMax) : chunk_max;
  };
  // Counted before it is built: a sparse file may claim any size, and memory is taken only once.
  std::uint64_t count = 0;
  // First roughly, run by run: a claimed size of an exabyte is not walked piece by piece.
  walk_runs(file, [&](const Run& run) { count += pieces(run.end - run.begin, most(run)); });
  if (auto good = check_count(count, chunk_max); !good)
    return tl::unexpected<Failure>(good.error());
  count = 0;
  walk_runs(file, [&](const Run& run) {
    cut(run.begin, run.end, most(run), [&](std::uint64_t, std::uint64_t) { ++count; });
  });
  if (auto good = check_count(count, chunk_max); !good)
    return tl::unexpected<Failure>(good.error());

  ChunkPlan plan;
  plan.file_bytes_ = file.bytes;
  plan.chunks_.reserve(static_cast<std::size_t>(count));
  walk_runs(file, [&](const Run& run) {
    cut(run.begin, run.end, most(run), [&](std::uint64_t begin, std::uint64_t end) {
      Chunk chunk;
      chunk.offset = begin;
      chunk.bytes = static_cast<std::uint32_t>(end - begin);  // C-2
      chunk.tensor = run.tensor;
      chunk.expert = run.expert;
      if (run.tensor != kNoTensor) {
        chunk.layer = file.tensors[run.tensor].layer;
        chunk.role = file.tensors[run.tensor].role;
      }
      chunk.seam = run.seam;
      chunk.head = run.head;
      chunk.tail = run.tail;
      plan.largest_ = std::max(plan.largest_, chunk.bytes);
      plan.chunks_.push_back(chunk);
    });
  });
  plan.starts_.reserve(plan.chunks_.size());
  for (const Chunk& chunk : plan.chunks_)
    plan.starts_.push_back(chunk.offset);
  return plan;
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, file.path, "not enough memory for the table of chunks");
}

Result<ChunkPlan> ChunkPlan::uniform(std::uint64_t file_bytes, std::uint64_t chunk_max) try {
  if (auto good = check_chunk_max(chunk_max); !good) return tl::unexpected<Failure>(good.error());
  if (file_bytes == 0) return fail(Status::empty_file, "chunk plan", "the file is empty");
  const std::uint64_t end = page_up(file_bytes);
  const std::uint64_t count = pieces(end, chunk_max);
  if (auto good = check_count(count, chunk_max); !good)
    return tl::unexpected<Failure>(good.error());

  ChunkPlan plan;
  plan.file_bytes_ = file_bytes;
  plan.chunks_.reserve(static_cast<std::size_t>(count));
  plan.starts_.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t offset = 0; offset < end; offset += chunk_max) {
    Chunk chunk;
    chunk.offset = offset;
    chunk.bytes = static_cast<std::uint32_t>(std::min(chunk_max, end - offset));
    chunk.role = Role::other;
    plan.chunks_.push_back(chunk);
    plan.starts_.push_back(offset);
  }
  plan.largest_ = plan.chunks_.front().bytes;
  return plan;
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "chunk plan", "not enough memory for the table of chunks");
}

ChunkIndex ChunkPlan::find(std::uint64_t offset) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  return static_cast<ChunkIndex>(after - starts_.begin() - 1);
}

// The seam at `i` with what goes on after it, and with the seam that ends that, if any.
ChunkSpan ChunkPlan::after_seam(ChunkIndex i) const {
  ChunkSpan span{i, 2};
  const ChunkIndex end = i + 2;
  if (!chunks_[i + 1].seam && end < size() && chunks_[end].seam && chunks_[end].head > 0) {
    ++span.count;
  }
  return span;
}

// The seam at `i` with what ends in it, and with the seam that began that, if any.
ChunkSpan ChunkPlan::before_seam(ChunkIndex i) const {
  ChunkSpan span{i - 1, 2};
  if (!chunks_[i - 1].seam && i >= 2 && chunks_[i - 2].seam && chunks_[i - 2].tail < kPage) {
    --span.first;
    ++span.count;
  }
  return span;
}

ChunkSpan ChunkPlan::span(std::uint64_t offset, bool exact) const {
  const ChunkIndex i = find(offset);
  const Chunk& chunk = chunks_[i];
  if (chunk.seam) {
    const std::uint64_t within = offset - chunk.offset;
    if (exact && within < chunk.head) return before_seam(i);
    // Not knowing the byte, suppose the tensor that begins here: what ended here was fetched with
    // this page when it was read, and reading goes on forwards.
    if (chunk.tail < kPage && (!exact || within >= chunk.tail)) return after_seam(i);
    return {i, 1};
  }
  ChunkSpan span{i, 1};
  if (i > 0 && chunks_[i - 1].seam && chunks_[i - 1].tail < kPage) {
    --span.first;
    ++span.count;
  }
  if (i + 1 < size() && chunks_[i + 1].seam && chunks_[i + 1].head > 0) ++span.count;
  return span;
}

}  // namespace resid

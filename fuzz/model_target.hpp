#pragma once
// What every file must satisfy once a reader has accepted it, however it came about.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/fd.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"

namespace resid::fuzz {

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "promise broken: %s\n", what);
  std::abort();
}

inline void check_plan(const ModelFile& file, std::uint64_t chunk_max) {
  const Result<ChunkPlan> made = ChunkPlan::make(file, chunk_max);
  if (!made) {
    require(made.error().status == Status::usage, "a reader's table always makes a plan");
    return;
  }
  const ChunkPlan& plan = *made;
  std::uint64_t end = 0;
  for (ChunkIndex i = 0; i < plan.size(); ++i) {
    const Chunk& chunk = plan[i];
    require(chunk.offset == end && chunk.bytes > 0 && chunk.bytes % kPage == 0, "C-1");
    require(chunk.bytes <= chunk_max, "C-2");
    require(!chunk.seam || (chunk.bytes == kPage && chunk.head <= chunk.tail), "C-3");
    end += chunk.bytes;
    require(plan.find(chunk.offset) == i && plan.find(end - 1) == i, "find");
    for (const std::uint64_t at : {chunk.offset, chunk.offset + chunk.bytes / 2, end - 1}) {
      for (const bool exact : {false, true}) {
        const ChunkSpan span = plan.span(at, exact);
        require(span.first <= i && i < span.first + span.count, "span holds the chunk");
        require(span.first + span.count <= plan.size(), "span ends");
        int whole = 0;
        for (ChunkIndex k = 0; k < span.count; ++k)
          whole += !plan[span.first + k].seam;
        require(whole <= 1, "span holds one chunk that is no seam");
      }
    }
  }
  require(end == page_up(file.bytes), "C-1: covered");
  const ModelFile* files[] = {&file};
  const ChunkPlan* plans[] = {&plan};
  for (const OrderEntry& entry : declared_order(files, plans)) {
    require(entry.file == 0 && entry.chunk < plan.size(), "order");
  }
}

inline void check_file(const std::uint8_t* data, std::size_t size) {
  static const Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), 0) != 0) std::abort();
  if (::pwrite(fd.get(), data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  const Result<ModelFile> read = read_model_file(fd.get(), "input");
  if (!read) {
    require(!read.error().why.empty() && read.error().what == "input", "a failure says why");
    require(read.error().status != Status::internal, "a bad file is no bug");
    require(read.error().status != Status::out_of_memory, "a small file takes little memory");
    return;
  }
  require(looks_like_model(fd.get()), "what reads also looks like a model");
  std::uint64_t end = read->data_offset;
  for (const Tensor& tensor : read->tensors) {
    require(tensor.offset >= end, "tensors are sorted and do not overlap");
    end = tensor.offset + tensor.bytes;
    require(tensor.experts == 0 || tensor.bytes % tensor.experts == 0, "slices are equal");
  }
  require(end <= read->bytes, "tensors lie inside the file");
  check_plan(*read, kPage);
  check_plan(*read, ChunkPlan::kDefaultChunkMax);
}

}  // namespace resid::fuzz

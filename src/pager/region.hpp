#pragma once
// One store under control: its descriptors, the file of memory that holds what is resident of it
// (host/frames.hpp), and the fill view. App views are in the ViewTable.

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"
#include "host/frames.hpp"
#include "model/chunk_plan.hpp"
#include "model/expert_index.hpp"
#include "model/model.hpp"
#include "pager/chunk_state.hpp"
#include "pager/lookahead.hpp"
#include "storage/store.hpp"

namespace resid {

class Region {
 public:
  // `lock_pages`: the fill view is mlocked on fault, so that what is resident cannot be swapped
  // (I-3); needs RLIMIT_MEMLOCK for the whole file.
  static Result<std::unique_ptr<Region>> open(int fd, const std::string& path, ModelFile file,
                                              ChunkPlan plan, const host::FrameSource& frames,
                                              bool lock_pages);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const Store& store() const { return store_; }
  const ModelFile& file() const { return file_; }
  const ChunkPlan& plan() const { return plan_; }
  const ExpertIndex& experts() const { return experts_; }
  int memfd() const { return memfd_.get(); }
  // Whether the chunk is whole large pages in a file of large folios: then one entry of a page
  // table can map each of them (I-9).
  bool large(ChunkIndex i) const {
    const Chunk& c = plan_[i];
    return large_ && c.offset % kLargePage == 0 && c.bytes % kLargePage == 0;
  }
  // Keeps the kernel from mapping anything of a view but whole large chunks by large pages. `view`
  // shows [offset, offset + bytes).
  void forbid_large(std::uint8_t* view, std::uint64_t offset, std::uint64_t bytes) const;
  // Puts the bytes of a chunk into the file of memory; 0 or errno. The chunk is FETCHING, and its
  // bytes are reserved.
  int fill(ChunkIndex i, const std::uint8_t* bytes) const;
  ChunkState& chunk(ChunkIndex i) const { return chunks_[i]; }

  // The bytes that the kernel holds for this region (st_blocks of the memfd); negative errno on
  // failure.
  std::int64_t kernel_bytes() const;
  // Gives [offset, offset + bytes) back to the kernel; 0 or errno. The pages leave every view at
  // the same time.
  int punch(std::uint64_t offset, std::uint64_t bytes) const;

  // Set when the region joins a pager.
  std::uint32_t id = 0;
  ChunkId first_chunk = 0;
  std::unique_ptr<Lookahead> lookahead;  // null where there is nothing to look ahead in

 private:
  int fill_small(const Chunk& c, const std::uint8_t* bytes) const;
  Region(Store store, ModelFile file, ChunkPlan plan)
      : store_(std::move(store)),
        file_(std::move(file)),
        plan_(std::move(plan)),
        experts_(ExpertIndex::make(file_, plan_)) {}
  Store store_;
  ModelFile file_;
  ChunkPlan plan_;
  ExpertIndex experts_;
  Fd memfd_;
  std::uint8_t* fill_ = nullptr;
  bool large_ = false;  // the file takes large folios
  bool may_map_large_ = false;
  bool locked_ = false;  // what is resident must have been touched through the fill view
  std::unique_ptr<ChunkState[]> chunks_;
};

}  // namespace resid

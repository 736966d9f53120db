#pragma once
// Which files are models, and how big the model is that a file belongs to.

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "storage/store.hpp"

namespace resid::preload {

// The path behind a descriptor, as the kernel names it; empty when it has none.
std::string path_of(int fd);

// True when a regular file is to be put under control: by content, else by name.
bool recognised(int fd, const char* glob);
// `glob` is tried on the whole path and on its last component. Empty matches nothing.
bool matches(const std::string& path, const char* glob);

// Structure of the file; one without a known format (recognised by name) is one raw piece.
Result<ModelFile> read_recognised(int fd, const std::string& path, std::uint64_t bytes);
// `chunk_max` 0 stands for the default.
Result<ChunkPlan> plan_for(const ModelFile& file, std::uint64_t chunk_max);

// True when `path` still names the file of this identity.
bool names_file(const std::string& path, const StoreIdentity& identity);

struct WholeModel {
  std::uint64_t bytes = 0;
  std::uint64_t largest_chunk = 0;
};
// All parts of a split model. Where the parts cannot be opened by name (`in_place` false: deleted
// or renamed), or a sibling is missing, the one file stands for the whole.
WholeModel whole_model(const ModelFile& file, const ChunkPlan& plan, bool in_place,
                       std::uint64_t chunk_max);

}  // namespace resid::preload

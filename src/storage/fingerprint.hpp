#pragma once
// A number that tells one store from another by its size and samples of its content, so that traces
// of two models are not taken for traces of one.

#include <cstdint>

#include "base/status.hpp"
#include "storage/store.hpp"

namespace resid {

// Of the size and of 64 pages, evenly spread, the first and the last among them. Not secure. Leaves
// the page cache alone where the file system allows direct reads.
Result<std::uint64_t> fingerprint(const Store& store);

}  // namespace resid

#pragma once
// Random-weight models that llama.cpp loads and runs: for tests and measurements that need a model
// of a given size and shape, not one that makes sense.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"
#include "synth/shape.hpp"

namespace resid {

struct SynthOptions {
  std::uint64_t seed = 0;
  bool replace = false;  // an existing file of that name
  // Called now and then with bytes written and bytes in all, on the calling thread.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
  // Set by anyone (a signal handler) to give up: Status::write_failed, and no file.
  const std::atomic<bool>* stop = nullptr;
};

struct SynthReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t parameters = 0;
  std::uint32_t tensors = 0;
};

// Writes a GGUF version 3 file. Memory does not grow with the size; the bytes depend on the shape
// and the seed alone. The file appears under `path` when it is whole, or not at all.
Result<SynthReport> write_synth(const SynthShape& shape, const std::string& path,
                                const SynthOptions& options);

}  // namespace resid

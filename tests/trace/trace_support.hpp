#pragma once
// Traces for the tests of this folder.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trace/trace.hpp"

namespace resid::trace_test {

using Ids = std::vector<std::uint32_t>;

inline TraceHeader header_of(Ids chunk_bytes) {
  TraceHeader header;
  header.model = "model.gguf";
  header.model_fingerprint = 0x0123456789abcdef;
  header.config_hash = "c0ffee";
  for (const std::uint32_t bytes : chunk_bytes)
    header.model_bytes += bytes;
  header.chunk_bytes = std::move(chunk_bytes);
  return header;
}

// `passes` scans of chunks of these sizes, and the header that says so.
inline TraceHeader cyclic_header(Ids chunk_bytes, std::uint32_t passes) {
  TraceHeader header = header_of(std::move(chunk_bytes));
  header.cycle_chunks = static_cast<std::uint32_t>(header.chunk_bytes.size());
  header.passes = passes;
  return header;
}
inline Ids cyclic_accesses(const TraceHeader& header) {
  Ids out;
  for (std::uint32_t pass = 0; pass < header.passes; ++pass) {
    for (std::uint32_t chunk = 0; chunk < header.cycle_chunks; ++chunk)
      out.push_back(chunk);
  }
  return out;
}

inline std::vector<TraceRecord> records_of(const Ids& chunks) {
  std::vector<TraceRecord> out;
  for (const std::uint32_t chunk : chunks)
    out.push_back({1000 * (out.size() + 1), chunk, 0});
  return out;
}

inline void write_trace(const std::string& path, const TraceHeader& header,
                        const std::vector<TraceRecord>& records) {
  auto writer = TraceWriter::create(path, header);
  ASSERT_TRUE(writer) << writer.error().line();
  ASSERT_TRUE(writer->append(records));
  const auto finished = writer->finish();
  ASSERT_TRUE(finished) << finished.error().line();
}

inline Result<std::vector<TraceRecord>> read_trace(const std::string& path,
                                                   std::size_t at_once = 100) {
  auto reader = TraceReader::open(path);
  if (!reader) return tl::unexpected(reader.error());
  std::vector<TraceRecord> out;
  std::vector<TraceRecord> some(at_once);
  for (;;) {
    const auto n = reader->next(some);
    if (!n) return tl::unexpected(n.error());
    if (*n == 0) return out;
    out.insert(out.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*n));
  }
}

// A folder of its own for every test.
class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "trace-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      out.push_back(entry.path().filename());
    return out;
  }
  static std::string get(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::filesystem::path folder_;
};

}  // namespace resid::trace_test

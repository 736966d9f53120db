// From trace files to the string of chunk ids that the solver and the policies are run on. The
// gate of I-10: what is no reference trace does not get past here.

#include <array>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "trace/trace.hpp"

namespace resid {

namespace {

// Positions in the string are 32 bits wide, and one value is taken for "never".
constexpr std::uint64_t kReferencesMost = std::numeric_limits<std::uint32_t>::max() - 1;

Result<void> check_kind(const std::string& path, const TraceHeader& header) {
  if (header.kind == TraceKind::reference) return {};
  return fail(Status::usage, path,
              fmt::format("is a {} trace: it records what one policy did, and an optimum computed "
                          "from it would be circular",
                          name(header.kind)),
              "give the reference trace of the workload; --dump shows this one");
}

Result<void> check_same(const std::string& path, const TraceHeader& header,
                        const std::string& first_path, const TraceHeader& first) {
  const auto differ = [&](const char* field, const auto& here, const auto& there) {
    return fail(
        Status::usage, path,
        fmt::format("is not of the model of {}: {} is {}, not {}", first_path, field, here, there),
        "give traces of one model, cut into the same chunks");
  };
  if (header.model_bytes != first.model_bytes) {
    return differ("model_bytes", header.model_bytes, first.model_bytes);
  }
  if (header.model_fingerprint != first.model_fingerprint) {
    return differ("model_fingerprint", fmt::format("{:016x}", header.model_fingerprint),
                  fmt::format("{:016x}", first.model_fingerprint));
  }
  if (header.chunk_bytes.size() != first.chunk_bytes.size()) {
    return differ("the number of chunks", header.chunk_bytes.size(), first.chunk_bytes.size());
  }
  for (std::size_t i = 0; i < first.chunk_bytes.size(); ++i) {
    if (header.chunk_bytes[i] != first.chunk_bytes[i]) {
      return differ(fmt::format("the size of chunk {}", i).c_str(), header.chunk_bytes[i],
                    first.chunk_bytes[i]);
    }
  }
  return {};
}

// Scans of the same chunks one after another are one longer scan; anything else is not cyclic.
void join_cycles(TraceHeader& all, const TraceHeader& next) {
  const std::uint64_t passes = std::uint64_t{all.passes} + next.passes;
  const bool same = all.cycle_chunks != 0 && all.cycle_chunks == next.cycle_chunks;
  const bool fits = passes <= std::numeric_limits<std::uint32_t>::max();
  if (!same) all.cycle_chunks = 0;
  if (!fits) all.cycle_chunks = 0;  // no claim is better than a wrong one
  all.passes = same && fits ? static_cast<std::uint32_t>(passes) : 0;
}

Result<ReferenceString> read_all(std::span<const std::string> paths,
                                 const TraceProgress& progress) {
  std::vector<TraceReader> readers;
  ReferenceString all;
  std::uint64_t total = 0;
  for (const std::string& path : paths) {
    auto reader = TraceReader::open(path);
    if (!reader) return tl::unexpected(reader.error());
    if (auto ok = check_kind(path, reader->header()); !ok) return tl::unexpected(ok.error());
    if (readers.empty()) {
      all.header = reader->header();
    } else {
      const auto same = check_same(path, reader->header(), paths.front(), all.header);
      if (!same) return tl::unexpected(same.error());
      join_cycles(all.header, reader->header());
    }
    total += reader->file_bytes();
    readers.push_back(std::move(*reader));
  }
  std::array<TraceRecord, 4096> records;
  std::uint64_t before = 0;  // bytes of the files that are done with
  for (std::size_t i = 0; i < readers.size(); ++i) {
    TraceReader& reader = readers[i];
    for (;;) {
      const auto n = reader.next(records);
      if (!n) return tl::unexpected(n.error());
      if (*n == 0) break;
      if (all.chunks.size() + *n > kReferencesMost) {
        return fail(Status::usage, paths[i],
                    fmt::format("more than {} references", kReferencesMost),
                    "judge a shorter part of the run");
      }
      for (const TraceRecord& record : std::span(records).first(*n))
        all.chunks.push_back(record.chunk);
      if (progress) progress(before + reader.bytes_read(), total);
    }
    before += reader.file_bytes();
  }
  return all;
}

}  // namespace

Result<ReferenceString> read_references(std::span<const std::string> paths,
                                        const TraceProgress& progress) try {
  if (paths.empty()) return fail(Status::usage, "trace", "none was named", "name a trace file");
  return read_all(paths, progress);
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, paths.front(), "its references do not fit into memory");
}

}  // namespace resid

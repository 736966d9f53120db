// Reading a trace. Nothing in the file is believed before it is checked (trace_layout.hpp), and no
// memory is taken for more than the file can hold.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include <fmt/format.h>
#include <zstd.h>

#include "base/fd.hpp"
#include "trace/trace.hpp"
#include "trace/trace_file.hpp"
#include "trace/trace_layout.hpp"

namespace resid {

namespace {

using namespace trace_layout;

constexpr std::size_t kPlainBytes = sizeof(TraceRecord) << 13;
constexpr std::size_t kTrailerBytes = sizeof(std::uint64_t);
constexpr const char* kRecordAgain = "the trace is damaged: record it again";

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
};
using Stream = std::unique_ptr<ZSTD_DStream, FreeStream>;

}  // namespace

struct TraceReader::Impl {
  std::string path;
  Fd fd;
  std::uint64_t file_bytes = 0;
  std::uint64_t at = 0;  // how much of the file has been read
  TraceHeader header;

  Stream stream;
  std::vector<std::byte> compressed;
  std::vector<std::byte> plain;
  ZSTD_inBuffer in{nullptr, 0, 0};
  std::size_t plain_begin = 0;
  std::size_t plain_end = 0;
  std::uint64_t frame_left = 0;  // bytes of the file before the trailer that were not read yet
  Checksum frame_sum;
  std::uint64_t records = 0;
  bool frame_ended = false;
  bool done = false;
  std::optional<Failure> failure;

  tl::unexpected<Failure> damaged(std::uint64_t offset, const std::string& why) const {
    return fail(Status::malformed, path, fmt::format("offset {}: {}", offset, why), kRecordAgain);
  }
  tl::unexpected<Failure> cut_off(std::uint64_t offset, const std::string& field) const {
    return damaged(offset, fmt::format("the file ends inside the {}: it was cut off", field));
  }

  // Reads exactly out.size() bytes.
  Result<void> read(std::span<std::byte> out, const char* field) {
    while (!out.empty()) {
      const ssize_t n = ::read(fd.get(), out.data(), out.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail_errno(Status::unreadable, path, errno);
      if (n == 0) return cut_off(at, field);
      at += static_cast<std::uint64_t>(n);
      out = out.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<void> open_file() {
    auto file = open_trace_file(path);
    if (!file) return tl::unexpected(file.error());
    fd = std::move(file->fd);
    file_bytes = file->bytes;
    return {};
  }

  Result<void> check_beginning(const FixedHeader& fixed) const {
    if (fixed.magic != kMagic) {
      return fail(Status::malformed, path, "offset 0: magic: this is no trace",
                  "name a trace that residctl has written");
    }
    if (fixed.byte_order == kForeignByteOrder) {
      return fail(Status::unsupported, path,
                  "offset 8: byte_order: written on a machine of the other byte order",
                  "read it on a machine of that kind, with `residctl opt --dump`");
    }
    if (fixed.byte_order != kByteOrder) return damaged(8, "byte_order is no byte order");
    if (fixed.version > kVersion) {
      return fail(Status::unsupported, path,
                  fmt::format("offset 12: version {}; this program reads up to {}", fixed.version,
                              kVersion),
                  "use the residctl that wrote it, or a later one");
    }
    if (fixed.version != kVersion) return damaged(12, "version 0 does not exist");
    return {};
  }

  Result<void> check_fields(const FixedHeader& f) const {
    const auto wrong = [&](std::size_t offset, const char* field, std::uint64_t value,
                           const std::string& why) {
      return damaged(offset, fmt::format("{} is {}: {}", field, value, why));
    };
    if (f.header_bytes != sizeof(FixedHeader)) {
      return wrong(16, "header_bytes", f.header_bytes, fmt::format("not {}", sizeof(FixedHeader)));
    }
    if (f.record_bytes != sizeof(TraceRecord)) {
      return wrong(20, "record_bytes", f.record_bytes, fmt::format("not {}", sizeof(TraceRecord)));
    }
    if (name(static_cast<TraceKind>(f.kind)).empty()) {
      return wrong(24, "kind", f.kind, "there is no such kind");
    }
    if (f.model_text_bytes > kModelTextMost) {
      return wrong(28, "model_text_bytes", f.model_text_bytes,
                   fmt::format("at most {} are allowed", kModelTextMost));
    }
    if (f.config_hash_bytes > kConfigHashMost) {
      return wrong(48, "config_hash_bytes", f.config_hash_bytes,
                   fmt::format("at most {} are allowed", kConfigHashMost));
    }
    if (f.cycle_chunks > f.chunk_count) {
      return wrong(52, "cycle_chunks", f.cycle_chunks,
                   fmt::format("there are {} chunks", f.chunk_count));
    }
    if ((f.cycle_chunks == 0) != (f.passes == 0)) {
      return wrong(56, "passes", f.passes, fmt::format("cycle_chunks is {}", f.cycle_chunks));
    }
    if (f.chunk_count > kChunksMost) {
      return wrong(60, "chunk_count", f.chunk_count,
                   fmt::format("at most {} are allowed", kChunksMost));
    }
    for (std::size_t i = 0; i < f.reserved.size(); ++i) {
      if (f.reserved[i] != 0) return wrong(64 + 8 * i, "reserved", f.reserved[i], "must be 0");
    }
    const std::uint64_t rest = std::uint64_t{f.model_text_bytes} + f.config_hash_bytes +
                               std::uint64_t{f.chunk_count} * sizeof(std::uint32_t) +
                               kFrameStart.size() + kTrailerBytes;
    if (rest > file_bytes - at) {
      return damaged(60, fmt::format("text and table of {} chunks need {} bytes, the file has {} "
                                     "more: it was cut off",
                                     f.chunk_count, rest, file_bytes - at));
    }
    return {};
  }

  Result<void> read_header() {
    FixedHeader fixed;
    if (file_bytes < sizeof(FixedHeader)) {
      // What is there may still say that it is no trace at all.
      std::array<char, kMagic.size()> magic{};
      const std::size_t n = std::min<std::size_t>(file_bytes, magic.size());
      if (auto ok = read(std::as_writable_bytes(std::span(magic).first(n)), "header"); !ok)
        return ok;
      if (!std::equal(magic.begin(), magic.begin() + static_cast<std::ptrdiff_t>(n),
                      kMagic.begin())) {
        fixed.magic = magic;
        return check_beginning(fixed);
      }
      return cut_off(file_bytes, "header");
    }
    if (auto ok = read(std::as_writable_bytes(std::span(&fixed, 1)), "header"); !ok) return ok;
    if (auto ok = check_beginning(fixed); !ok) return ok;
    if (auto ok = check_fields(fixed); !ok) return ok;
    header.kind = static_cast<TraceKind>(fixed.kind);
    header.model_bytes = fixed.model_bytes;
    header.model_fingerprint = fixed.model_fingerprint;
    header.cycle_chunks = fixed.cycle_chunks;
    header.passes = fixed.passes;
    header.model.resize(fixed.model_text_bytes);
    header.config_hash.resize(fixed.config_hash_bytes);
    header.chunk_bytes.resize(fixed.chunk_count);  // the file has room for it: check_fields()
    const auto text = std::as_writable_bytes(std::span(header.model));
    const auto hash = std::as_writable_bytes(std::span(header.config_hash));
    const auto table = std::as_writable_bytes(std::span(header.chunk_bytes));
    if (auto ok = read(text, "model's name"); !ok) return ok;
    if (auto ok = read(hash, "config hash"); !ok) return ok;
    const std::uint64_t table_at = at;
    if (auto ok = read(table, "chunk table"); !ok) return ok;

    const std::uint64_t claimed = fixed.checksum;
    fixed.checksum = 0;
    Checksum sum;
    sum.add(std::as_bytes(std::span(&fixed, 1)));
    for (const auto part : {text, hash, table})
      sum.add(part);
    if (sum.value() != claimed) {
      return damaged(offsetof(FixedHeader, checksum),
                     "checksum: the header is not what was written");
    }
    for (std::size_t i = 0; i < header.chunk_bytes.size(); ++i) {
      if (header.chunk_bytes[i] == 0) {
        return damaged(table_at + i * sizeof(std::uint32_t),
                       fmt::format("chunk_bytes: chunk {} has no bytes", i));
      }
    }
    return {};
  }

  Result<void> start_frame() {
    compressed.resize(::ZSTD_DStreamInSize());
    plain.resize(kPlainBytes);
    frame_left = file_bytes - at - kTrailerBytes;
    const std::uint64_t frame_at = at;
    const auto start = std::span(compressed).first(kFrameStart.size());
    if (auto ok = read(start, "records"); !ok) return ok;
    frame_left -= start.size();
    frame_sum.add(start);
    if (std::memcmp(start.data(), kFrameStart.data(), start.size()) != 0) {
      return damaged(frame_at, "frame header: the records do not begin here");
    }
    in = {compressed.data(), start.size(), 0};
    stream.reset(::ZSTD_createDStream());
    if (!stream) return fail(Status::out_of_memory, path, "no memory for the decompressor");
    if (::ZSTD_isError(::ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kWindowLog)) !=
        0) {
      return fail(Status::internal, path, "the decompressor does not take its parameters");
    }
    return {};
  }

  // Decompresses more records behind those in `plain`, which are moved to its front.
  Result<void> refill() {
    if (frame_ended) {
      return damaged(at - (in.size - in.pos),
                     fmt::format("the records end after {} without an end record", records));
    }
    std::memmove(plain.data(), plain.data() + plain_begin, plain_end - plain_begin);
    plain_end -= plain_begin;
    plain_begin = 0;
    ZSTD_outBuffer out{plain.data(), plain.size(), plain_end};
    bool starved = false;
    while (out.pos < out.size && !frame_ended) {
      if (in.pos == in.size && !starved) {
        const std::size_t n = std::min<std::uint64_t>(compressed.size(), frame_left);
        const auto piece = std::span(compressed).first(n);
        if (auto ok = read(piece, "records"); !ok) return ok;
        frame_left -= n;
        frame_sum.add(piece);
        in = {compressed.data(), n, 0};
        starved = n == 0;
      }
      const std::size_t before = out.pos;
      const std::size_t left = ::ZSTD_decompressStream(stream.get(), &out, &in);
      if (::ZSTD_isError(left) != 0) {
        return damaged(at - (in.size - in.pos), fmt::format("records, near number {}: {}",
                                                            records + out.pos / sizeof(TraceRecord),
                                                            ::ZSTD_getErrorName(left)));
      }
      frame_ended = left == 0;
      // What the decompressor still held may have been enough; when it was not, the end is missing.
      if (starved && !frame_ended && out.pos == before) return cut_off(file_bytes, "records");
    }
    plain_end = out.pos;
    return {};
  }

  // After the end record: the frame, and with it the file, must end here.
  Result<void> check_end(const TraceRecord& end) {
    if (end.detail != kEndMark) {
      return damaged(at, fmt::format("record {}, chunk: {} of {}", records, end.chunk,
                                     header.chunk_bytes.size()));
    }
    if (end.time_ns != records) {
      return damaged(at,
                     fmt::format("end record: {} records claimed, {} read", end.time_ns, records));
    }
    if (plain_begin == plain_end && !frame_ended) {
      if (auto ok = refill(); !ok) return ok;
    }
    if (plain_begin != plain_end || !frame_ended) {
      return damaged(at, "there are records behind the end record");
    }
    if (in.pos != in.size || frame_left != 0) {
      return damaged(at - (in.size - in.pos), "there is something behind the records");
    }
    std::uint64_t claimed = 0;
    const std::uint64_t sum_at = at;
    if (auto ok = read(std::as_writable_bytes(std::span(&claimed, 1)), "checksum"); !ok) return ok;
    if (claimed != frame_sum.value()) {
      return damaged(sum_at, "checksum: the records are not what was written");
    }
    std::byte more{};
    if (::read(fd.get(), &more, 1) > 0) return damaged(at, "the file grew while it was read");
    done = true;
    return {};
  }

  Result<std::size_t> next(std::span<TraceRecord> out) {
    std::size_t filled = 0;
    while (filled < out.size() && !done) {
      if (plain_end - plain_begin < sizeof(TraceRecord)) {
        if (auto ok = refill(); !ok) return tl::unexpected(ok.error());
        continue;
      }
      TraceRecord record;
      std::memcpy(&record, plain.data() + plain_begin, sizeof record);
      plain_begin += sizeof record;
      if (record.chunk == kEndChunk) {
        if (auto ok = check_end(record); !ok) return tl::unexpected(ok.error());
        break;
      }
      const auto chunk_count = static_cast<std::uint32_t>(header.chunk_bytes.size());
      if (const char* field = objection(record, header.kind, chunk_count)) {
        return damaged(at, fmt::format("record {}, {}: chunk {} of {}, detail {}", records, field,
                                       record.chunk, chunk_count, record.detail));
      }
      out[filled++] = record;
      ++records;
    }
    return filled;
  }
};

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader> TraceReader::open(const std::string& path) try {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (auto ok = impl->open_file(); !ok) return tl::unexpected(ok.error());
  if (auto ok = impl->read_header(); !ok) return tl::unexpected(ok.error());
  if (auto ok = impl->start_frame(); !ok) return tl::unexpected(ok.error());
  return TraceReader(std::move(impl));
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, path, "no memory for its chunk table");
}

const TraceHeader& TraceReader::header() const {
  return impl_->header;
}

std::uint64_t TraceReader::bytes_read() const {
  return impl_->at;
}

std::uint64_t TraceReader::file_bytes() const {
  return impl_->file_bytes;
}

Result<std::size_t> TraceReader::next(std::span<TraceRecord> out) {
  if (impl_->failure) return tl::unexpected(*impl_->failure);
  auto filled = impl_->next(out);
  if (!filled) impl_->failure = filled.error();
  return filled;
}

}  // namespace resid

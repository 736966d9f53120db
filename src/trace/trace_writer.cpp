// Writing a trace: a stream under a temporary name, renamed when it is whole.
//
// `PATH.part` is locked while it is written. A crash leaves it without a lock, and the next writer
// of the same path takes it over; a second writer at the same time is refused.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <optional>

#include <fmt/format.h>
#include <zstd.h>

#include "base/fd.hpp"
#include "trace/trace.hpp"
#include "trace/trace_layout.hpp"

namespace resid {

namespace {

using namespace trace_layout;

// Fast before small: a trace must not slow down the run that it describes.
constexpr int kLevel = 1;

struct FreeStream {
  void operator()(ZSTD_CStream* stream) const { ::ZSTD_freeCStream(stream); }
};
using Stream = std::unique_ptr<ZSTD_CStream, FreeStream>;

tl::unexpected<Failure> bad_header(const std::string& path, std::string why) {
  return fail(Status::internal, path, "trace header: " + why);
}

Result<void> check(const std::string& path, const TraceHeader& h) {
  if (path.empty() || path.back() == '/') {
    return fail(Status::usage, "trace file", fmt::format("'{}' is no file name", path),
                "name the file to write");
  }
  if (name(h.kind).empty()) return bad_header(path, "no such kind");
  if (h.model.size() > kModelTextMost) return bad_header(path, "the model's name is too long");
  if (h.config_hash.size() > kConfigHashMost) return bad_header(path, "config_hash is too long");
  if (h.chunk_bytes.size() > kChunksMost) return bad_header(path, "too many chunks");
  if (h.cycle_chunks > h.chunk_bytes.size()) return bad_header(path, "cycle_chunks beyond the end");
  if ((h.cycle_chunks == 0) != (h.passes == 0)) {
    return bad_header(path, "cycle_chunks and passes must both be zero or neither");
  }
  for (std::size_t i = 0; i < h.chunk_bytes.size(); ++i) {
    if (h.chunk_bytes[i] == 0) return bad_header(path, fmt::format("chunk {} has no bytes", i));
  }
  return {};
}

// A trace may be replaced by a trace; anything else that has the name stays. An empty file is what
// a crash leaves.
Result<void> check_replaceable(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return {};  // absent, or what stands there is refused when it is opened for writing
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0 || st.st_size == 0 || !S_ISREG(st.st_mode)) return {};
  std::array<char, kMagic.size()> start{};
  const ssize_t n = ::pread(fd.get(), start.data(), start.size(), 0);
  if (n == static_cast<ssize_t>(start.size()) && start == kMagic) return {};
  return fail(Status::usage, path, "exists and is no trace", "choose another name");
}

// Makes `path` and takes its lock. Whoever held the lock before may have renamed or removed the
// file meanwhile; then the name leads elsewhere and we begin anew.
Result<Fd> open_locked(const std::string& path) {
  for (;;) {
    Fd fd(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return fail_errno(Status::write_failed, path, errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return fail(Status::write_failed, path, "another program is writing this trace",
                  "wait for it, or choose another name");
    }
    struct stat ours {};
    struct stat named {};
    if (::fstat(fd.get(), &ours) != 0) return fail_errno(Status::write_failed, path, errno);
    if (!S_ISREG(ours.st_mode)) {
      return fail(Status::not_a_file, path, "is a device, pipe or socket", "choose another name");
    }
    if (::stat(path.c_str(), &named) != 0 || named.st_ino != ours.st_ino ||
        named.st_dev != ours.st_dev) {
      continue;
    }
    if (::ftruncate(fd.get(), 0) != 0) return fail_errno(Status::write_failed, path, errno);
    return fd;
  }
}

}  // namespace

std::string_view name(TraceKind kind) {
  switch (kind) {
    case TraceKind::reference:
      return "reference";
    case TraceKind::fault:
      return "fault";
    case TraceKind::fetch:
      return "fetch";
    case TraceKind::victim:
      return "victim";
  }
  return {};
}

struct TraceWriter::Impl {
  std::string path;
  std::string temporary;  // empty once it has its name
  Fd fd;
  Stream stream;
  TraceKind kind = TraceKind::reference;
  std::uint32_t chunk_count = 0;
  std::uint64_t records = 0;
  bool finished = false;
  std::optional<Failure> failure;
  Checksum frame_sum;
  std::vector<std::byte> compressed;

  ~Impl() {
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }

  tl::unexpected<Failure> broken(tl::unexpected<Failure> why) {
    failure = why.value();
    return why;
  }

  Result<void> write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t n = ::write(fd.get(), data.data(), data.size());
      if (n < 0) {
        if (errno == EINTR) continue;
        return broken(fail_errno(Status::write_failed, path, errno));
      }
      data = data.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  // Passes `data` through the compressor; what it gives goes to the file.
  Result<void> compress(std::span<const std::byte> data, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    for (;;) {
      ZSTD_outBuffer out{compressed.data(), compressed.size(), 0};
      const std::size_t left = ::ZSTD_compressStream2(stream.get(), &out, &in, end);
      if (::ZSTD_isError(left) != 0) {
        return broken(fail(Status::internal, path,
                           fmt::format("the compressor failed: {}", ::ZSTD_getErrorName(left))));
      }
      const auto made = std::span<const std::byte>(compressed).first(out.pos);
      frame_sum.add(made);
      if (auto ok = write(made); !ok) return ok;
      if (in.pos == in.size && (end == ZSTD_e_continue || left == 0)) return {};
    }
  }

  Result<void> start_stream() {
    stream.reset(::ZSTD_createCStream());
    if (!stream) return fail(Status::out_of_memory, path, "no memory for the compressor");
    compressed.resize(::ZSTD_CStreamOutSize());
    // The window is fixed, whatever the level would choose, and the size is not told, so that the
    // frame begins with kFrameStart.
    const auto set = [&](ZSTD_cParameter parameter, int value) {
      return ::ZSTD_isError(::ZSTD_CCtx_setParameter(stream.get(), parameter, value)) == 0;
    };
    if (set(ZSTD_c_compressionLevel, kLevel) && set(ZSTD_c_windowLog, kWindowLog) &&
        set(ZSTD_c_checksumFlag, 1) && set(ZSTD_c_contentSizeFlag, 0)) {
      return {};
    }
    return fail(Status::internal, path, "the compressor does not take its parameters");
  }

  Result<void> write_header(const TraceHeader& h) {
    FixedHeader fixed;
    fixed.kind = static_cast<std::uint32_t>(h.kind);
    fixed.model_text_bytes = static_cast<std::uint32_t>(h.model.size());
    fixed.model_bytes = h.model_bytes;
    fixed.model_fingerprint = h.model_fingerprint;
    fixed.config_hash_bytes = static_cast<std::uint32_t>(h.config_hash.size());
    fixed.cycle_chunks = h.cycle_chunks;
    fixed.passes = h.passes;
    fixed.chunk_count = static_cast<std::uint32_t>(h.chunk_bytes.size());
    const auto text = std::as_bytes(std::span(h.model));
    const auto hash = std::as_bytes(std::span(h.config_hash));
    const auto table = std::as_bytes(std::span(h.chunk_bytes));
    Checksum sum;
    sum.add(std::as_bytes(std::span(&fixed, 1)));
    for (const auto part : {text, hash, table})
      sum.add(part);
    fixed.checksum = sum.value();
    for (const auto part : {std::as_bytes(std::span(&fixed, 1)), text, hash, table}) {
      if (auto ok = write(part); !ok) return ok;
    }
    return {};
  }

  Result<void> append(std::span<const TraceRecord> added) {
    if (failure) return tl::unexpected(*failure);
    if (finished) return fail(Status::internal, path, "the trace is finished");
    for (std::size_t i = 0; i < added.size(); ++i) {
      const char* field = objection(added[i], kind, chunk_count);
      if (field == nullptr) continue;
      return broken(fail(Status::internal, path,
                         fmt::format("record {}, {}: chunk {} of {}, detail {}", records + i, field,
                                     added[i].chunk, chunk_count, added[i].detail)));
    }
    if (auto ok = compress(std::as_bytes(added), ZSTD_e_continue); !ok) return ok;
    records += added.size();
    return {};
  }

  Result<void> finish() {
    if (failure) return tl::unexpected(*failure);
    if (finished) return fail(Status::internal, path, "the trace is finished");
    const TraceRecord end{records, kEndChunk, kEndMark};
    if (auto ok = compress(std::as_bytes(std::span(&end, 1)), ZSTD_e_continue); !ok) return ok;
    if (auto ok = compress({}, ZSTD_e_end); !ok) return ok;
    const std::uint64_t sum = frame_sum.value();
    if (auto ok = write(std::as_bytes(std::span(&sum, 1))); !ok) return ok;
    // Without it a crash could leave the name on a file with holes.
    if (::fsync(fd.get()) != 0) return broken(fail_errno(Status::write_failed, path, errno));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return broken(fail_errno(Status::write_failed, path, errno));
    }
    temporary.clear();
    fd.reset();
    finished = true;
    return {};
  }
};

TraceWriter::TraceWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() = default;

Result<TraceWriter> TraceWriter::create(const std::string& path, const TraceHeader& header) try {
  if (auto ok = check(path, header); !ok) return tl::unexpected(ok.error());
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    return fail(Status::not_a_file, path, "is a folder, device or socket",
                "name the file to write");
  }
  for (const std::string& name : {path, path + ".part"}) {
    if (auto ok = check_replaceable(name); !ok) return tl::unexpected(ok.error());
  }
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->kind = header.kind;
  impl->chunk_count = static_cast<std::uint32_t>(header.chunk_bytes.size());
  const std::string temporary = path + ".part";
  auto fd = open_locked(temporary);
  if (!fd) return tl::unexpected(fd.error());
  impl->fd = std::move(*fd);
  impl->temporary = temporary;
  if (auto ok = impl->start_stream(); !ok) return tl::unexpected(ok.error());
  if (auto ok = impl->write_header(header); !ok) return tl::unexpected(ok.error());
  return TraceWriter(std::move(impl));
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, "trace file", "no memory to write one");
}

Result<void> TraceWriter::append(std::span<const TraceRecord> records) {
  return impl_->append(records);
}

Result<void> TraceWriter::finish() {
  return impl_->finish();
}

std::uint64_t TraceWriter::records() const {
  return impl_->records;
}

}  // namespace resid

// Writing a routing trace: a stream under a temporary name, renamed when it is whole. `PATH.part`
// is locked while it is written; what a crash leaves behind has no lock and is written over.

#include <fcntl.h>
#include <lzma.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <new>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "trace/routing.hpp"

namespace resid {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::uint32_t kPreset = 6;  // what xz takes by itself

bool ends_in_xz(std::string_view path) {
  return path.size() > 3 && path.ends_with(".xz");
}

// A routing trace may be replaced by another; anything else that has the name stays. An empty file
// is what a crash leaves.
Result<void> check_replaceable(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return {};
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::not_a_file, path, "is a folder, device or socket",
                "name the file to write");
  }
  if (st.st_size == 0) return {};
  const auto kind = trace_file_kind(path);
  if (kind && *kind == TraceFileKind::routing) return {};
  return fail(Status::usage, path, "exists and is no routing trace", "choose another name");
}

}  // namespace

struct RoutingWriter::Impl {
  std::string path;
  std::string temporary;  // empty once it has its name
  Fd fd;
  bool packed = false;
  lzma_stream stream = LZMA_STREAM_INIT;
  std::vector<std::uint8_t> out;
  std::string text;  // not yet written
  RoutingRules rules;
  std::uint64_t line = 1;
  bool finished = false;
  std::optional<Failure> failure;

  Impl(std::uint32_t experts, std::uint32_t used) : rules(experts, used) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    ::lzma_end(&stream);
    if (fd && !temporary.empty()) ::unlink(temporary.c_str());
  }

  tl::unexpected<Failure> broken(tl::unexpected<Failure> with) {
    failure = with.value();
    return with;
  }

  Result<void> open(const std::string& name) {
    temporary = name + ".part";
    if (auto ok = check_replaceable(name); !ok) return ok;
    fd.reset(::open(temporary.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return fail_errno(Status::write_failed, temporary, errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      temporary.clear();  // it is another writer's
      return fail(Status::write_failed, name + ".part", "another program is writing this trace",
                  "wait for it, or choose another name");
    }
    if (::ftruncate(fd.get(), 0) != 0) return fail_errno(Status::write_failed, temporary, errno);
    path = name;
    packed = ends_in_xz(name);
    if (!packed) return {};
    out.resize(kBlock);
    if (::lzma_easy_encoder(&stream, kPreset, LZMA_CHECK_CRC64) == LZMA_OK) return {};
    return fail(Status::out_of_memory, path, "no memory to compress it");
  }

  Result<void> write(const void* bytes, std::size_t size) {
    const auto* at = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t n = ::write(fd.get(), at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail_errno(Status::write_failed, temporary, errno);
      at += n;
      size -= static_cast<std::size_t>(n);
    }
    return {};
  }

  // Everything in `text`; with `last` the end of the stream as well.
  Result<void> flush(bool last) {
    if (!packed) {
      auto ok = write(text.data(), text.size());
      text.clear();
      return ok;
    }
    stream.next_in = reinterpret_cast<const std::uint8_t*>(text.data());
    stream.avail_in = text.size();
    for (;;) {
      stream.next_out = out.data();
      stream.avail_out = out.size();
      const lzma_ret code = ::lzma_code(&stream, last ? LZMA_FINISH : LZMA_RUN);
      if (auto ok = write(out.data(), out.size() - stream.avail_out); !ok) return ok;
      if (code == LZMA_STREAM_END) break;
      if (code != LZMA_OK) return fail(Status::out_of_memory, path, "compressing it failed");
      if (!last && stream.avail_in == 0 && stream.avail_out > 0) break;
    }
    text.clear();
    return {};
  }

  Result<void> append(const RoutingRow& row) {
    if (failure) return tl::unexpected(*failure);
    if (finished) return fail(Status::internal, path, "appended to after its end");
    if (const auto wrong = rules.take(row)) {
      return broken(fail(Status::internal, path,
                         fmt::format("line {}: {}: {}", line + 1, wrong->column, wrong->why)));
    }
    ++line;
    auto to = std::back_inserter(text);
    fmt::format_to(to, "{},{},{},{}", row.token.seq, row.token.pos, row.token.token_id, row.layer);
    for (const ExpertId expert : row.experts)
      fmt::format_to(to, ",{}", expert);
    text += '\n';
    if (text.size() < kBlock) return {};
    auto ok = flush(false);
    if (!ok) failure = ok.error();
    return ok;
  }

  Result<void> finish() {
    if (failure) return tl::unexpected(*failure);
    if (finished) return {};
    if (const auto wrong = rules.end()) {
      return broken(fail(Status::internal, path, fmt::format("{}: {}", wrong->column, wrong->why)));
    }
    if (auto ok = flush(true); !ok) return broken(tl::unexpected(ok.error()));
    if (::fsync(fd.get()) != 0) return broken(fail_errno(Status::write_failed, temporary, errno));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return broken(fail_errno(Status::write_failed, path, errno));
    }
    temporary.clear();
    fd.reset();
    finished = true;
    return {};
  }
};

RoutingWriter::RoutingWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RoutingWriter::RoutingWriter(RoutingWriter&&) noexcept = default;
RoutingWriter& RoutingWriter::operator=(RoutingWriter&&) noexcept = default;
RoutingWriter::~RoutingWriter() = default;

Result<RoutingWriter> RoutingWriter::create(const std::string& path, std::uint32_t experts,
                                            std::uint32_t used) try {
  if (path.empty() || path.back() == '/') {
    return fail(Status::usage, "routing trace", fmt::format("'{}' is no file name", path),
                "name the file to write");
  }
  if (used == 0 || used > kExpertsUsedMost || experts > kExpertsMost ||
      (experts != 0 && used > experts)) {
    return fail(Status::internal, path, fmt::format("{} of {} experts a token", used, experts));
  }
  auto impl = std::make_unique<Impl>(experts, used);
  if (auto ok = impl->open(path); !ok) return tl::unexpected(ok.error());
  impl->text = "seq,pos,token_id,layer";
  for (std::uint32_t i = 0; i < used; ++i)
    impl->text += fmt::format(",e{}", i);
  impl->text += '\n';
  return RoutingWriter(std::move(impl));
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, path, "no memory to write it");
}

Result<void> RoutingWriter::append(const RoutingRow& row) {
  return impl_->append(row);
}

Result<void> RoutingWriter::finish() {
  return impl_->finish();
}

}  // namespace resid

#include "trace/text_lines.hpp"

#include <lzma.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "trace/trace_file.hpp"

namespace resid {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::size_t kLineMost = std::size_t{16} << 10;
// What xz -9 needs to be read, and no more: the memory that a file asks for is not believed.
constexpr std::uint64_t kDecoderMemoryMost = std::uint64_t{80} << 20;
constexpr std::array<std::uint8_t, 6> kXzMagic = {0xfd, '7', 'z', 'X', 'Z', 0};
constexpr const char* kAgain = "the file is damaged or cut off: record or copy it again";

// lzma_stream is a plain struct whose inside must be given back.
struct Decoder {
  lzma_stream stream = LZMA_STREAM_INIT;
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { ::lzma_end(&stream); }
};

std::string_view reason(lzma_ret code) {
  switch (code) {
    case LZMA_FORMAT_ERROR:
      return "what follows is no xz stream";
    case LZMA_OPTIONS_ERROR:
      return "the xz stream uses options that this liblzma does not know";
    case LZMA_MEMLIMIT_ERROR:
      return "the xz stream wants more memory to be read than xz -9 ever does";
    default:
      return "the xz stream is damaged";
  }
}

}  // namespace

struct TextLines::Impl {
  std::string path;
  Fd fd;
  std::uint64_t file_bytes = 0;
  std::uint64_t at = 0;  // how much of the file has been read
  bool file_ended = false;
  std::unique_ptr<Decoder> decoder;  // of an xz file
  std::vector<std::uint8_t> packed;  // of an xz file
  std::vector<char> text;
  std::size_t begin = 0;  // the part of `text` that was not handed out
  std::size_t end = 0;
  bool text_ended = false;
  std::uint64_t line = 0;

  tl::unexpected<Failure> bad(const std::string& where, std::string_view why) const {
    return fail(Status::malformed, path, fmt::format("{}: {}", where, why), kAgain);
  }

  Result<std::size_t> read(void* out, std::size_t most) {
    for (;;) {
      const ssize_t n = ::read(fd.get(), out, most);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail_errno(Status::unreadable, path, errno);
      at += static_cast<std::uint64_t>(n);
      file_ended = n == 0;
      return static_cast<std::size_t>(n);
    }
  }

  Result<void> open_file() {
    auto file = open_trace_file(path);
    if (!file) return tl::unexpected(file.error());
    fd = std::move(file->fd);
    file_bytes = file->bytes;
    if (file_bytes == 0) {
      return fail(Status::empty_file, path, "is empty", "record the trace again");
    }
    return {};
  }

  Result<void> start() {
    text.resize(kBlock + kLineMost);
    std::array<std::uint8_t, kXzMagic.size()> magic{};
    const ssize_t n = ::pread(fd.get(), magic.data(), magic.size(), 0);
    if (n < 0) return fail_errno(Status::unreadable, path, errno);
    if (magic != kXzMagic) return {};
    decoder = std::make_unique<Decoder>();
    packed.resize(kBlock);
    const lzma_ret code =
        ::lzma_stream_decoder(&decoder->stream, kDecoderMemoryMost, LZMA_CONCATENATED);
    if (code == LZMA_OK) return {};
    return fail(Status::out_of_memory, path, "no memory to decompress it");
  }

  // Puts more text behind `end`, at least a byte or else text_ended.
  Result<void> more() {
    const std::span<char> room = std::span(text).subspan(end);
    if (!decoder) {
      const auto n = read(room.data(), room.size());
      if (!n) return tl::unexpected(n.error());
      end += *n;
      text_ended = file_ended;
      return {};
    }
    lzma_stream& s = decoder->stream;
    s.next_out = reinterpret_cast<std::uint8_t*>(room.data());
    s.avail_out = room.size();
    while (s.avail_out == room.size()) {
      if (s.avail_in == 0 && !file_ended) {
        const auto n = read(packed.data(), packed.size());
        if (!n) return tl::unexpected(n.error());
        s.next_in = packed.data();
        s.avail_in = *n;
      }
      const lzma_ret code = ::lzma_code(&s, file_ended ? LZMA_FINISH : LZMA_RUN);
      if (code == LZMA_STREAM_END) {
        text_ended = true;
        break;
      }
      if (code == LZMA_MEM_ERROR) {
        return fail(Status::out_of_memory, path, "no memory to decompress it");
      }
      if (code == LZMA_BUF_ERROR && file_ended) {
        return bad(fmt::format("offset {}", at), "the file ends inside the xz stream");
      }
      if (code != LZMA_OK && code != LZMA_BUF_ERROR) {
        return bad(fmt::format("offset {}", at - s.avail_in), reason(code));
      }
    }
    end += room.size() - s.avail_out;
    return {};
  }

  Result<bool> next(std::string_view& out) {
    std::size_t searched = begin;
    for (;;) {
      const void* found =
          searched == end ? nullptr : std::memchr(text.data() + searched, '\n', end - searched);
      if (found != nullptr) {
        const auto length =
            static_cast<std::size_t>(static_cast<const char*>(found) - (text.data() + begin));
        ++line;
        if (length > kLineMost) break;
        out = {text.data() + begin, length};
        begin += length + 1;
        if (out.ends_with('\r')) out.remove_suffix(1);
        return true;
      }
      if (text_ended) {
        if (begin == end) return false;
        return bad(fmt::format("line {}", line + 1),
                   "it does not end with a line break, so the file was cut off");
      }
      if (end - begin > kLineMost) {
        ++line;
        break;
      }
      std::memmove(text.data(), text.data() + begin, end - begin);
      end -= begin;
      begin = 0;
      searched = end;
      if (auto ok = more(); !ok) return tl::unexpected(ok.error());
    }
    return bad(fmt::format("line {}", line),
               fmt::format("it is longer than {} characters", kLineMost));
  }
};

TextLines::TextLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextLines::TextLines(TextLines&&) noexcept = default;
TextLines& TextLines::operator=(TextLines&&) noexcept = default;
TextLines::~TextLines() = default;

Result<TextLines> TextLines::open(const std::string& path) try {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (auto ok = impl->open_file(); !ok) return tl::unexpected(ok.error());
  if (auto ok = impl->start(); !ok) return tl::unexpected(ok.error());
  return TextLines(std::move(impl));
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, path, "no memory to read it");
}

Result<bool> TextLines::next(std::string_view& line) {
  return impl_->next(line);
}
std::uint64_t TextLines::number() const {
  return impl_->line;
}
std::uint64_t TextLines::bytes_read() const {
  return impl_->at;
}
std::uint64_t TextLines::file_bytes() const {
  return impl_->file_bytes;
}

}  // namespace resid

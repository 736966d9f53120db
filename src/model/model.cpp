#include "model/model.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "model/byte_reader.hpp"
#include "model/readers.hpp"

namespace resid {
namespace {

// Reads what there is of the first bytes; false on an error, errno set.
bool read_start(int fd, std::array<unsigned char, 16>& start, std::size_t& got) {
  got = 0;
  while (got < start.size()) {
    const ssize_t n = ::pread(fd, start.data() + got, start.size() - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return true;
}

Format sniff(const std::array<unsigned char, 16>& start, std::size_t got, std::uint64_t bytes) {
  if (got >= 4 && std::memcmp(start.data(), "GGUF", 4) == 0) return Format::gguf;
  // A safetensors file has no magic: a length that fits, then the opening of a JSON object.
  if (got < 10) return Format::raw;
  std::uint64_t header = 0;
  for (std::size_t i = 8; i-- > 0;)
    header = header << 8 | start[i];
  const bool object = start[8] == '{' && std::strchr("\"} \t\r\n", start[9]) != nullptr;
  if (object && start[9] != 0 && header >= 2 && header <= kMaxSafetensorsHeader &&
      header <= bytes - 8) {
    return Format::safetensors;
  }
  return Format::raw;
}

Result<ModelFile> read_checked(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(info.st_mode)) return fail(Status::not_a_file, path, "not a regular file");
  if (info.st_size == 0) return fail(Status::empty_file, path, "the file is empty");

  ModelFile file;
  file.path = path;
  file.bytes = static_cast<std::uint64_t>(info.st_size);
  std::array<unsigned char, 16> start{};
  std::size_t got = 0;
  if (!read_start(fd, start, got)) {
    return fail_at(Status::read_failed, path, 0, "magic", std::generic_category().message(errno));
  }
  file.format = sniff(start, got, file.bytes);
  switch (file.format) {
    case Format::gguf:
      return read_gguf(fd, std::move(file));
    case Format::safetensors:
      return read_safetensors(fd, std::move(file));
    case Format::raw:
      break;
  }
  return fail_at(Status::not_a_model, path, 0, "magic",
                 "neither GGUF nor the header of a safetensors file");
}

// NAME-00002-of-00007.EXT taken apart.
struct PartName {
  std::string stem;          // NAME
  std::string extension;     // .EXT
  std::uint32_t number = 0;  // from 1
  std::uint32_t count = 0;

  std::string of(std::uint32_t part) const {
    return fmt::format("{}-{:05}-of-{:05}{}", stem, part, count, extension);
  }
};

std::optional<PartName> split_name(const std::string& path) {
  constexpr std::size_t kTail = 15;  // -00001-of-00002
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash) || dot < kTail) {
    return std::nullopt;
  }
  const std::string_view tail = std::string_view(path).substr(dot - kTail, kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  PartName out;
  for (std::size_t i = 1; i <= 5; ++i) {
    for (auto [at, value] : {std::pair{i, &out.number}, std::pair{i + 9, &out.count}}) {
      if (tail[at] < '0' || tail[at] > '9') return std::nullopt;
      *value = *value * 10 + static_cast<std::uint32_t>(tail[at] - '0');
    }
  }
  if (out.number == 0 || out.number > out.count) return std::nullopt;
  out.stem = path.substr(0, dot - kTail);
  out.extension = path.substr(dot);
  return out;
}

// Opens a regular file and reads its structure.
Result<ModelFile> open_file(const std::string& path) {
  // stat first: opening a device may act on it, and a FIFO would wait for a writer.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    return fail_errno(absent ? Status::no_such_file : Status::unreadable, path, error);
  }
  if (S_ISDIR(info.st_mode)) return fail(Status::not_a_file, path, "is a directory");
  if (!S_ISREG(info.st_mode)) return fail(Status::not_a_file, path, "not a regular file");
  // O_NONBLOCK because the name may have become a FIFO since; it has no effect on regular files.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int error = errno;
    return fail_errno(error == ENOENT ? Status::no_such_file : Status::unreadable, path, error);
  }
  return read_model_file(fd.get(), path);
}

// The metadata of a GGUF part against its name and against the part that was opened first.
Result<void> check_part(const ModelFile& part, const PartName& name, std::uint32_t number,
                        const ModelFile& opened) {
  if (part.format != opened.format) {
    return fail_at(Status::malformed, part.path, 0, "magic",
                   fmt::format("not the format of '{}'", opened.path));
  }
  if (part.format != Format::gguf) return {};
  if (part.split_count != name.count) {
    return fail(
        Status::malformed, part.path,
        fmt::format("key 'split.count': {} parts, its name says {}", part.split_count, name.count));
  }
  if (part.split_no + 1 != number) {
    return fail(Status::malformed, part.path,
                fmt::format("key 'split.no': part {} of {}, its name says {}", part.split_no + 1,
                            part.split_count, number));
  }
  if (part.split_tensors != opened.split_tensors) {
    return fail(Status::malformed, part.path,
                fmt::format("key 'split.tensors.count': {}, '{}' says {}", part.split_tensors,
                            opened.path, opened.split_tensors));
  }
  return {};
}

// No tensor may stand in two parts, and together they must be as many as the file says.
Result<void> check_whole(const Model& model) {
  struct Place {
    std::string_view name;
    const ModelFile* file;
    std::uint64_t offset;
  };
  std::vector<Place> places;
  for (const ModelFile& file : model.files) {
    for (const Tensor& tensor : file.tensors)
      places.push_back({tensor.name, &file, tensor.offset});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(places.begin(), places.end(),
                         [](const Place& a, const Place& b) { return a.name == b.name; });
  if (twin != places.end()) {
    return fail_at(Status::malformed, (twin + 1)->file->path, (twin + 1)->offset,
                   fmt::format("tensor '{}'", printable(twin->name)),
                   fmt::format("also in '{}'", twin->file->path));
  }
  const std::uint64_t expected = model.files.front().split_tensors;
  if (expected != 0 && expected != places.size()) {
    return fail(Status::malformed, model.files.front().path,
                fmt::format("key 'split.tensors.count': {} tensors, the {} parts have {}", expected,
                            model.files.size(), places.size()));
  }
  return {};
}

Result<Model> open_all(const std::string& path) {
  Result<ModelFile> opened = open_file(path);
  if (!opened) return tl::unexpected<Failure>(opened.error());

  // A GGUF file says itself whether it is a part; of a safetensors file only the name tells.
  const std::optional<PartName> name = split_name(path);
  const bool split = opened->format == Format::gguf ? opened->split_count > 1
                                                    : name.has_value() && name->count > 1;
  Model model;
  if (!split) {
    model.files.push_back(std::move(*opened));
    return model;
  }
  if (!name) {
    return fail(Status::malformed, path,
                fmt::format("key 'split.count': part {} of {}, but the name does not end in "
                            "-{:05}-of-{:05}",
                            opened->split_no + 1, opened->split_count, opened->split_no + 1,
                            opened->split_count),
                "give the parts back their names");
  }
  for (std::uint32_t number = 1; number <= name->count; ++number) {
    Result<ModelFile> part = number == name->number ? *opened : open_file(name->of(number));
    if (!part) {
      Failure failure = part.error();
      failure.why += fmt::format(" (part {} of {})", number, name->count);
      return tl::unexpected<Failure>(std::move(failure));
    }
    if (auto checked = check_part(*part, *name, number, *opened); !checked) {
      return tl::unexpected<Failure>(checked.error());
    }
    model.files.push_back(std::move(*part));
  }
  if (auto checked = check_whole(model); !checked) {
    return tl::unexpected<Failure>(checked.error());
  }
  return model;
}

// The preload library must never see an exception (and the allocator may refuse us anywhere).
template <class F>
auto without_exceptions(const std::string& path, F&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Status::out_of_memory, path, "not enough memory for the table of tensors");
  } catch (const std::exception& e) {
    return fail(Status::internal, path, e.what());
  }
}

}  // namespace

std::string_view name(Role role) {
  constexpr std::array<std::string_view, 16> kNames{
      "header",      "embedding", "attention_norm", "attention",     "ffn_norm", "router",
      "expert_gate", "expert_up", "expert_down",    "shared_expert", "ffn_gate", "ffn_up",
      "ffn_down",    "other",     "output_norm",    "output"};
  static_assert(kNames.size() == static_cast<std::size_t>(Role::output) + 1);
  return kNames[static_cast<std::size_t>(role)];
}

std::uint64_t Model::bytes() const {
  std::uint64_t sum = 0;
  for (const ModelFile& file : files)
    sum += file.bytes;
  return sum;
}

bool looks_like_model(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  std::array<unsigned char, 16> start{};
  std::size_t got = 0;
  return read_start(fd, start, got) &&
         sniff(start, got, static_cast<std::uint64_t>(info.st_size)) != Format::raw;
}

Result<ModelFile> read_model_file(int fd, const std::string& path) {
  return without_exceptions(path, [&] { return read_checked(fd, path); });
}

Result<Model> open_model(const std::string& path) {
  return without_exceptions(path, [&] { return open_all(path); });
}

}  // namespace resid

#include "expert/usage_history.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <span>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "base/hash.hpp"

namespace resid {
namespace {

constexpr std::string_view kMagic = "RsUsage\n";
constexpr std::uint32_t kVersion = 1;
constexpr float kNothing = 1e-6F;  // of a use: what has faded so far is gone

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

// Of one file: what stands in front of the weights, whose largest part is the table of tensors.
constexpr std::uint64_t kHeaderMost = std::uint64_t{64} << 20;
constexpr std::uint64_t kRouterMost = std::uint64_t{16} << 20;

// The hash of a piece of a file, after what was hashed before it.
Result<std::uint64_t> hash_piece(const Fd& fd, const std::string& path, std::uint64_t offset,
                                 std::uint64_t bytes, std::uint64_t hash) {
  std::vector<char> block(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 20));
  while (bytes != 0) {
    const std::size_t want = std::min<std::uint64_t>(bytes, block.size());
    const ssize_t n = ::pread(fd.get(), block.data(), want, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(Status::read_failed, path, n < 0 ? errno : EIO);
    hash = fnv1a({block.data(), static_cast<std::size_t>(n)}, hash);
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return hash;
}

Result<std::uint64_t> identity(const Model& model) {
  std::uint64_t hash = fnv1a(kMagic);
  bool router_seen = false;
  for (const ModelFile& file : model.files) {
    const Fd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(Status::unreadable, file.path, errno);
    hash = fnv1a(fmt::format("{} {};", file.bytes, file.data_offset), hash);
    auto with = hash_piece(fd, file.path, 0, std::min(file.data_offset, kHeaderMost), hash);
    if (!with) return with;
    hash = *with;
    for (const Tensor& tensor : file.tensors) {
      if (router_seen || tensor.role != Role::router) continue;
      router_seen = true;
      with = hash_piece(fd, file.path, tensor.offset, std::min(tensor.bytes, kRouterMost), hash);
      if (!with) return with;
      hash = *with;
    }
  }
  return hash;
}

template <class T>
void put(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}
template <class T>
void put(std::string& out, T value) {
  put(out, std::span<const T>(&value, 1));
}

// Takes numbers off the front of a text that is long enough.
template <class T>
void take(std::string_view& from, std::span<T> into) {
  std::memcpy(into.data(), from.data(), into.size_bytes());
  from.remove_prefix(into.size_bytes());
}
template <class T>
T take(std::string_view& from) {
  T value{};
  take(from, std::span<T>(&value, 1));
  return value;
}

bool is_count(double value) {
  return std::isfinite(value) && value >= 0;
}

}  // namespace

Result<UsageHistory> UsageHistory::of(const Model& model) {
  std::map<std::uint32_t, std::uint32_t> experts;  // by layer
  for (const ModelFile& file : model.files) {
    for (const Tensor& tensor : file.tensors) {
      if (tensor.layer < 0 || tensor.experts == 0 || !is_routed(tensor.role)) continue;
      std::uint32_t& most = experts[static_cast<std::uint32_t>(tensor.layer)];
      most = std::max(most, tensor.experts);
    }
  }
  UsageHistory history;
  if (experts.empty() || experts.rbegin()->first >= kLayersMost) return history;
  for (const auto& [layer, count] : experts) {
    if (count > kExpertsMost) return history;
  }
  auto hash = identity(model);
  if (!hash) return tl::unexpected(hash.error());
  history.model = *hash;
  ExpertUsage& usage = history.usage;
  for (const auto& [layer, count] : experts) {
    usage.layers.push_back(layer);
    usage.experts = std::max(usage.experts, count);
  }
  usage.tokens.assign(usage.layers.size(), 0);
  usage.uses.assign(usage.layers.size() * usage.experts, 0);
  return history;
}

bool UsageHistory::same_shape(const UsageHistory& other) const {
  return usage.experts == other.usage.experts && usage.layers == other.usage.layers;
}

void UsageHistory::add(const UsageHistory& newer) {
  for (std::size_t layer = 0; layer < usage.layers.size(); ++layer) {
    const double left = std::exp2(-newer.usage.tokens[layer] / kHalfLife);
    usage.tokens[layer] = usage.tokens[layer] * left + newer.usage.tokens[layer];
    for (std::size_t e = 0; e < usage.experts; ++e) {
      float& uses = usage.uses[layer * usage.experts + e];
      const float old = uses * static_cast<float>(left);
      uses = (old < kNothing ? 0.0F : old) + newer.usage.uses[layer * usage.experts + e];
    }
  }
}

std::string usage_file_name(std::uint64_t model) {
  return fmt::format("{:016x}.usage", model);
}

std::string encode(const UsageHistory& history) {
  const ExpertUsage& usage = history.usage;
  std::string out(kMagic);
  put(out, kVersion);
  put(out, history.model);
  put(out, static_cast<std::uint32_t>(usage.layers.size()));
  put(out, usage.experts);
  put(out, std::span(usage.layers));
  put(out, std::span(usage.tokens));
  put(out, std::span(usage.uses));
  put(out, fnv1a(out));
  return out;
}

Result<UsageHistory> decode_usage(std::string_view bytes, const std::string& what) {
  const auto damaged = [&what](std::string_view why) {
    return fail(Status::malformed, what, fmt::format("is no usage history: {}", why),
                "it is not used; delete it, or leave it: a new one is begun");
  };
  constexpr std::size_t kFront = kMagic.size() + 20;
  if (!bytes.starts_with(kMagic)) return damaged("it does not begin as one");
  if (bytes.size() < kFront + 8) return damaged("it is cut off");
  std::string_view rest = bytes.substr(kMagic.size());
  const auto version = take<std::uint32_t>(rest);
  if (version != kVersion) {
    return fail(
        Status::unsupported, what,
        fmt::format("is a usage history of version {}, this residctl knows {}", version, kVersion),
        "it is not used; use the residctl that wrote it, or delete it");
  }
  std::string_view tail = bytes.substr(bytes.size() - 8);
  if (take<std::uint64_t>(tail) != fnv1a(bytes.substr(0, bytes.size() - 8))) {
    return damaged("its checksum is another");
  }
  UsageHistory history;
  ExpertUsage& usage = history.usage;
  history.model = take<std::uint64_t>(rest);
  const auto layers = take<std::uint32_t>(rest);
  usage.experts = take<std::uint32_t>(rest);
  if (layers == 0 || layers > UsageHistory::kLayersMost || usage.experts == 0 ||
      usage.experts > UsageHistory::kExpertsMost) {
    return damaged("its shape is no model's");
  }
  const std::uint64_t want = std::uint64_t{layers} * (12 + 4 * std::uint64_t{usage.experts}) + 8;
  if (rest.size() != want) return damaged("its size does not fit its shape");
  usage.layers.resize(layers);
  usage.tokens.resize(layers);
  usage.uses.resize(std::size_t{layers} * usage.experts);
  take(rest, std::span(usage.layers));
  take(rest, std::span(usage.tokens));
  take(rest, std::span(usage.uses));
  const bool rising = std::adjacent_find(usage.layers.begin(), usage.layers.end(),
                                         std::greater_equal<>()) == usage.layers.end();
  if (!rising || usage.layers.back() >= UsageHistory::kLayersMost ||
      !std::all_of(usage.tokens.begin(), usage.tokens.end(), is_count) ||
      !std::all_of(usage.uses.begin(), usage.uses.end(), is_count)) {
    return damaged("its numbers are no counts");
  }
  return history;
}

Result<UsageHistory> read_usage(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    return fail_errno(errno == ENOENT ? Status::no_such_file : Status::unreadable, path, errno);
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::unreadable, path, "is no regular file", "name another for the history");
  }
  const auto bytes = static_cast<std::uint64_t>(st.st_size);
  if (bytes > UsageHistory::kBytesMost) return decode_usage({}, path);
  std::string text(bytes, '\0');
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd.get(), text.data() + done, bytes - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(Status::unreadable, path, errno);
    if (n == 0) text.resize(done);  // cut off meanwhile: the checksum will say so
    if (n == 0) break;
    done += static_cast<std::uint64_t>(n);
  }
  return decode_usage(text, path);
}

}  // namespace resid

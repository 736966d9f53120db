// GGUF versions 2 and 3 (ggml/docs/gguf.md), little-endian.
//
// Layout: magic, version, tensor count, key count; the keys with their values; the descriptors of
// the tensors; padding to the alignment; the data. Every count is checked against the bytes that
// are left before it is believed, so a lying count costs nothing: no allocation is larger than a
// small multiple of the bytes read.

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/byte_reader.hpp"
#include "model/ggml_types.hpp"
#include "model/readers.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kMaxKeys = 1U << 20;
constexpr std::uint64_t kMaxLayers = 999'999;          // as many as a tensor's name may count
constexpr std::uint64_t kMaxKey = 65535;               // the specification's own limit
constexpr std::uint64_t kMaxKeptString = 64 * 1024;    // of values we keep; others are skipped
constexpr std::uint64_t kMaxMetadata = 1ULL << 30;     // vocabularies take tens of MiB
constexpr std::uint64_t kSmallestKey = 8 + 1 + 4 + 1;  // length, one letter, type, one byte
constexpr std::uint64_t kSmallestTensor = 8 + 1 + 4 + 4 + 8;  // length, letter, dims, type, offset
constexpr std::uint32_t kMaxDims = 4;                         // GGML_MAX_DIMS
constexpr std::uint32_t kDefaultAlignment = 32;

enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Bytes of a scalar; 0 for strings, arrays and numbers that are no type.
std::uint64_t scalar_bytes(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

bool is_integer(std::uint32_t type) {
  return type <= kInt32 || type == kUint64 || type == kInt64;
}

bool is_signed(std::uint32_t type) {
  return type == kInt8 || type == kInt16 || type == kInt32 || type == kInt64;
}

// A number from the metadata, with the place it came from.
struct KeyedNumber {
  std::string key;
  std::uint32_t value = 0;
  std::uint64_t at = 0;
};

class GgufParser {
 public:
  GgufParser(int fd, ModelFile file)
      : file_(std::move(file)), in_(fd, file_.path, file_.bytes, kMaxMetadata) {}

  Result<ModelFile> parse() {
    if (!header() || !keys() || !apply_numbers() || !tensors()) return in_.failure();
    if (auto settled = settle_tensors(file_, where_); !settled) {
      return tl::unexpected<Failure>(settled.error());
    }
    count_layers(file_);
    return std::move(file_);
  }

 private:
  bool malformed(std::uint64_t offset, std::string_view field, std::string reason) {
    return in_.refuse(Status::malformed, offset, field, std::move(reason));
  }

  bool header() {
    std::uint32_t magic = 0;
    std::uint32_t version = 0;
    if (!in_.u32(magic, "magic") || !in_.u32(version, "version")) return false;
    if (version != 2 && version != 3) {
      // A version whose low half is empty is a small number written by a big-endian machine.
      const bool swapped = version != 0 && (version & 0xffffU) == 0;
      return in_.refuse(Status::unsupported, 4, "version",
                        swapped ? std::string("big-endian file; only little-endian is read")
                                : fmt::format("GGUF version {}; 2 and 3 are read", version));
    }
    file_.version = version;
    if (!in_.u64(tensor_count_, "tensor count") || !in_.u64(key_count_, "key count")) return false;
    return believable(8, "tensor count", tensor_count_, kSmallestTensor, kMaxTensors) &&
           believable(16, "key count", key_count_, kSmallestKey, kMaxKeys);
  }

  // Whether `count` records of at least `smallest` bytes can follow.
  bool believable(std::uint64_t offset, std::string_view field, std::uint64_t count,
                  std::uint64_t smallest, std::uint64_t most) {
    if (count > in_.remaining() / smallest) {
      return malformed(offset, field, fmt::format("{} cannot fit in the {}", count, in_.left()));
    }
    if (count > most) {
      return in_.refuse(Status::unsupported, offset, field,
                        fmt::format("{} is more than the {} that are read", count, most));
    }
    return true;
  }

  // The length in front of a string, checked against what is left.
  bool length(std::uint64_t& bytes, std::string_view field) {
    const std::uint64_t at = in_.position();
    if (!in_.u64(bytes, field)) return false;
    if (bytes <= in_.remaining()) return true;
    return malformed(at, field, fmt::format("{} bytes long, with {}", bytes, in_.left()));
  }

  bool string(std::string& out, std::uint64_t longest, std::string_view field) {
    const std::uint64_t at = in_.position();
    std::uint64_t bytes = 0;
    if (!length(bytes, field)) return false;
    if (bytes > longest) {
      return malformed(at, field, fmt::format("{} bytes long; {} are allowed", bytes, longest));
    }
    return in_.text(out, bytes, field);
  }

  bool skip_string(std::string_view field) {
    std::uint64_t bytes = 0;
    return length(bytes, field) && in_.skip(bytes, field);
  }

  bool name(std::string& out, std::uint64_t longest, std::string_view field) {
    const std::uint64_t at = in_.position();
    if (!string(out, longest, field)) return false;
    if (out.empty()) return malformed(at, field, "empty");
    // Readers written in C would see a shorter name than we do.
    if (out.find('\0') != std::string::npos) return malformed(at, field, "contains a zero byte");
    return true;
  }

  bool keys() {
    std::vector<std::pair<std::string, std::uint64_t>> seen;
    std::string key;
    for (std::uint64_t i = 0; i < key_count_; ++i) {
      const std::string ordinal = std::to_string(i);
      in_.subject("key", ordinal);
      const std::uint64_t at = in_.position();
      if (!name(key, kMaxKey, "name")) return false;
      seen.emplace_back(key, at);
      in_.subject("key", key);
      if (!value(key)) return false;
      in_.subject({}, {});
    }
    std::sort(seen.begin(), seen.end());
    const auto twin = std::adjacent_find(
        seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twin == seen.end()) return true;
    in_.subject("key", twin->first);
    return malformed((twin + 1)->second, "name",
                     fmt::format("already used at offset {}", twin->second));
  }

  bool value(const std::string& key) {
    const std::uint64_t at = in_.position();
    std::uint32_t type = 0;
    if (!in_.u32(type, "value type")) return false;
    if (type == kString) {
      if (key == "general.architecture") return string(file_.architecture, kMaxKeptString, "value");
      if (key == "general.name") return string(file_.model_name, kMaxKeptString, "value");
      if (wants_number(key)) return wrong_type(at, type);
      return skip_string("value");
    }
    if (key == "general.architecture" || key == "general.name") return wrong_type(at, type);
    if (type == kArray) return array(key);
    if (scalar_bytes(type) == 0) {
      return malformed(at, "value type", fmt::format("{} is not a GGUF value type", type));
    }
    return scalar(key, type, at);
  }

  bool wrong_type(std::uint64_t at, std::uint32_t type) {
    return malformed(at, "value type", fmt::format("type {} where another is required", type));
  }

  // Keys whose number we use. Per-layer arrays of some of them exist and are passed over.
  static bool wants_number(std::string_view key) {
    return key == "general.alignment" || key.starts_with("split.") ||
           key.ends_with(".block_count") || key.ends_with(".expert_count") ||
           key.ends_with(".expert_used_count") || key.ends_with(".nextn_predict_layers");
  }

  bool scalar(const std::string& key, std::uint32_t type, std::uint64_t at) {
    const std::uint64_t value_at = in_.position();
    std::uint64_t raw = 0;
    for (std::uint64_t i = 0; i < scalar_bytes(type); ++i) {
      std::uint8_t byte = 0;
      if (!in_.u8(byte, "value")) return false;
      raw |= std::uint64_t{byte} << (8 * i);
    }
    if (type == kBool && raw > 1) {
      return malformed(value_at, "value", fmt::format("{} is neither false nor true", raw));
    }
    if (!wants_number(key)) return true;
    if (!is_integer(type) || (key == "general.alignment" && type != kUint32)) {
      return wrong_type(at, type);
    }
    const std::uint64_t sign = std::uint64_t{1} << (8 * scalar_bytes(type) - 1);
    if (is_signed(type) && (raw & sign) != 0) return malformed(value_at, "value", "negative");
    if (raw > std::numeric_limits<std::uint32_t>::max()) {
      return malformed(value_at, "value", fmt::format("{} is out of range", raw));
    }
    numbers_.push_back({key, static_cast<std::uint32_t>(raw), value_at});
    return true;
  }

  bool array(std::string_view key) {
    if (key == "general.alignment" || key.starts_with("split.")) {
      return wrong_type(in_.position() - 4, kArray);
    }
    const std::uint64_t type_at = in_.position();
    std::uint32_t type = 0;
    std::uint64_t count = 0;
    if (!in_.u32(type, "array type")) return false;
    const std::uint64_t count_at = in_.position();
    if (!in_.u64(count, "array length")) return false;
    if (type == kArray) {
      return in_.refuse(Status::unsupported, type_at, "array type", "arrays of arrays");
    }
    const std::uint64_t smallest = type == kString ? 8 : scalar_bytes(type);
    if (smallest == 0) {
      return malformed(type_at, "array type", fmt::format("{} is not a GGUF value type", type));
    }
    if (count > in_.remaining() / smallest) {
      return malformed(count_at, "array length",
                       fmt::format("{} elements cannot fit in the {}", count, in_.left()));
    }
    if (type != kString) return in_.skip(count * smallest, "array");
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!skip_string("array element")) return false;
    }
    return true;
  }

  bool apply_numbers() {
    file_.alignment = kDefaultAlignment;
    const std::string own = file_.architecture + ".";
    bool has_split_no = false;
    std::uint64_t split_no_at = 0;
    for (const auto& [name, value, at] : numbers_) {
      const std::string_view key = name;
      in_.subject("key", key);
      if (key == "general.alignment") {
        if (!std::has_single_bit(value) || value < 8) {
          return malformed(at, "value",
                           fmt::format("{} is not a power of two of at least 8", value));
        }
        file_.alignment = value;
      } else if (key == "split.no") {
        file_.split_no = value;
        has_split_no = true;
        split_no_at = at;
      } else if (key == "split.count") {
        // Parts are numbered with five digits in their names.
        if (value > 99999) {
          return malformed(at, "value", fmt::format("{} parts", value));
        }
        file_.split_count = std::max(value, 1U);
      } else if (key == "split.tensors.count") {
        file_.split_tensors = value;
      } else if (key.starts_with(own)) {
        const std::string_view what = key.substr(own.size());
        if (what == "block_count" && value > kMaxLayers) {
          return malformed(at, "value", fmt::format("{} layers", value));
        }
        if (what == "expert_count" && value > kMaxExperts) {
          return malformed(at, "value", fmt::format("{} experts", value));
        }
        if (what == "block_count") file_.layers = value;
        if (what == "expert_count") file_.experts = value;
        if (what == "expert_used_count") file_.experts_used = value;
        if (what == "nextn_predict_layers") file_.draft_layers = value;
      }
    }
    if (has_split_no && file_.split_no >= file_.split_count) {
      in_.subject("key", "split.no");
      return malformed(
          split_no_at, "value",
          fmt::format("part {} of {}, counted from 0", file_.split_no, file_.split_count));
    }
    in_.subject({}, {});
    return true;
  }

  bool tensors() {
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      Tensor tensor;
      const std::string ordinal = std::to_string(i);
      in_.subject("tensor", ordinal);
      if (!name(tensor.name, kMaxName, "name")) return false;
      in_.subject("tensor", tensor.name);
      if (!descriptor(tensor)) return false;
      file_.tensors.push_back(std::move(tensor));
      in_.subject({}, {});
    }
    // The data begins at the next multiple of the alignment; only now is that known.
    const std::uint64_t mask = file_.alignment - 1ULL;
    file_.data_offset = std::min((in_.position() + mask) & ~mask, file_.bytes);
    for (std::size_t i = 0; i < file_.tensors.size(); ++i) {
      if (!place(file_.tensors[i], (in_.position() + mask) & ~mask, where_[i])) return false;
    }
    return true;
  }

  // Dimensions, type and offset. `offset` stays relative to the data section until place().
  bool descriptor(Tensor& tensor) {
    const std::uint64_t count_at = in_.position();
    std::uint32_t count = 0;
    if (!in_.u32(count, "dimension count")) return false;
    if (count > kMaxDims) {
      return malformed(count_at, "dimension count",
                       fmt::format("{}; at most {} are allowed", count, kMaxDims));
    }
    tensor.dims.resize(count);
    const std::uint64_t dims_at = in_.position();
    for (std::uint32_t d = 0; d < count; ++d) {
      const std::uint64_t at = in_.position();
      if (!in_.u64(tensor.dims[d], "dimension")) return false;
      if (tensor.dims[d] == 0) return malformed(at, "dimension", fmt::format("{} is zero", d));
    }

    const std::uint64_t type_at = in_.position();
    std::uint32_t number = 0;
    if (!in_.u32(number, "type")) return false;
    const GgmlType type = ggml_type(number);
    if (type.name.empty()) {
      return in_.refuse(Status::unsupported, type_at, "type",
                        fmt::format("unknown tensor type {}", number));
    }
    if (type.block == 0) {
      return in_.refuse(Status::unsupported, type_at, "type",
                        fmt::format("type {} ({}), which ggml has removed", number, type.name));
    }
    tensor.type = type.name;

    const std::uint64_t row = count == 0 ? 1 : tensor.dims[0];
    if (row % type.block != 0) {
      return malformed(dims_at, "dimension",
                       fmt::format("rows of {} elements are not whole blocks of {} ({})", row,
                                   type.block, type.name));
    }
    // Half the range, so that sums of an offset and a size cannot wrap either.
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / 2;
    std::uint64_t bytes = row / type.block;
    bool fits = bytes <= kMost / type.block_bytes;
    bytes *= type.block_bytes;
    for (std::uint32_t d = 1; fits && d < count; ++d) {
      fits = tensor.dims[d] <= kMost / bytes;
      bytes *= tensor.dims[d];
    }
    if (!fits) return malformed(dims_at, "dimension", "the size in bytes overflows 64 bits");
    tensor.bytes = bytes;

    const TensorPurpose purpose = purpose_of_gguf_name(tensor.name);
    const std::string trouble =
        assign_purpose(tensor, purpose, tensor.dims.empty() ? 0 : tensor.dims.back());
    if (!trouble.empty()) return malformed(dims_at, "dimension", trouble);

    where_.push_back(in_.position());
    return in_.u64(tensor.offset, "offset");
  }

  // Turns the offset into one from the start of the file and checks it.
  bool place(Tensor& tensor, std::uint64_t data_offset, std::uint64_t where) {
    in_.subject("tensor", tensor.name);
    if (tensor.offset % file_.alignment != 0) {
      return malformed(
          where, "offset",
          fmt::format("{} is not a multiple of the alignment {}", tensor.offset, file_.alignment));
    }
    if (data_offset > file_.bytes || tensor.offset > file_.bytes - data_offset ||
        tensor.bytes > file_.bytes - data_offset - tensor.offset) {
      return malformed(where, "offset",
                       fmt::format("{} bytes at {} + {} pass the end of the file at {}",
                                   tensor.bytes, data_offset, tensor.offset, file_.bytes));
    }
    tensor.offset += data_offset;
    in_.subject({}, {});
    return true;
  }

  ModelFile file_;
  ByteReader in_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::vector<KeyedNumber> numbers_;
  std::vector<std::uint64_t> where_;  // of each tensor's offset field
};

}  // namespace

Result<ModelFile> read_gguf(int fd, ModelFile file) {
  return GgufParser(fd, std::move(file)).parse();
}

}  // namespace resid

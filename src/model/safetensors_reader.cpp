// safetensors (github.com/huggingface/safetensors, section Format of its README): eight bytes of
// header length, a JSON header, the data.
//
// The header is parsed as a stream of events, never into a document: duplicate keys are seen (a
// document keeps the last one silently, which lets two readers disagree about a file), nesting is
// refused at once, and the memory taken is that of the result.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/byte_reader.hpp"
#include "model/readers.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kPrefix = 8;  // the header's length
constexpr std::size_t kMaxDims = 64;  // PyTorch's own limit
constexpr int kMaxNesting = 16;       // of members we do not know

struct Dtype {
  std::string_view name;
  std::uint32_t bits;
};

// safetensors/src/tensor.rs, enum Dtype.
constexpr std::array<Dtype, 22> kDtypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

// Walks the header and leaves behind how far the JSON lexer has come, which nlohmann's events do
// not tell.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

// Receives the events of the header. Each returns false to stop the parser, the failure then being
// in `failure`.
class HeaderEvents {
 public:
  using json = nlohmann::json;
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  HeaderEvents(ModelFile& file, const std::string& header, const char* const& seen)
      : file_(file), header_(header), seen_(seen) {}

  const Failure& failure() const { return failure_; }
  // Where in the file the entry of tensor i begins.
  const std::vector<std::uint64_t>& where() const { return where_; }

  bool null() { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool number_integer(number_integer_t) { return negative(); }
  bool number_float(number_float_t, const string_t&) { return negative(); }
  bool binary(binary_t&) { return scalar(); }

  bool number_unsigned(number_unsigned_t value) {
    if (state_ == State::shape_items) {
      if (tensor_.dims.size() == kMaxDims) {
        return refuse("shape", fmt::format("more than {} dimensions", kMaxDims));
      }
      tensor_.dims.push_back(value);
      return true;
    }
    if (state_ == State::offset_items) {
      if (offsets_seen_ == 2) return refuse("data_offsets", "more than two numbers");
      offsets_[offsets_seen_++] = value;
      return true;
    }
    return scalar();
  }

  bool string(string_t& text) {
    if (state_ == State::metadata || state_ == State::unknown) return after_value();
    if (state_ != State::dtype) return scalar();
    for (const Dtype& dtype : kDtypes) {
      if (dtype.name == text) {
        tensor_.type = dtype.name;
        bits_ = dtype.bits;
        return after_value();
      }
    }
    return refuse("dtype", fmt::format("unknown type '{}'", printable(text)), Status::unsupported);
  }

  bool start_object(std::size_t) {
    switch (state_) {
      case State::outside:
        state_ = State::entries;
        return true;
      case State::entry:
        state_ = State::members;
        return true;
      case State::metadata_entry:
        state_ = State::metadata;
        return true;
      case State::unknown:
        return deeper();
      default:
        return unexpected("an object");
    }
  }

  bool end_object() {
    switch (state_) {
      case State::unknown:
        return shallower();
      case State::metadata:
        state_ = State::entries;
        return true;
      case State::members:
        state_ = State::entries;
        return finish_tensor();
      default:
        state_ = State::outside;
        return true;
    }
  }

  bool key(string_t& text) {
    if (state_ == State::entries) return entry_key(text);
    if (state_ == State::members) return member_key(text);
    return true;
  }

  bool start_array(std::size_t) {
    switch (state_) {
      case State::shape:
        state_ = State::shape_items;
        return true;
      case State::offsets:
        state_ = State::offset_items;
        return true;
      case State::unknown:
        return deeper();
      default:
        return unexpected("an array");
    }
  }

  bool end_array() {
    if (state_ == State::unknown) return shallower();
    state_ = State::members;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    // The text begins with the library's own code in brackets.
    std::string_view text = error.what();
    if (const std::size_t bracket = text.find("] "); bracket != std::string_view::npos) {
      text.remove_prefix(bracket + 2);
    }
    failure_ = fail_at(Status::malformed, file_.path, kPrefix + (position > 0 ? position - 1 : 0),
                       "header", "not valid JSON: " + printable(text))
                   .value();
    return false;
  }

 private:
  enum class State : std::uint8_t {
    outside,  // before the opening or after the closing brace
    entries,  // between the tensors
    entry,    // after a tensor's name
    members,  // inside a tensor's object
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items,
    metadata_entry,  // after the name __metadata__
    metadata,        // inside its object
    unknown,         // the value of a member we do not know
  };

  bool entry_key(string_t& text) {
    entry_at_ = key_start();
    if (text == "__metadata__") {
      name_ = text;
      if (metadata_seen_) return refuse("", "already used");
      metadata_seen_ = true;
      state_ = State::metadata_entry;
      return true;
    }
    tensor_ = Tensor{};
    tensor_.name = text;
    name_ = printable(text);
    bits_ = 0;
    offsets_seen_ = 0;
    dtype_seen_ = shape_seen_ = offsets_key_seen_ = false;
    if (text.empty()) return refuse("name", "empty");
    if (text.size() > kMaxName) {
      return refuse("name", fmt::format("{} bytes long; {} are allowed", text.size(), kMaxName));
    }
    if (text.find('\0') != std::string::npos) return refuse("name", "contains a zero byte");
    if (file_.tensors.size() == kMaxTensors) {
      return refuse("name", fmt::format("more than {} tensors", kMaxTensors), Status::unsupported);
    }
    state_ = State::entry;
    return true;
  }

  bool member_key(const string_t& text) {
    bool* seen = nullptr;
    if (text == "dtype") {
      seen = &dtype_seen_;
      state_ = State::dtype;
    } else if (text == "shape") {
      seen = &shape_seen_;
      state_ = State::shape;
    } else if (text == "data_offsets") {
      seen = &offsets_key_seen_;
      state_ = State::offsets;
    } else {
      state_ = State::unknown;
      return true;
    }
    if (*seen) return refuse(text, "given twice");
    *seen = true;
    return true;
  }

  bool finish_tensor() {
    if (!dtype_seen_) return refuse("dtype", "missing");
    if (!shape_seen_) return refuse("shape", "missing");
    if (!offsets_key_seen_ || offsets_seen_ != 2) return refuse("data_offsets", "missing a number");
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t bits = bits_;
    for (const std::uint64_t dim : tensor_.dims) {
      if (dim != 0 && bits > kMost / dim) return refuse("shape", "the size overflows 64 bits");
      bits *= dim;
    }
    if (bits % 8 != 0) return refuse("shape", fmt::format("{} bits are not whole bytes", bits));
    tensor_.bytes = bits / 8;

    const auto [begin, end] = offsets_;
    const std::uint64_t data_bytes = file_.bytes - file_.data_offset;
    if (begin > end) return refuse("data_offsets", fmt::format("{} is after {}", begin, end));
    if (end > data_bytes) {
      return refuse("data_offsets",
                    fmt::format("{} passes the end of the data at {}", end, data_bytes));
    }
    if (end - begin != tensor_.bytes) {
      return refuse("data_offsets",
                    fmt::format("{} bytes, type and shape need {}", end - begin, tensor_.bytes));
    }
    tensor_.offset = file_.data_offset + begin;
    const std::string trouble = assign_purpose(tensor_, purpose_of_safetensors_name(tensor_.name),
                                               tensor_.dims.empty() ? 0 : tensor_.dims.front());
    if (!trouble.empty()) return refuse("shape", trouble);
    file_.tensors.push_back(std::move(tensor_));
    where_.push_back(entry_at_);
    return true;
  }

  bool scalar() {
    if (state_ == State::unknown) return after_value();
    if (state_ == State::metadata) return refuse("", "a value that is not text");
    return unexpected("a value of this kind");
  }

  bool negative() {
    if (state_ == State::shape_items)
      return refuse("shape", "not a whole number that fits 64 bits");
    if (state_ == State::offset_items) {
      return refuse("data_offsets", "not a whole number that fits 64 bits");
    }
    return scalar();
  }

  // A scalar has ended: back to where its key stood, unless it is an item of something unknown.
  bool after_value() {
    if (state_ == State::dtype || (state_ == State::unknown && nesting_ == 0)) {
      state_ = State::members;
    }
    return true;
  }

  bool deeper() {
    if (++nesting_ <= kMaxNesting) return true;
    return refuse("value", fmt::format("nested more than {} deep", kMaxNesting));
  }

  bool shallower() {
    if (--nesting_ == 0) state_ = State::members;
    return true;
  }

  bool unexpected(std::string_view what) {
    switch (state_) {
      case State::dtype:
        return refuse("dtype", "not text");
      case State::shape:
      case State::shape_items:
        return refuse("shape", "not a list of numbers");
      case State::offsets:
      case State::offset_items:
        return refuse("data_offsets", "not a list of two numbers");
      case State::entry:
        return refuse("", "not an object");
      default:
        return refuse("", fmt::format("{} where it may not stand", what));
    }
  }

  // Where the opening quote of the key stands that was just read: back from the closing quote to
  // the nearest quote that no backslash escapes.
  std::uint64_t key_start() const {
    const char* at = seen_ - 1;
    while (at > header_.data()) {
      --at;
      if (*at != '"') continue;
      std::size_t slashes = 0;
      while (at - slashes > header_.data() && *(at - slashes - 1) == '\\')
        ++slashes;
      if (slashes % 2 == 0) break;
    }
    return kPrefix + static_cast<std::uint64_t>(at - header_.data());
  }

  bool refuse(std::string_view field, std::string_view reason, Status status = Status::malformed) {
    std::string where = name_.empty()             ? std::string("header")
                        : name_ == "__metadata__" ? name_
                                                  : fmt::format("tensor '{}'", name_);
    if (!field.empty()) where += fmt::format(" {}", field);
    failure_ = fail_at(status, file_.path, entry_at_, where, reason).value();
    return false;
  }

  ModelFile& file_;
  const std::string& header_;
  const char* const& seen_;
  State state_ = State::outside;
  int nesting_ = 0;  // inside an unknown member
  Tensor tensor_;
  std::string name_;  // of the entry, fit to print
  std::uint64_t entry_at_ = kPrefix;
  std::uint32_t bits_ = 0;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offsets_seen_ = 0;
  bool dtype_seen_ = false;
  bool shape_seen_ = false;
  bool offsets_key_seen_ = false;
  bool metadata_seen_ = false;
  std::vector<std::uint64_t> where_;
  Failure failure_;
};

// "The byte buffer needs to be entirely indexed, and cannot contain holes": bytes that no tensor
// owns could make the file a second thing besides a model.
Result<void> check_no_holes(const ModelFile& file) {
  std::uint64_t end = file.data_offset;
  for (const Tensor& tensor : file.tensors) {
    if (tensor.offset != end) {
      return fail_at(Status::malformed, file.path, end,
                     fmt::format("tensor '{}' data_offsets", printable(tensor.name)),
                     fmt::format("{} bytes before it belong to no tensor", tensor.offset - end));
    }
    end = tensor.offset + tensor.bytes;
  }
  if (end != file.bytes) {
    return fail_at(Status::malformed, file.path, end, "data",
                   fmt::format("{} bytes at the end belong to no tensor", file.bytes - end));
  }
  return {};
}

}  // namespace

Result<ModelFile> read_safetensors(int fd, ModelFile file) {
  const std::string path = file.path;
  ByteReader in(fd, path, file.bytes, kPrefix + kMaxSafetensorsHeader);
  std::uint64_t length = 0;
  std::string header;
  if (!in.u64(length, "header length")) return in.failure();
  if (length > kMaxSafetensorsHeader || length > file.bytes - kPrefix) {
    return fail_at(Status::malformed, path, 0, "header length",
                   fmt::format("{} bytes, with {} left in the file", length, file.bytes - kPrefix));
  }
  if (!in.text(header, length, "header")) return in.failure();
  file.data_offset = kPrefix + length;
  file.alignment = 8;

  const char* seen = header.data();
  HeaderEvents events(file, header, seen);
  const Cursor begin(header.data(), &seen);
  const Cursor end(header.data() + header.size(), &seen);
  if (!nlohmann::json::sax_parse(begin, end, &events)) {
    return tl::unexpected<Failure>(events.failure());
  }
  if (auto settled = settle_tensors(file, events.where()); !settled) {
    return tl::unexpected<Failure>(settled.error());
  }
  if (auto whole = check_no_holes(file); !whole) return tl::unexpected<Failure>(whole.error());
  count_layers(file);
  return file;
}

}  // namespace resid

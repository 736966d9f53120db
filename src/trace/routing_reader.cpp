// Reading a routing trace. Nothing in the file is believed before it is checked (routing.hpp).

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "base/fd.hpp"
#include "trace/routing.hpp"
#include "trace/text_lines.hpp"
#include "trace/trace_layout.hpp"

namespace resid {
namespace {

constexpr std::uint32_t kFixedColumns = 4;
constexpr std::array<std::string_view, kFixedColumns> kColumns = {"seq", "pos", "token_id",
                                                                  "layer"};
constexpr std::uint64_t kChoicesMost = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::uint64_t kProgressLines = 4096;
constexpr const char* kFormat =
    "a routing trace has the columns seq,pos,token_id,layer,e0,e1,...; record it again";

// Text out of a file, on a terminal, and no more of it than helps.
std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kMost ? out + "..." : out;
}

std::string column_name(std::uint32_t column) {
  return column < kFixedColumns ? std::string(kColumns[column])
                                : fmt::format("e{}", column - kFixedColumns);
}

// Takes the text up to the next comma off `line`.
std::string_view cut_field(std::string_view& line) {
  const std::size_t comma = line.find(',');
  const std::string_view field = line.substr(0, comma);
  line = comma == std::string_view::npos ? std::string_view() : line.substr(comma + 1);
  return field;
}

std::uint32_t count_fields(std::string_view line) {
  std::uint32_t count = 1;
  for (const char c : line)
    count += c == ',' ? 1 : 0;
  return count;
}

class Reader {
 public:
  Reader(const std::string& path, TextLines& lines, std::uint32_t experts)
      : path_(path), lines_(lines), experts_(experts), rules_(experts, 0) {}

  Result<RoutingTrace> read(const RoutingProgress& progress) {
    if (auto ok = read_head(); !ok) return tl::unexpected(ok.error());
    rules_ = RoutingRules(experts_, used_);
    row_.resize(used_);
    for (;;) {
      std::string_view line;
      const auto any = lines_.next(line);
      if (!any) return tl::unexpected(any.error());
      if (!*any) break;
      if (auto ok = take(line); !ok) return tl::unexpected(ok.error());
      if (progress && lines_.number() % kProgressLines == 0) {
        progress(lines_.bytes_read(), lines_.file_bytes());
      }
    }
    if (const auto wrong = rules_.end()) return malformed(wrong->column, wrong->why);
    if (progress) progress(lines_.file_bytes(), lines_.file_bytes());
    trace_.layers.assign(rules_.layers().begin(), rules_.layers().end());
    trace_.experts = experts_ != 0 ? experts_ : rules_.largest_expert() + 1;
    trace_.used = used_;
    return std::move(trace_);
  }

 private:
  tl::unexpected<Failure> malformed(const std::string& column, const std::string& why) const {
    return fail(Status::malformed, path_,
                fmt::format("line {}: {}: {}", lines_.number(), column, why), kFormat);
  }

  //
  Result<void> read_head() {
    std::string_view line;
    const auto any = lines_.next(line);
    if (!any) return tl::unexpected(any.error());
    if (!*any) return fail(Status::empty_file, path_, "is empty", kFormat);
    const std::uint32_t columns = count_fields(line);
    for (std::uint32_t column = 0; column < columns; ++column) {
      const std::string_view field = cut_field(line);
      if (field == column_name(column)) continue;
      return malformed(column_name(column),
                       fmt::format("the column is called '{}'", printable(field)));
    }
    if (columns <= kFixedColumns) return malformed("e0", "there is no column for an expert");
    used_ = columns - kFixedColumns;
    if (used_ > kExpertsUsedMost) {
      return malformed(column_name(columns - 1),
                       fmt::format("more than {} experts a token", kExpertsUsedMost));
    }
    return {};
  }

  Result<std::uint32_t> number(std::uint32_t column, std::string_view field,
                               std::uint32_t most) const {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    const bool whole = end == field.data() + field.size();
    if (error == std::errc() && whole && value <= most) return value;
    const bool too_large = whole && error != std::errc::invalid_argument;
    return malformed(column_name(column),
                     too_large ? fmt::format("{} is more than {}", printable(field), most)
                               : fmt::format("'{}' is no number", printable(field)));
  }

  Result<void> take(std::string_view line) {
    const std::uint32_t columns = count_fields(line);
    if (columns != kFixedColumns + used_) {
      return malformed(
          columns < kFixedColumns + used_ ? column_name(columns) : "end of the line",
          fmt::format("{} columns where the first line has {}", columns, kFixedColumns + used_));
    }
    std::array<std::uint32_t, kFixedColumns> fixed{};
    for (std::uint32_t column = 0; column < columns; ++column) {
      const bool expert = column >= kFixedColumns;
      const auto value =
          number(column, cut_field(line),
                 expert ? kExpertsMost - 1 : std::numeric_limits<std::uint32_t>::max());
      if (!value) return tl::unexpected(value.error());
      if (expert) {
        row_[column - kFixedColumns] = static_cast<ExpertId>(*value);
      } else {
        fixed[column] = *value;
      }
    }
    const RoutingRow row{{fixed[0], fixed[1], fixed[2]}, fixed[3], row_};
    const std::uint64_t tokens_before = rules_.tokens();
    if (const auto wrong = rules_.take(row)) return malformed(wrong->column, wrong->why);
    if (rules_.tokens() != tokens_before) trace_.tokens.push_back(row.token);
    if (trace_.choices.size() + used_ > kChoicesMost) {
      return fail(Status::unsupported, path_, fmt::format("more than {} choices", kChoicesMost),
                  "judge a shorter part of the run");
    }
    trace_.choices.insert(trace_.choices.end(), row_.begin(), row_.end());
    return {};
  }

  const std::string& path_;
  TextLines& lines_;
  std::uint32_t experts_;
  std::uint32_t used_ = 0;
  RoutingRules rules_;
  std::vector<ExpertId> row_;
  RoutingTrace trace_;
};

}  // namespace

Result<TraceFileKind> trace_file_kind(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return fail_errno(errno == ENOENT ? Status::no_such_file : Status::unreadable, path, errno);
  }
  std::array<char, 8> start{};
  const ssize_t n = ::pread(fd.get(), start.data(), start.size(), 0);
  if (n < 0 && errno != EISDIR && errno != ESPIPE) {
    return fail_errno(Status::unreadable, path, errno);
  }
  const std::string_view bytes(start.data(), n < 0 ? 0 : static_cast<std::size_t>(n));
  if (bytes == std::string_view(trace_layout::kMagic.data(), trace_layout::kMagic.size())) {
    return TraceFileKind::chunks;
  }
  const bool xz =
      bytes.starts_with(std::string_view("\xfd"
                                         "7zXZ\0",
                                         6));
  return xz || bytes.starts_with("seq,") ? TraceFileKind::routing : TraceFileKind::unknown;
}

Result<RoutingTrace> read_routing(const std::string& path, std::uint32_t experts,
                                  const RoutingProgress& progress) try {
  auto lines = TextLines::open(path);
  if (!lines) return tl::unexpected(lines.error());
  return Reader(path, *lines, experts).read(progress);
} catch (const std::bad_alloc&) {
  return fail(Status::out_of_memory, path, "its routing does not fit into memory");
}

}  // namespace resid

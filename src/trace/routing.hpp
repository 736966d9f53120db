#pragma once
// Routing traces: which experts the router of each layer chose for each token. Text, one line a
// token and layer, plain or compressed with xz (docs/traces.md):
//
//   seq,pos,token_id,layer,e0,e1,e2,e3
//   0,0,614,0,16,6,4,19
//
// What holds for every trace, checked when one is read and when one is written:
//
// R-1 The first line names the columns; every line has as many, each a decimal number.
// R-2 The lines of a token follow each other, one for each layer, upwards. The first token decides
//     which layers there are (a model may have layers without experts).
// R-3 The lines of a token agree in seq, pos and token_id; pos counts up by one within a sequence.
//     Sequences may take turns: the order of the file is the order in which experts were needed.
// R-4 The experts of a line differ, are below the number of experts, and stand in falling order of
//     their weight (which a trace does not hold, so that cannot be checked).
// R-5 A trace ends with the last layer of a token.
//
// A routing trace belongs to the workload, whatever was resident at the time: an optimum may be
// computed from it (I-10).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/expert_id.hpp"
#include "base/status.hpp"

namespace resid {

struct RoutingToken {
  std::uint32_t seq = 0;
  std::uint32_t pos = 0;
  std::uint32_t token_id = 0;
  bool operator==(const RoutingToken&) const = default;
};

// One line.
struct RoutingRow {
  RoutingToken token;
  std::uint32_t layer = 0;
  std::span<const ExpertId> experts;
};

struct RoutingTrace {
  std::vector<std::uint32_t> layers;  // as numbered in the model; everything below goes by position
  std::uint32_t experts = 0;  // of a layer: as told, else one more than the largest that is named
  std::uint32_t used = 0;     // by a token in a layer
  std::vector<RoutingToken> tokens;
  std::vector<ExpertId> choices;  // by token, then layer, then rank

  std::span<const ExpertId> choice(std::size_t token, std::size_t layer) const {
    return std::span(choices).subspan((token * layers.size() + layer) * used, used);
  }
};

// R-2 to R-5, line by line.
class RoutingRules {
 public:
  // `experts` 0: not known.
  RoutingRules(std::uint32_t experts, std::uint32_t used) : experts_(experts), used_(used) {}

  // The column that is wrong and why, or nothing: then the row has been taken.
  struct Wrong {
    std::string column;
    std::string why;
  };
  std::optional<Wrong> take(const RoutingRow& row);
  // At the end of the trace.
  std::optional<Wrong> end() const;

  std::span<const std::uint32_t> layers() const { return layers_; }
  std::uint64_t tokens() const { return tokens_; }  // begun
  std::uint32_t largest_expert() const { return largest_; }

 private:
  std::optional<Wrong> check_experts(std::span<const ExpertId> experts);
  std::optional<Wrong> check_layer(const RoutingRow& row);
  std::optional<Wrong> check_position(const RoutingToken& token) const;

  std::uint32_t experts_;
  std::uint32_t used_;
  std::vector<std::uint32_t> layers_;
  bool layers_known_ = false;
  std::size_t next_layer_ = 0;  // position of the layer of the next row, 0 between tokens
  std::uint64_t tokens_ = 0;
  RoutingToken token_;
  std::unordered_map<std::uint32_t, std::uint32_t> last_pos_;  // by sequence
  std::vector<ExpertId> sorted_;
  std::uint32_t largest_ = 0;
};

// What the first bytes of a file say that it is. `routing` also for any xz file: no other trace is
// one.
enum class TraceFileKind : std::uint8_t { chunks, routing, unknown };
Result<TraceFileKind> trace_file_kind(const std::string& path);

// Called now and then, in bytes of the file.
using RoutingProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads a whole trace, strictly: what is wrong is named with file, line and column. `experts`: how
// many a layer has; 0 where nobody knows. Statuses as TextLines::open; malformed; unsupported for
// more than 2^32 - 2 choices, which no solver takes.
Result<RoutingTrace> read_routing(const std::string& path, std::uint32_t experts = 0,
                                  const RoutingProgress& progress = {});

// Writes a trace, as `PATH.part` until it is finished: a file of the right name is whole. Where the
// name ends in .xz it is compressed. Not for concurrent use. The first failure is final.
class RoutingWriter {
 public:
  // write_failed, not_a_file, usage (no file name, or something that is no routing trace has it).
  static Result<RoutingWriter> create(const std::string& path, std::uint32_t experts,
                                      std::uint32_t used);
  RoutingWriter(RoutingWriter&&) noexcept;
  RoutingWriter& operator=(RoutingWriter&&) noexcept;
  ~RoutingWriter();  // without finish(): the temporary file is removed

  // internal for a row that no reader would accept.
  Result<void> append(const RoutingRow& row);
  // Ends the file, syncs it and gives it its name.
  Result<void> finish();

 private:
  struct Impl;
  explicit RoutingWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace resid

#pragma once
// Which experts of a model were used how often, over all runs of one user.
//
//   H-1  A history belongs to a model's content: sizes, headers with the table of tensors, and the
//        first router's weights. A copy elsewhere has the same; another path, owner or time changes
//        nothing.
//   H-2  What was counted fades: of kHalfLife tokens ago half is left. So it follows its user, and
//        is worth kHalfLife / ln 2 = 23,600 tokens at most, by which a share of 1/16 is known to
//        2.5 %: what more would tell apart is not worth a read. A day of chats or two turns it.
//   H-3  What is not exactly a history of this version is refused whole.
//
// The form, little-endian: magic, version, model, number of layers and of experts; the layers'
// numbers; tokens by layer; uses by layer and expert; FNV-1a of all that stands before.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "model/model.hpp"
#include "policy/expert_usage.hpp"

namespace resid {

struct UsageHistory {
  static constexpr double kHalfLife = 16384;
  // As the expert board has room for; a larger model has no history.
  static constexpr std::uint32_t kLayersMost = 512;
  static constexpr std::uint32_t kExpertsMost = 1024;
  static constexpr std::uint64_t kBytesMost = std::uint64_t{64} << 20;

  std::uint64_t model = 0;  // H-1
  ExpertUsage usage;

  // Of a model's shape, with nothing counted yet; usage.empty() where it has no experts or too
  // many. Reads headers and one router. Statuses: those of opening and reading the model's files.
  static Result<UsageHistory> of(const Model& model);

  bool same_shape(const UsageHistory& other) const;
  // Adds what was counted since (H-2): each layer fades by as many tokens as it has seen more.
  // `newer` has the same shape.
  void add(const UsageHistory& newer);
};

// The name of a model's history within a folder of them.
std::string usage_file_name(std::uint64_t model);

std::string encode(const UsageHistory& history);
// H-3. `what` names the source in messages. Statuses: malformed (damaged, or something else),
// unsupported (a later version).
Result<UsageHistory> decode_usage(std::string_view bytes, const std::string& what);

// As decode_usage(), of a file; no_such_file where there is none, unreadable.
Result<UsageHistory> read_usage(const std::string& path);

}  // namespace resid

#pragma once
// The bytes of a trace file, for its writer and its reader. docs/traces.md describes them for
// everyone else; a change here is a new version.
//
// 1. Every number is in the byte order of the writer; `byte_order` says which. The other order is
//    recognised and refused, never converted.
// 2. Every byte of the file is under a checksum: what precedes the frame under `checksum`, the
//    records under the frame's own, the frame's compressed form under the one behind it.
// 3. The end record makes a file that was cut off at a record's border different from a whole one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hash.hpp"
#include "trace/trace.hpp"

namespace resid::trace_layout {

inline constexpr std::array<char, 8> kMagic{'R', 'E', 'S', 'I', 'D', 'T', 'R', 'C'};
inline constexpr std::uint32_t kByteOrder = 0x01020304;
inline constexpr std::uint32_t kForeignByteOrder = 0x04030201;
inline constexpr std::uint32_t kVersion = 1;

// More than these is no model's path and no hash; a reader need not make room for it.
inline constexpr std::uint32_t kModelTextMost = 64U << 10;
inline constexpr std::uint32_t kConfigHashMost = 1U << 10;
inline constexpr std::uint32_t kChunksMost = 64U << 20;  // 64 TiB in chunks of 1 MiB

struct FixedHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t byte_order = kByteOrder;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = 88;  // sizeof
  std::uint32_t record_bytes = sizeof(TraceRecord);
  std::uint32_t kind = 0;
  std::uint32_t model_text_bytes = 0;
  std::uint64_t model_bytes = 0;
  std::uint64_t model_fingerprint = 0;
  std::uint32_t config_hash_bytes = 0;
  std::uint32_t cycle_chunks = 0;
  std::uint32_t passes = 0;
  std::uint32_t chunk_count = 0;
  std::array<std::uint64_t, 2> reserved{};  // zero
  std::uint64_t checksum = 0;  // of all bytes before the frame, this field taken as zero
};
static_assert(sizeof(FixedHeader) == 88 && std::is_trivially_copyable_v<FixedHeader>);
static_assert(offsetof(FixedHeader, checksum) == 80);

// The first bytes of the frame: zstd's magic, a frame header descriptor that promises a checksum
// and nothing else, and a window of 512 KiB. One spelling, so that nothing in it can be damaged
// unseen and no reader needs more than that window.
inline constexpr int kWindowLog = 19;
inline constexpr std::array<std::uint8_t, 6> kFrameStart{0x28, 0xb5, 0x2f,
                                                         0xfd, 0x04, (kWindowLog - 10) << 3};

// The end record: no chunk's id, the number of records before it in `time_ns`, a mark in `detail`.
inline constexpr std::uint32_t kEndChunk = 0xffffffffU;
inline constexpr std::uint32_t kEndMark = 0x21444e45;  // "END!" where the least byte comes first

// FNV-1a: small, and any one damaged byte changes it for certain, since every step is a bijection
// of the sum. It guards against damage, not against malice.
class Checksum {
 public:
  void add(std::span<const std::byte> data) {
    sum_ = fnv1a({reinterpret_cast<const char*>(data.data()), data.size()}, sum_);
  }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = fnv1a({});
};

// What is wrong with a record of such a trace, or null: its id is checked against `chunk_count`,
// its detail against what the kind allows. Both ends judge by it.
constexpr const char* objection(const TraceRecord& record, TraceKind kind,
                                std::uint32_t chunk_count) {
  if (record.chunk >= chunk_count) return "chunk";
  const bool is_flag = kind == TraceKind::fault || kind == TraceKind::victim;
  if (is_flag && record.detail > 1) return "detail";
  return nullptr;
}

}  // namespace resid::trace_layout

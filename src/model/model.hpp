#pragma once
// What a model file contains, as far as residency is concerned: which bytes belong to which tensor,
// and which tensors belong to which layer and expert. No weights are read and no ggml is needed.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace resid {

// What a tensor is for. The order of the values is the order in which a transformer reads its
// weights inside one layer; the declared order is built from it.
enum class Role : std::uint8_t {
  header,     // the file's own metadata: read once, at load
  embedding,  // token (and per-layer) embedding: a row at a time
  attention_norm,
  attention,  // q, k, v, output and their norms and biases; recurrent and state-space blocks
  ffn_norm,
  router,
  expert_gate,  // stacked expert tensors; expert_gate also stands for a fused gate_up
  expert_up,
  expert_down,
  shared_expert,
  ffn_gate,
  ffn_up,
  ffn_down,
  other,
  output_norm,
  output,
};

std::string_view name(Role role);
// Whether a router chooses which parts of such a tensor are read.
constexpr bool is_routed(Role role) {
  return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_down;
}

inline constexpr std::int32_t kNoLayer = -1;
inline constexpr std::int32_t kNoExpert = -1;

struct Tensor {
  std::string name;
  std::string type;                 // "Q4_K", "F16", "BF16", ... as the format spells it
  std::vector<std::uint64_t> dims;  // as stored in the file; for GGUF the fastest dimension first
  std::uint64_t offset = 0;         // absolute, in bytes from the start of the file
  std::uint64_t bytes = 0;
  std::int32_t layer = kNoLayer;
  std::int32_t expert = kNoExpert;  // a tensor that is one expert's alone
  std::uint32_t experts = 0;  // > 0: `experts` equal contiguous slices, slice e being expert e
  Role role = Role::other;
  // Position among the tensors of the same layer and role, in the order a forward pass reads them
  // (query before output projection). 0 for the token embedding, 1 for every other embedding.
  std::uint8_t step = 0;
};

enum class Format : std::uint8_t { gguf, safetensors, raw };

// One file of a model. Tensors are sorted by offset and do not overlap.
struct ModelFile {
  std::string path;
  Format format = Format::raw;
  std::uint32_t version = 0;      // GGUF version; 0 otherwise
  std::uint64_t bytes = 0;        // size of the file
  std::uint64_t data_offset = 0;  // where tensor data starts
  std::uint32_t alignment = 0;    // GGUF general.alignment; 8 for safetensors
  std::string architecture;       // "qwen3moe"; empty when the file does not say
  std::string model_name;
  std::uint32_t layers = 0;  // from metadata, else highest layer number + 1
  std::uint32_t experts = 0;
  std::uint32_t experts_used = 0;
  std::uint32_t draft_layers = 0;  // the last layers, if they serve multi-token prediction only
  std::uint32_t split_no = 0;      // 0-based; GGUF split files only
  std::uint32_t split_count = 1;
  std::uint64_t split_tensors = 0;  // tensors of all parts together; 0 when the file does not say
  std::vector<Tensor> tensors;
};

// All files of a model, in split order.
struct Model {
  std::vector<ModelFile> files;
  std::uint64_t bytes() const;  // of all files
};

// True when the file behind `fd` starts as a GGUF or safetensors file does. Reads at most 16 bytes
// with pread; does not move the file position.
bool looks_like_model(int fd);

// Reads the structure of the one file behind `fd`. `path` is only for messages and split names.
// Every length, count, offset, alignment, overlap and sum is checked; the failure names file,
// offset, field and reason. Works on any regular file, a memfd too; does not move the file
// position. Statuses: not_a_file, empty_file, not_a_model, malformed, unsupported, read_failed,
// out_of_memory.
Result<ModelFile> read_model_file(int fd, const std::string& path);

// Opens `path` and, for a split model (-00001-of-000NN), all its siblings. Checks that the parts
// belong together. Naming any one of the parts opens the whole. Never blocks: what is not a regular
// file is refused before it is opened.
Result<Model> open_model(const std::string& path);

}  // namespace resid

// Writes the seed corpora: fuzz_seeds FOLDER.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "gguf_bytes.hpp"
#include "safetensors_bytes.hpp"

namespace {

void write(const std::filesystem::path& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  using namespace resid::test;
  const std::filesystem::path root = argv[1];

  write(root / "gguf", "small", small_gguf().build());
  GgufBytes experts;
  experts.text("general.architecture", "qwen3moe").number("qwen3moe.expert_count", 4);
  experts.tensor({"blk.0.ffn_gate_exps.weight", {32, 2, 4}, 2, 18 * 2 * 4});
  experts.tensor({"blk.0.ffn_down_exps.weight", {64, 4}, 24, 256});
  experts.floats("blk.0.ffn_up.3.weight", 8);
  write(root / "gguf", "experts", experts.build());
  GgufBytes split;
  split.key("split.no", kU16, le(0, 2)).key("split.count", kU16, le(2, 2));
  split.key("split.tensors.count", kI32, u32(2)).floats("output.weight", 8);
  write(root / "gguf", "split", split.build());
  GgufBytes aligned;
  aligned.alignment = 128;
  aligned.number("general.alignment", 128).floats("a", 3).floats("b", 3);
  write(root / "gguf", "aligned", aligned.build());

  // One byte of data size (in sixteens) before the header; see fuzz_safetensors.cpp.
  const std::string two = entry("model.layers.0.mlp.experts.1.up_proj.weight", "F32", "[4]", 0, 16);
  write(root / "safetensors", "one", "\x01{" + two + "}");
  write(root / "safetensors", "two",
        "\x02{\"__metadata__\":{\"format\":\"pt\"}," + two + "," +
            entry("b", "BF16", "[2,4]", 16, 32) + "}");
  write(root / "safetensors", "empty", std::string(1, '\0') + "{}");
  write(root / "safetensors", "unknown",
        R"(1{"t":{"x":{"y":[1,null]},"dtype":"U8","shape":[784],"data_offsets":[0,784]}})");

  write(root / "plan", "mixed",
        std::string("\x05\x07\x20\x21\x01\x80\x03\x42\x02\x10\x0e\x63", 12));
  return 0;
}

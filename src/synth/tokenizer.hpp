#pragma once
// A small byte-level BPE vocabulary made by rule, so that it needs no data and no training: the 256
// bytes, then syllables and words of syllables, then the control tokens.

#include <cstdint>
#include <string>
#include <vector>

namespace resid {

struct SynthVocabulary {
  std::vector<std::string> tokens;  // as GGUF spells them (byte-to-letter mapping of gpt2)
  std::vector<std::int32_t> types;  // llama token types: 1 normal, 3 control
  std::vector<std::string> merges;  // "left right", best first
  std::vector<bool> printable;      // the token's text is plain ASCII
  std::uint32_t end_of_text = 0;
  std::uint32_t padding = 0;

  static constexpr std::uint32_t kControlTokens = 4;
  static constexpr std::uint32_t kSmallest = 256 + kControlTokens;
  static constexpr std::uint32_t kLargest = 262144;

  // `size` in [kSmallest, kLargest].
  static SynthVocabulary make(std::uint32_t size);
};

}  // namespace resid

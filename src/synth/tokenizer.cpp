#include "synth/tokenizer.hpp"

#include <array>
#include <string_view>

namespace resid {
namespace {

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// Byte-level vocabularies have no blank or control character in a token: printable Latin-1 bytes
// stand for themselves, the others for the letters from U+0100 on, in order.
std::array<std::string, 256> byte_letters() {
  std::array<std::string, 256> letters;
  std::uint32_t next = 0x100;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    letters[b] = utf8(itself ? b : next++);
  }
  return letters;
}

}  // namespace

SynthVocabulary SynthVocabulary::make(std::uint32_t size) {
  SynthVocabulary v;
  v.tokens.reserve(size);
  const std::uint32_t words_end = size - kControlTokens;
  const auto letters = byte_letters();
  for (std::uint32_t b = 0; b < 256; ++b) {
    v.tokens.push_back(letters[b]);
    v.printable.push_back((b >= 0x20 && b <= 0x7e) || b == '\n');
  }
  const auto merge = [&](const std::string& left, const std::string& right) {
    if (v.tokens.size() >= words_end) return false;
    v.tokens.push_back(left + right);
    v.merges.push_back(left + " " + right);
    v.printable.push_back(true);
    return true;
  };

  // Every syllable is a consonant and a vowel, so that a word has one reading only and no two
  // merges make the same token.
  constexpr std::string_view kConsonants = "bcdfghjklmnpqrstvwxyz";
  constexpr std::string_view kVowels = "aeiou";
  std::vector<std::string> syllables;
  for (const char c : kConsonants) {
    for (const char o : kVowels) {
      if (merge({c}, {o})) syllables.push_back({c, o});
    }
  }
  const std::string& blank = letters[' '];
  for (const std::string& s : syllables)
    merge(blank, s);
  // Words one syllable longer than the last round's, until the vocabulary is full.
  std::vector<std::string> words = syllables;
  while (v.tokens.size() < words_end) {
    std::vector<std::string> longer;
    for (const std::string& w : words) {
      for (const std::string& s : syllables) {
        if (!merge(w, s)) break;
        longer.push_back(w + s);
      }
    }
    words = std::move(longer);
  }

  v.types.assign(v.tokens.size(), kNormal);
  // The names llama.cpp's default chat template writes, so that its server can be talked to.
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|padding|>"}) {
    v.tokens.emplace_back(control);
    v.types.push_back(kControl);
    v.printable.push_back(false);
  }
  v.end_of_text = words_end;
  v.padding = words_end + 3;
  return v;
}

}  // namespace resid

#pragma once
// FNV-1a, 64 bits (Fowler, Noll, Vo): joins rows of different runs by the settings they had. No
// defence against anyone who wants two texts to agree.

#include <cstdint>
#include <string_view>

namespace resid {

// `hash`: the result for what stands before `text`.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace resid

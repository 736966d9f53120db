#include "storage/fingerprint.hpp"

#include <array>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/units.hpp"

namespace resid {

Result<std::uint64_t> fingerprint(const Store& store) {
  constexpr std::uint64_t kSamples = 64;
  alignas(kPage) std::array<char, kPage> page{};
  const std::uint64_t last = page_up(store.bytes()) / kPage - 1;
  std::uint64_t hash = fnv1a(fmt::format("{}", store.bytes()));
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    page.fill(0);
    const std::uint64_t offset = last * i / (kSamples - 1) * kPage;
    const ReadOutcome outcome = store.read(offset, kPage, page.data());
    if (outcome.status != Status::ok) {
      return fail_errno(outcome.status, fmt::format("{} at offset {}", store.path(), offset),
                        outcome.error);
    }
    hash = fnv1a({page.data(), page.size()}, hash);
  }
  return hash;
}

}  // namespace resid

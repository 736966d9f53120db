#include "run/usage_keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "base/signals.hpp"
#include "expert/usage_file.hpp"

namespace resid::run {
namespace {

// As Failure::line(), without the name that every note has in front.
std::string text_of(const Failure& failure) {
  return fmt::format("{} : {} : {}", failure.what, failure.why,
                     failure.todo.empty() ? std::string(remedy(failure.status)) : failure.todo);
}

}  // namespace

UsageKeeper::UsageKeeper(ExpertArea& area, const std::string& place, Tell tell)
    : area_(area), tell_(std::move(tell)) {
  if (place.empty() || place == "off") return;
  place_ = place;
  if (place == "auto") {
    auto folder = usage_folder();
    // Only worth a word where there is something to keep.
    if (!folder) folder_missing_ = text_of(folder.error());
    place_ = folder ? *folder : std::string();
  } else if (place_.front() != '/') {
    // The program may go to another folder before it maps its model.
    std::array<char, PATH_MAX> here{};
    if (::getcwd(here.data(), here.size()) != nullptr) {
      place_ = std::string(here.data()) + "/" + place_;
    }
  }
  if (place_.size() < area_.history.size()) {
    std::memcpy(area_.history.data(), place_.c_str(), place_.size() + 1);
  }
}

void UsageKeeper::start(std::chrono::milliseconds interval) {
  if (place_.empty()) return;
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this, interval] {
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, interval, [this] { return stop_; })) {
        lock.unlock();
        // Somebody else who adds takes milliseconds; the next time will do.
        add(std::chrono::milliseconds(0));
        lock.lock();
      }
    });
  } catch (const std::system_error&) {
    // Then it is added at the end only.
  }
}

void UsageKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void UsageKeeper::finish() {
  stop();
  add(std::chrono::seconds(5));
}

void UsageKeeper::warn(std::string_view text) {
  if (!warned_) tell_(text);
  warned_ = true;
}

void UsageKeeper::add(std::chrono::milliseconds patience) {
  const ExpertBoard& board = area_.board;
  if (place_.empty()) {
    if (folder_missing_.empty()) return;
    for (const ExpertBoard::Layer& layer : board.layers) {
      if (layer.tokens.load(std::memory_order_relaxed) == 0) continue;
      warn(folder_missing_);
      return;
    }
    return;
  }
  const std::uint64_t model = area_.model.load(std::memory_order_acquire);
  if (model == 0) return;
  if (area_.other_model.load() != 0) {
    warn("usage history: two models with experts were used at once: nothing is added to either's");
    return;
  }
  UsageHistory counted;
  counted.model = model;
  ExpertUsage& usage = counted.usage;
  // The program can write to the area: what stands there is looked at, not believed.
  usage.experts = std::min(area_.experts, ExpertBoard::kExpertsMost);
  for (std::uint32_t layer = 0; layer < ExpertBoard::kLayersMost; ++layer) {
    if (area_.has_experts[layer] != 0) usage.layers.push_back(layer);
  }
  const std::size_t layers = usage.layers.size();
  if (layers == 0 || usage.experts == 0) return;
  tokens_.resize(layers);
  uses_.resize(layers * usage.experts);
  std::vector<std::uint64_t> tokens(layers);
  std::vector<std::uint32_t> uses(layers * usage.experts);
  bool any = false;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::uint32_t layer = usage.layers[i];
    tokens[i] = board.layers[layer].tokens.load(std::memory_order_relaxed);
    any |= tokens[i] != tokens_[i];
    usage.tokens.push_back(static_cast<double>(tokens[i] - tokens_[i]));
    for (std::uint32_t e = 0; e < usage.experts; ++e) {
      const std::size_t at = i * usage.experts + e;
      uses[at] = board.uses_of(layer, e).load(std::memory_order_relaxed);
      usage.uses.push_back(static_cast<float>(uses[at] - uses_[at]));
    }
  }
  if (!any) return;
  std::string path = place_;
  if (path.ends_with('/')) {
    if (auto made = make_usage_folder(path); !made) return warn(text_of(made.error()));
    path += usage_file_name(model);
  }
  const auto added = add_usage(path, counted, patience);
  if (!added) {
    if (added.error().status != Status::system || patience.count() != 0) {
      warn(text_of(added.error()));
    }
    return;  // it is counted the next time
  }
  tokens_ = std::move(tokens);
  uses_ = std::move(uses);
  if (added->set_aside) tell_(text_of(*added->set_aside));
}

}  // namespace resid::run

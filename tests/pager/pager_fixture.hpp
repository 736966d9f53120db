#pragma once
// A store whose every byte is known, and a pager over it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/fd.hpp"
#include "model/chunk_plan.hpp"
#include "pager/impl.hpp"
#include "pager/pager.hpp"

namespace resid::test {

// The 8 bytes at word `i` of the store number `salt`: no two words alike, no word zero by chance.
inline std::uint64_t word_at(std::uint64_t i, std::uint64_t salt = 1) {
  std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ULL + salt * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) | 1;
}

// A file of known contents, removed at the end. On a real disk (build folder), not on tmpfs: direct
// reads must be exercised.
class StoreFile {
 public:
  explicit StoreFile(std::uint64_t bytes, std::uint64_t salt = 1) : bytes_(bytes), salt_(salt) {
    const char* folder = std::getenv("RESID_TEST_DIR");
    path_ = std::string(folder != nullptr ? folder : "/var/tmp") + "/resid-store-XXXXXX";
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd_) std::abort();
    std::vector<std::uint64_t> block(1 << 16);
    std::uint64_t word = 0;
    for (std::uint64_t done = 0; done < bytes;) {
      for (std::uint64_t& w : block)
        w = word_at(word++, salt);
      const std::uint64_t n = std::min<std::uint64_t>(bytes - done, block.size() * 8);
      if (::pwrite(fd_.get(), block.data(), n, static_cast<off_t>(done)) !=
          static_cast<ssize_t>(n)) {
        std::abort();
      }
      done += n;
    }
    ::fsync(fd_.get());
  }
  ~StoreFile() { ::unlink(path_.c_str()); }
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t salt() const { return salt_; }

  // Words of [begin, end) of a view that differ from the store.
  std::uint64_t mismatches(const void* view, std::uint64_t begin, std::uint64_t end) const {
    // Volatile: a read whose result is not looked at is a read all the same.
    const auto* words = static_cast<const volatile std::uint64_t*>(view);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = begin / 8; i < end / 8; ++i)
      wrong += words[i] != word_at(i, salt_);
    return wrong;
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t salt_;
  std::string path_;
  Fd fd_;
};

// Failures that the pager reported, in a process that survives them.
struct Failures {
  std::mutex mutex;
  std::atomic<int> count{0};
  std::atomic<Status> first{Status::ok};
  std::string text() {
    const std::lock_guard guard(mutex);
    return line;
  }
  static void hook(void* context, Status status, const char* line) {
    auto* self = static_cast<Failures*>(context);
    const std::lock_guard guard(self->mutex);
    if (self->count.load() == 0) {
      self->line = line;
      self->first.store(status);
    }
    self->count.fetch_add(1);  // last: who sees it may read the rest
  }

 private:
  std::string line;
};

inline ModelFile raw_file(const StoreFile& store) {
  ModelFile file;
  file.path = store.path();
  file.format = Format::raw;
  file.bytes = store.bytes();
  return file;
}

// A pager over one store cut into equal chunks, seen through one view.
struct Rig {
  Rig(const StoreFile& s, const PagerConfig& config, std::uint64_t chunk_bytes) : store(s) {
    auto created = Pager::create(config, stats, &Failures::hook, &failures);
    if (!created) {
      ADD_FAILURE() << created.error().line();
      std::abort();
    }
    pager = std::move(*created);
    region = add(s, chunk_bytes);
    view = map(region, s.bytes());
  }
  RegionId add(const StoreFile& s, std::uint64_t chunk_bytes) {
    auto plan = ChunkPlan::uniform(s.bytes(), chunk_bytes);
    if (!plan) std::abort();
    auto id = pager->add_region(s.fd(), s.path(), raw_file(s), std::move(*plan));
    if (!id) {
      ADD_FAILURE() << id.error().line();
      std::abort();
    }
    return *id;
  }
  const std::uint8_t* map(RegionId id, std::uint64_t bytes, std::uint64_t offset = 0) {
    auto mapped = pager->map_view(id, nullptr, bytes, 0, offset);
    if (!mapped) {
      ADD_FAILURE() << mapped.error().line();
      std::abort();
    }
    return static_cast<const std::uint8_t*>(*mapped);
  }
  // What the kernel holds for all regions, now.
  std::uint64_t kernel_bytes() {
    std::uint64_t sum = 0;
    for (const auto& r : pager->impl()->regions) {
      sum += static_cast<std::uint64_t>(r->kernel_bytes());
    }
    return sum;
  }
  // Waits until no fetch is queued or under way: a thread goes on as soon as its page is mapped, a
  // moment before the chunk is published and counted.
  void settle() { pager->settle(); }
  void expect_clean(std::uint64_t budget, std::uint64_t chunk_bytes) {
    settle();
    EXPECT_EQ(failures.count.load(), 0) << failures.text();
    EXPECT_TRUE(pager->reconcile().has_value());
    EXPECT_EQ(pager->resident_bytes(), kernel_bytes());
    EXPECT_LE(stats.resident_peak_bytes.load(), budget);
    EXPECT_LE(stats.kernel_peak_bytes.load(), budget + chunk_bytes);
    EXPECT_LE(stats.reconcile_max_divergence_bytes.load(), chunk_bytes);
    EXPECT_EQ(stats.infeasible.load(), 0U);
    EXPECT_EQ(stats.policy_lapses.load(), 0U);
  }

  const StoreFile& store;
  PagerStats stats;
  Failures failures;
  std::unique_ptr<Pager> pager;
  RegionId region = 0;
  const std::uint8_t* view = nullptr;
};

inline PagerConfig eager(std::uint64_t budget, const std::string& policy = "layer_order_declared") {
  PagerConfig config;
  config.budget_bytes = budget;
  config.policy = policy;
  config.eager_reconcile = true;
  return config;
}

inline constexpr std::uint64_t MiB = 1024 * 1024;

}  // namespace resid::test

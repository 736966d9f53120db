// The C interface over the pager. No exception leaves it.

#include "resid/resid.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "host/cgroup.hpp"
#include "host/memory.hpp"
#include "model/chunk_plan.hpp"
#include "model/model.hpp"
#include "pager/pager.hpp"
#include "storage/store.hpp"

using resid::Failure;
using resid::Status;

struct resid_pager {
  resid::PagerStats stats;
  std::unique_ptr<resid::Pager> pager;
  std::uint64_t chunk_max = 0;
  std::mutex mutex;  // of `regions`
  struct Known {
    resid::StoreIdentity identity;
    resid::RegionId region = 0;
  };
  std::vector<Known> regions;
};

struct resid_pin {
  resid::Pin pin;
};

namespace {

thread_local std::string t_last_error;

int code(Status status) {
  switch (status) {
    case Status::ok:
      return RESID_OK;
    case Status::usage:
      return RESID_USAGE;
    case Status::no_such_file:
      return RESID_NO_SUCH_FILE;
    case Status::not_a_file:
    case Status::empty_file:
    case Status::unreadable:
    case Status::not_a_model:
    case Status::malformed:
    case Status::unsupported:
      return RESID_BAD_FILE;
    case Status::budget_too_small:
      return RESID_BUDGET_TOO_SMALL;
    case Status::infeasible:
      return RESID_INFEASIBLE;
    case Status::no_userfaultfd:
    case Status::kernel_too_old:
      return RESID_NO_USERFAULTFD;
    case Status::swap_unsafe:
      return RESID_SWAP_UNSAFE;
    case Status::store_changed:
      return RESID_STORE_CHANGED;
    case Status::read_failed:
      return RESID_READ_FAILED;
    case Status::out_of_memory:
      return RESID_OUT_OF_MEMORY;
    case Status::internal:
    case Status::accounting_diverged:
      return RESID_INTERNAL;
    default:
      return RESID_SYSTEM;
  }
}

int failed(const Failure& failure) {
  t_last_error = failure.line();
  return code(failure.status);
}

int failed(Status status, const char* what, const char* why) {
  return failed(Failure{status, what, why, {}});
}

// Runs `body`, which returns a status code, and turns whatever is thrown into one.
template <class F>
int guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return RESID_OUT_OF_MEMORY;  // making a message might throw again
  } catch (const std::exception& e) {
    return failed(Status::internal, "libresid", e.what());
  }
}

// A failure that the pager met, on a thread of its own and perhaps under its lock (I-13). A thread
// that touches what could not be read gets SIGBUS next; where our accounts or the system calls
// themselves have failed there is no such thread, and going on would mean computing from memory
// that nobody answers for.
void on_failure(void*, Status status, const char* line) {
  resid::RawLine out;
  out << std::string_view(line);
  out.emit();
  if (status == Status::accounting_diverged || status == Status::internal ||
      status == Status::system) {
    std::abort();
  }
}

template <class T>
bool present(const T* p) {
  return p != nullptr;
}

#define RESID_REQUIRE(...)                                                         \
  do {                                                                             \
    if (!(__VA_ARGS__)) return failed(Status::usage, __func__, "a null argument"); \
  } while (false)

resid::Result<resid::RegionId> region_of(resid_pager& self, int fd, const char* path) {
  resid::StoreIdentity identity;
  int error = 0;
  if (!resid::store_identity(fd, identity, error)) {
    return resid::fail_errno(Status::unreadable, path, error);
  }
  const std::lock_guard guard(self.mutex);
  for (const auto& known : self.regions) {
    if (known.identity == identity) return known.region;
  }
  resid::ModelFile file;
  resid::Result<resid::ChunkPlan> plan = resid::fail(Status::internal, path, "no plan");
  if (resid::looks_like_model(fd)) {
    auto parsed = resid::read_model_file(fd, path);
    if (!parsed) return tl::unexpected(parsed.error());
    file = std::move(*parsed);
    plan = resid::ChunkPlan::make(file, self.chunk_max);
  } else {
    file.path = path;
    file.format = resid::Format::raw;
    file.bytes = identity.bytes;
    plan = resid::ChunkPlan::uniform(identity.bytes, self.chunk_max);
  }
  if (!plan) return tl::unexpected(plan.error());
  auto region = self.pager->add_region(fd, path, std::move(file), std::move(*plan));
  if (region) self.regions.push_back({identity, *region});
  return region;
}

}  // namespace

extern "C" {

const char* resid_version(void) {
  return RESID_VERSION_TEXT;
}
const char* resid_last_error(void) {
  return t_last_error.c_str();
}

void resid_options_init(struct resid_options* options, size_t struct_size) {
  if (options == nullptr) return;
  struct resid_options defaults {};
  defaults.struct_size = struct_size;
  defaults.chunk_max = resid::ChunkPlan::kDefaultChunkMax;
  defaults.policy = "layer_order_declared";
  defaults.fetch_workers = 4;
  defaults.faults_are_access = 1;
  std::memcpy(options, &defaults, std::min(struct_size, sizeof defaults));
}

int resid_create(const struct resid_options* given, resid_pager** pager) {
  return guarded([&] {
    RESID_REQUIRE(present(given) && present(pager));
    *pager = nullptr;
    // Up to `budget_bytes` every version has the structure; what the caller's lacks gets its
    // default.
    if (given->struct_size < offsetof(struct resid_options, chunk_max)) {
      return failed(Status::usage, "resid_options", "struct_size is not set");
    }
    struct resid_options full {};
    resid_options_init(&full, sizeof full);
    std::memcpy(&full, given, std::min(given->struct_size, sizeof full));
    const struct resid_options* options = &full;
    RESID_REQUIRE(present(options->policy));
    auto memory = resid::host::memory_facts();
    if (!memory) return failed(memory.error());
    auto group = resid::host::memory_cgroup();
    if (!group) return failed(group.error());
    auto guarantee = resid::host::swap_guarantee(*memory, *group, options->budget_bytes);
    if (!guarantee) return failed(guarantee.error());

    resid::PagerConfig config;
    config.budget_bytes = options->budget_bytes;
    config.policy = options->policy;
    config.fetch_workers = options->fetch_workers;
    config.prefetch_depth = options->prefetch_depth;
    config.protect_current = options->protect_current != 0;
    config.faults_signal_access = options->faults_are_access != 0;
    config.noswap = *guarantee == resid::host::SwapGuarantee::noswap_mount;
    config.lock_pages = *guarantee == resid::host::SwapGuarantee::mlocked;
    auto self = std::make_unique<resid_pager>();
    self->chunk_max = options->chunk_max;
    auto created = resid::Pager::create(config, self->stats, &on_failure, nullptr);
    if (!created) return failed(created.error());
    self->pager = std::move(*created);
    *pager = self.release();
    return static_cast<int>(RESID_OK);
  });
}

void resid_destroy(resid_pager* pager) {
  delete pager;
}

int resid_map(resid_pager* pager, const char* path, const void** address, uint64_t* bytes) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(path) && present(address) && present(bytes));
    const resid::Fd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) {
      const int error = errno;
      return failed(error == ENOENT ? Status::no_such_file : Status::unreadable, path,
                    std::strerror(error));
    }
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
      return failed(Status::not_a_file, path, "it is not a regular file");
    }
    auto region = region_of(*pager, fd.get(), path);
    if (!region) return failed(region.error());
    const std::uint64_t size = pager->pager->info(*region).bytes;
    auto view = pager->pager->map_view(*region, nullptr, size, 0, 0);
    if (!view) return failed(view.error());
    *address = *view;
    *bytes = size;
    return static_cast<int>(RESID_OK);
  });
}

int resid_unmap(resid_pager* pager, const void* address, uint64_t bytes) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(address));
    if (!pager->pager->in_view(address, bytes)) {
      return failed(Status::usage, "resid_unmap", "the range is not mapped here");
    }
    auto done = pager->pager->unmap_view(const_cast<void*>(address), bytes);
    return done ? static_cast<int>(RESID_OK) : failed(done.error());
  });
}

int resid_pin_range(resid_pager* pager, const void* address, uint64_t bytes, resid_pin** pin) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(address) && present(pin));
    *pin = nullptr;
    auto handle = std::make_unique<resid_pin>();
    auto pinned = pager->pager->pin(address, bytes);
    if (!pinned) return failed(pinned.error());
    handle->pin = std::move(*pinned);
    *pin = handle.release();
    return static_cast<int>(RESID_OK);
  });
}

void resid_unpin(resid_pin* pin) {
  delete pin;
}

int resid_will_need(resid_pager* pager, const void* address, uint64_t bytes) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(address));
    pager->pager->will_need(address, bytes);
    return static_cast<int>(RESID_OK);
  });
}

int resid_access(resid_pager* pager, const void* address) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(address));
    const auto range = pager->pager->chunks_under(address, 1);
    if (range.count == 0) return failed(Status::usage, "resid_access", "the address is not mapped");
    pager->pager->notify_access(range.first);
    return static_cast<int>(RESID_OK);
  });
}

int resid_declare_order(resid_pager* pager, const struct resid_range* ranges, size_t count) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && (count == 0 || present(ranges)));
    std::vector<resid::ChunkId> sequence;
    for (size_t i = 0; i < count; ++i) {
      const auto range = pager->pager->chunks_under(ranges[i].address, ranges[i].bytes);
      if (range.count == 0) {
        return failed(Status::usage, "resid_declare_order", "a range is not mapped");
      }
      for (std::uint32_t c = 0; c < range.count; ++c) {
        // Neighbouring ranges may share a chunk; it is read once.
        if (sequence.empty() || sequence.back() != range.first + c) {
          sequence.push_back(range.first + c);
        }
      }
    }
    pager->pager->declare_sequence(sequence);
    return static_cast<int>(RESID_OK);
  });
}

int resid_resident(resid_pager* pager, const void* address, uint64_t bytes, uint64_t* resident) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(address) && present(resident));
    *resident = pager->pager->resident_under(address, bytes);
    return static_cast<int>(RESID_OK);
  });
}

int resid_set_budget(resid_pager* pager, uint64_t bytes) {
  return guarded([&] {
    RESID_REQUIRE(present(pager));
    auto done = pager->pager->set_budget(bytes);
    return done ? static_cast<int>(RESID_OK) : failed(done.error());
  });
}

int resid_get_stats(resid_pager* pager, struct resid_stats* stats) {
  return guarded([&] {
    RESID_REQUIRE(present(pager) && present(stats));
    const size_t size = stats->struct_size;
    if (size < offsetof(struct resid_stats, resident_bytes)) {
      return failed(Status::usage, "resid_stats", "struct_size is not set");
    }
    const resid::PagerStats& s = pager->stats;
    struct resid_stats full {};
    full.struct_size = size;
    full.budget_bytes = pager->pager->budget();
    full.resident_bytes = pager->pager->resident_bytes();
    full.resident_peak_bytes = s.resident_peak_bytes.load();
    full.kernel_bytes_peak = s.kernel_peak_bytes.load();
    full.bytes_fetched = s.bytes_fetched.load();
    full.bytes_punched = s.bytes_punched.load();
    full.fetches = s.fetches.load();
    full.evictions = s.evictions.load();
    full.faults_missing = s.faults_missing.load();
    full.faults_minor = s.faults_minor.load();
    full.prefetch_issued = s.prefetch_issued.load();
    full.prefetch_useful = s.prefetch_useful.load();
    full.fault_p50_ns = s.fault_ns.quantile(0.5);
    full.fault_p99_ns = s.fault_ns.quantile(0.99);
    std::memcpy(stats, &full, std::min(size, sizeof full));
    return static_cast<int>(RESID_OK);
  });
}

}  // extern "C"

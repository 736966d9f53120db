#include "replay/workload.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "base/units.hpp"
#include "sense/order.hpp"
#include "storage/fingerprint.hpp"
#include "storage/store.hpp"

namespace resid {
namespace {

constexpr std::uint64_t kPageWords = kPage / sizeof(std::uint64_t);

std::uint64_t place_factor(std::uint64_t page) {
  std::uint64_t z = page + 0x632be59bd9b4e019ULL;
  z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return (z ^ (z >> 29)) | 1;
}

struct AlignedFree {
  void operator()(std::uint8_t* p) const { std::free(p); }
};
using AlignedBuffer = std::unique_ptr<std::uint8_t, AlignedFree>;

AlignedBuffer aligned_buffer(std::uint64_t bytes) {
  return AlignedBuffer(static_cast<std::uint8_t*>(std::aligned_alloc(kPage, bytes)));
}

Result<Workload> open_file(const std::string& path) {
  Workload w;
  w.path = path;
  // Never blocks on a pipe; what is no regular file is refused below.
  w.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!w.fd) {
    return fail_errno(errno == ENOENT ? Status::no_such_file : Status::unreadable, path, errno);
  }
  struct stat st {};
  if (::fstat(w.fd.get(), &st) != 0) return fail_errno(Status::unreadable, path, errno);
  if (!S_ISREG(st.st_mode)) return fail(Status::not_a_file, path, "it is no regular file");
  if (st.st_size == 0) return fail(Status::empty_file, path, "the file has no bytes");
  if (in_memory(w.fd.get())) {
    return fail(Status::unsupported, path, "its file system is memory: no disk would be read",
                "put it on a disk");
  }
  w.file.path = path;
  w.file.bytes = static_cast<std::uint64_t>(st.st_size);
  return w;
}

// The sums of all pages, read from the file itself.
Result<void> expect_content(Workload& w, const std::atomic<bool>* stop) {
  auto store = Store::open(w.fd.get(), w.path);
  if (!store) return tl::unexpected(store.error());
  constexpr std::uint64_t kBlock = 4 * 1024 * 1024;
  const AlignedBuffer buffer = aligned_buffer(kBlock);
  if (!buffer) return fail(Status::out_of_memory, w.path, "no memory for a read buffer");
  w.expected.resize(page_up(w.file.bytes) / kPage);
  for (std::uint64_t offset = 0; offset < w.file.bytes; offset += kBlock) {
    if (stop != nullptr && stop->load()) {
      return fail(Status::system, "replay", "interrupted", "start it again");
    }
    const std::uint64_t bytes = std::min(kBlock, page_up(w.file.bytes - offset));
    std::fill_n(buffer.get(), bytes, std::uint8_t{0});  // past the end a view shows zeros
    const ReadOutcome outcome = store->read(offset, bytes, buffer.get());
    if (outcome.status != Status::ok) {
      return fail_errno(outcome.status, fmt::format("{} at offset {}", w.path, outcome.offset),
                        outcome.error);
    }
    for (std::uint64_t p = 0; p < bytes / kPage; ++p) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.get() + p * kPage);
      w.expected[offset / kPage + p] = page_sum(words, offset / kPage + p);
    }
  }
  return {};
}

Result<Workload> settled(Workload w) {
  w.cyclic_scan = w.sequence.size() == w.plan.size();
  for (std::size_t i = 0; w.cyclic_scan && i < w.sequence.size(); ++i)
    w.cyclic_scan = w.sequence[i] == i;
  auto store = Store::open(w.fd.get(), w.path);
  if (!store) return tl::unexpected(store.error());
  auto print = fingerprint(*store);
  if (!print) return tl::unexpected(print.error());
  w.fingerprint = *print;
  return w;
}

}  // namespace

// Not inlined: every arm runs these very instructions over its bytes.
__attribute__((noinline)) std::uint64_t page_sum(const std::uint64_t* words, std::uint64_t page) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < kPageWords; ++i)
    sum += words[i];
  return sum * place_factor(page);
}

PageRange slice(const Chunk& chunk, std::uint32_t thread, std::uint32_t threads) {
  const std::uint64_t first = chunk.offset / kPage;
  const std::uint64_t pages = chunk.bytes / kPage;
  return {first + pages * thread / threads, first + pages * (thread + 1) / threads};
}

std::uint64_t Workload::sequence_bytes() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t chunk : sequence)
    sum += plan[chunk].bytes;
  return sum;
}

std::uint64_t Workload::referenced_bytes() const {
  std::vector<bool> seen(plan.size(), false);
  std::uint64_t sum = 0;
  for (const std::uint32_t chunk : sequence) {
    if (!seen[chunk]) sum += plan[chunk].bytes;
    seen[chunk] = true;
  }
  return sum;
}

Result<Workload> Workload::scan(const std::string& path, std::uint64_t chunk_bytes) {
  auto w = open_file(path);
  if (!w) return w;
  auto generated = is_generated_store(w->fd.get(), w->file.bytes, path);
  if (!generated) return tl::unexpected(generated.error());
  if (!*generated) {
    return fail(Status::usage, path, "it does not hold what `replay --make-store` writes",
                "make one with --make-store, or give a model with --model");
  }
  auto plan = ChunkPlan::uniform(w->file.bytes, chunk_bytes);
  if (!plan) return tl::unexpected(plan.error());
  w->plan = std::move(*plan);
  w->sequence.resize(w->plan.size());
  std::iota(w->sequence.begin(), w->sequence.end(), 0U);
  w->expected.resize(w->file.bytes / kPage);
  std::vector<std::uint64_t> words(kPageWords);
  std::uint64_t word = generated_word(0);
  for (std::uint64_t page = 0; page < w->expected.size(); ++page) {
    for (std::uint64_t& x : words) {
      x = word;
      word += kWordStep;
    }
    w->expected[page] = page_sum(words.data(), page);
  }
  return settled(std::move(*w));
}

Result<Workload> Workload::model(const std::string& path, std::uint64_t chunk_max,
                                 const std::atomic<bool>* stop) {
  auto w = open_file(path);
  if (!w) return w;
  auto file = read_model_file(w->fd.get(), path);
  if (!file) return tl::unexpected(file.error());
  if (file->split_count > 1) {
    return fail(Status::unsupported, path,
                fmt::format("it is one of {} parts of a split model", file->split_count),
                "join the parts (llama-gguf-split --merge) to replay the model");
  }
  auto plan = ChunkPlan::make(*file, chunk_max);
  if (!plan) return tl::unexpected(plan.error());
  w->file = std::move(*file);
  w->plan = std::move(*plan);
  const OrderedFile ordered{&w->file, &w->plan, 0};
  w->sequence = forward_order({&ordered, 1}, false);
  if (w->sequence.empty()) {
    return fail(Status::unsupported, path, "it has no tensor that a forward pass reads in order");
  }
  if (auto ok = expect_content(*w, stop); !ok) return tl::unexpected(ok.error());
  return settled(std::move(*w));
}

}  // namespace resid

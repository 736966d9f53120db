#include "storage/read_buffer.hpp"

#include <sys/mman.h>

#include <utility>

#include "base/sys.hpp"
#include "base/units.hpp"

namespace resid {

ReadBuffer ReadBuffer::make(std::uint64_t bytes) {
  ReadBuffer buffer;
  const std::uint64_t whole = bytes / kLargePage * kLargePage;
  const std::uint64_t mapped = page_up(bytes) + (whole != 0 ? kLargePage : 0);
  void* mapping =
      sys::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return buffer;
  const auto address = reinterpret_cast<std::uint64_t>(mapping);
  const std::uint64_t skip = whole != 0 ? (kLargePage - address % kLargePage) % kLargePage : 0;
  buffer.mapping_ = mapping;
  buffer.mapped_ = mapped;
  buffer.data_ = static_cast<std::uint8_t*>(mapping) + skip;
  buffer.bytes_ = page_up(bytes);
  sys::madvise(mapping, mapped, MADV_DONTFORK);
  sys::madvise(mapping, mapped, MADV_DONTDUMP);
  // The rest of a slot, a seam or two, would take a large page of its own.
  if (whole != 0) sys::madvise(buffer.data_, whole, MADV_HUGEPAGE);
  if (whole != buffer.bytes_) {
    sys::madvise(buffer.data_ + whole, buffer.bytes_ - whole, MADV_NOHUGEPAGE);
  }
  // Present before the first read, and counted in what the process needs before any budget is.
  for (std::uint64_t at = 0; at < buffer.bytes_; at += kPage)
    static_cast<volatile std::uint8_t*>(buffer.data_)[at] = 0;
  return buffer;
}

ReadBuffer::ReadBuffer(ReadBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ReadBuffer& ReadBuffer::operator=(ReadBuffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ReadBuffer::~ReadBuffer() {
  if (mapping_ != nullptr) sys::munmap(mapping_, mapped_);
}

}  // namespace resid

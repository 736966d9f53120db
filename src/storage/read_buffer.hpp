#pragma once
// Memory that a disk writes to: in large pages as far as it has whole ones, present from the start.
//
// A device takes a request in so many pieces of contiguous memory and no more (max_segments of its
// queue), so that a request into scattered 4 KiB pages is cut into several. On a virtio disk of 254
// segments the same reads of 2 MiB gave 1.0 GB/s into small pages and 2.6 to 3.0 into large ones.

#include <cstdint>

namespace resid {

class ReadBuffer {
 public:
  ReadBuffer() = default;
  static ReadBuffer make(std::uint64_t bytes);  // false where there is no memory
  ReadBuffer(ReadBuffer&& other) noexcept;
  ReadBuffer& operator=(ReadBuffer&& other) noexcept;
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  ~ReadBuffer();
  explicit operator bool() const { return data_ != nullptr; }
  std::uint8_t* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  std::uint64_t mapped_ = 0;
  std::uint8_t* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace resid

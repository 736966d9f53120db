#pragma once
// Messages that must get out from where neither malloc nor stdio may be used (I-13): the fault
// thread, fetch workers and signal handlers.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/sys.hpp"

namespace resid {

// A line built on the stack and written with one write(2). Longer text is cut, never overflows.
class RawLine {
 public:
  RawLine& operator<<(std::string_view text) {
    const std::size_t n = text.size() < room() ? text.size() : room();
    std::memcpy(buffer_.data() + size_, text.data(), n);
    size_ += n;
    return *this;
  }
  RawLine& operator<<(std::uint64_t number) {
    std::array<char, 20> digits{};
    std::size_t n = digits.size();
    do {
      digits[--n] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << std::string_view(digits.data() + n, digits.size() - n);
  }
  std::string_view view() const { return {buffer_.data(), size_}; }
  // Writes the line and a newline to `fd`; what cannot be written is dropped.
  void emit(int fd = STDERR_FILENO) {
    buffer_[size_++] = '\n';
    std::size_t done = 0;
    while (done < size_) {
      const ssize_t n = sys::write(fd, buffer_.data() + done, size_ - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    size_ = 0;
  }

 private:
  std::size_t room() const { return buffer_.size() - 1 - size_; }
  std::array<char, 1024> buffer_{};
  std::size_t size_ = 0;
};

}  // namespace resid

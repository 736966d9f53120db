#pragma once
// RAII over the C interface: what is opened is closed, what is pinned is released. Header only;
// throws resid::error.

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "resid/resid.h"

namespace resid {

class error : public std::runtime_error {
 public:
  explicit error(int status) : std::runtime_error(resid_last_error()), status_(status) {}
  int status() const noexcept { return status_; }  // enum resid_status

 private:
  int status_;
};

namespace detail {
inline void check(int status) {
  if (status != RESID_OK) throw error(status);
}
struct destroy {
  void operator()(resid_pager* p) const noexcept { resid_destroy(p); }
};
struct unpin {
  void operator()(resid_pin* p) const noexcept { resid_unpin(p); }
};
}  // namespace detail

// Keeps a range resident while it lives.
using pin = std::unique_ptr<resid_pin, detail::unpin>;

class pager {
 public:
  explicit pager(std::uint64_t budget_bytes) : pager(options(budget_bytes)) {}
  explicit pager(const resid_options& options) {
    resid_pager* raw = nullptr;
    detail::check(resid_create(&options, &raw));
    handle_.reset(raw);
  }
  static resid_options options(std::uint64_t budget_bytes) {
    resid_options o;
    resid_options_init(&o, sizeof o);
    o.budget_bytes = budget_bytes;
    return o;
  }

  std::span<const std::byte> map(const std::string& path) {
    const void* address = nullptr;
    std::uint64_t bytes = 0;
    detail::check(resid_map(handle_.get(), path.c_str(), &address, &bytes));
    return {static_cast<const std::byte*>(address), bytes};
  }
  void unmap(std::span<const std::byte> view) {
    detail::check(resid_unmap(handle_.get(), view.data(), view.size()));
  }
  resid::pin pin(std::span<const std::byte> range) {
    resid_pin* raw = nullptr;
    detail::check(resid_pin_range(handle_.get(), range.data(), range.size(), &raw));
    return resid::pin(raw);
  }
  void will_need(std::span<const std::byte> range) {
    detail::check(resid_will_need(handle_.get(), range.data(), range.size()));
  }
  void access(const void* address) { detail::check(resid_access(handle_.get(), address)); }
  void declare_order(std::span<const resid_range> ranges) {
    detail::check(resid_declare_order(handle_.get(), ranges.data(), ranges.size()));
  }
  std::uint64_t resident(std::span<const std::byte> range) {
    std::uint64_t bytes = 0;
    detail::check(resid_resident(handle_.get(), range.data(), range.size(), &bytes));
    return bytes;
  }
  void set_budget(std::uint64_t bytes) { detail::check(resid_set_budget(handle_.get(), bytes)); }
  resid_stats stats() {
    resid_stats s{};
    s.struct_size = sizeof s;
    detail::check(resid_get_stats(handle_.get(), &s));
    return s;
  }
  resid_pager* get() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<resid_pager, detail::destroy> handle_;
};

}  // namespace resid

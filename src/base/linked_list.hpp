#pragma once
// Objects linked through themselves: queueing allocates nothing, and any of them leaves in O(1).
// T has `T* next` and `T* prev`, and is in one list at most.

#include <cstdint>

namespace resid {

template <class T>
class LinkedList {
 public:
  bool empty() const { return head_ == nullptr; }
  std::uint32_t size() const { return size_; }
  T* front() const { return head_; }  // nullptr when empty

  void push_back(T& item) {
    item.next = nullptr;
    item.prev = tail_;
    (tail_ != nullptr ? tail_->next : head_) = &item;
    tail_ = &item;
    ++size_;
  }
  void push_front(T& item) {
    item.prev = nullptr;
    item.next = head_;
    (head_ != nullptr ? head_->prev : tail_) = &item;
    head_ = &item;
    ++size_;
  }
  void remove(T& item) {  // a member
    (item.prev != nullptr ? item.prev->next : head_) = item.next;
    (item.next != nullptr ? item.next->prev : tail_) = item.prev;
    item.next = item.prev = nullptr;
    --size_;
  }
  T* pop_front() {  // nullptr when empty
    T* item = head_;
    if (item != nullptr) remove(*item);
    return item;
  }

 private:
  T* head_ = nullptr;
  T* tail_ = nullptr;
  std::uint32_t size_ = 0;
};

}  // namespace resid

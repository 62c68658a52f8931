// A pool of things that threads borrow: each gets one nobody else has; a new one is made only when all are
// out.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace kiln {

template <class T>
class BorrowPool {
 public:
  template <class Make>
  std::unique_ptr<T> take(const Make& make) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> item = std::move(idle_.back());
        idle_.pop_back();
        return item;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<T> item) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(item));
  }
  // All that were given back. Only while nobody works.
  const std::vector<std::unique_ptr<T>>& idle() const { return idle_; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace kiln

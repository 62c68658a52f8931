// One piece of work at a time on a thread of its own, whose outcome is taken later.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string_view>
#include <thread>

namespace kiln {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask() { wait(); }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Not while the one before runs. Where the thread cannot be started, take() says so (`whose`: "the save").
  void start(std::string_view whose, std::function<void()> work);
  bool over() const { return over_.load(std::memory_order_acquire); }  // also where nothing was started
  void wait() noexcept;
  void take();  // waits, and throws what the work threw

 private:
  std::thread thread_;
  std::atomic<bool> over_ = true;
  std::exception_ptr thrown_;  // the thread's until over_
};

}  // namespace kiln

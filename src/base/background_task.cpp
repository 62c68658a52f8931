#include "base/background_task.h"

#include <utility>

#include "base/start_thread.h"

namespace kiln {

void BackgroundTask::start(std::string_view whose, std::function<void()> work) {
  wait();
  thrown_ = nullptr;
  over_ = false;
  try {
    thread_ = start_thread(whose, [this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        thrown_ = std::current_exception();
      }
      over_.store(true, std::memory_order_release);
    });
  } catch (...) {
    thrown_ = std::current_exception();
    over_ = true;
  }
}

void BackgroundTask::wait() noexcept {
  if (thread_.joinable()) thread_.join();
}

void BackgroundTask::take() {
  wait();
  if (const std::exception_ptr thrown = std::exchange(thrown_, nullptr)) std::rethrow_exception(thrown);
}

}  // namespace kiln

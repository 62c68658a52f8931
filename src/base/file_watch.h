// What a thread asks of the file system, announced before it is done: the seam at which a disk can be made to
// look full, or a process be killed at a known point of a save. Without a watch an operation costs one
// pointer check.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

namespace kiln {

enum class FileOp : uint8_t { write, sync, rename };

class FileWatch {
 public:
  virtual ~FileWatch() = default;
  // `path` is what the file will be called. 0, or the errno with which the operation is to fail.
  virtual int before(FileOp op, std::string_view path) = 0;
  // What follows on this thread is the save of that step, which training may have left behind.
  virtual void begin_save(int64_t /*step*/) {}
};

// Watches its own thread while it lives; of null, nothing.
class FileWatchGuard {
 public:
  explicit FileWatchGuard(FileWatch* watch) : outer_(std::exchange(current_, watch)) {}
  ~FileWatchGuard() { current_ = outer_; }
  FileWatchGuard(const FileWatchGuard&) = delete;
  FileWatchGuard& operator=(const FileWatchGuard&) = delete;

  // False, with errno set, where the operation is not to be done.
  static bool allows(FileOp op, std::string_view path) {
    if (current_ == nullptr) return true;
    const int why = current_->before(op, path);
    if (why != 0) errno = why;
    return why == 0;
  }

 private:
  static inline thread_local FileWatch* current_ = nullptr;
  FileWatch* outer_;
};

}  // namespace kiln

// Which kernels a thread starts, as seen while it runs: the test that a variant runs its own code
// and no other's. On a GPU a kernel is known by the name of its function, on the CPU by the file that splits
// its work ("rms_norm/cpu_fused.cpp"). Without a listener, a launch costs one pointer check.
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace kiln {

// Listens to its own thread while it lives: a rank starts all its kernels from one.
class KernelLog {
 public:
  KernelLog() : outer_(std::exchange(current_, this)) {}
  ~KernelLog() { current_ = outer_; }
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  static bool listening() { return current_ != nullptr; }
  static void note(std::string kernel) {
    if (current_ != nullptr) current_->kernels_.push_back(std::move(kernel));
  }
  static void note(const std::source_location& where);

  // Since it was asked last.
  std::vector<std::string> take() { return std::exchange(kernels_, {}); }

 private:
  static inline thread_local KernelLog* current_ = nullptr;
  KernelLog* outer_;
  std::vector<std::string> kernels_;
};

}  // namespace kiln

// Progress on stderr: a bar that is rewritten on a terminal, an occasional line elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace kiln::cli {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // leaves a terminal's line empty
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `detail` follows the bar: "12.3 MB/s".
  void show(const std::string& what, double fraction, const std::string& detail);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point last_;
};

}  // namespace kiln::cli

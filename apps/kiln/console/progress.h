// Progress on stderr: a bar for work of a known size, a line of words for the rest.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace kiln::cli {

// Rewritten on a terminal, an occasional line elsewhere.
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

// One line that is rewritten, on a terminal only.
class BenchProgress {
 public:
  void operator()(const std::string& text) const;
  BenchProgress();
  ~BenchProgress();
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

 private:
  bool terminal_;
};

}  // namespace kiln::cli

// One line of stderr that is rewritten, on a terminal only.
#pragma once

#include <string>

namespace kiln::cli {

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

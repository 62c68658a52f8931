// metrics.jsonl: one JSON object per line, one per step or evaluation. A resumed run keeps the lines up
// to the step it resumes from; what a killed process wrote beyond it, or half of a line, is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

class MetricsLog {
 public:
  // Keeps lines of steps up to `last_step`; 0 begins a new file.
  MetricsLog(std::string path, int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<double>& kept_losses() const { return losses_; }  // "loss" of the lines kept
  // Error when it cannot be written; the next line is tried again all the same.
  void append(const std::string& json_object);

 private:
  std::string path_;
  std::vector<double> losses_;
  int file_ = -1;
  bool torn_ = false;  // the last line was not written whole
};

// The lines that count, and the losses in them.
struct KeptMetrics {
  std::string text;
  std::vector<double> losses;
};
KeptMetrics keep_metrics(std::string_view text, int64_t last_step);

}  // namespace kiln

#include "rows/metrics_line.h"

#include <charconv>
#include <cmath>

namespace kiln {
namespace {

struct Key {
  std::string_view name;
  double MetricsLine::* field;
};
constexpr Key kKeys[] = {{"loss", &MetricsLine::loss},
                         {"lr", &MetricsLine::lr},
                         {"grad_norm", &MetricsLine::grad_norm},
                         {"clip", &MetricsLine::clip},
                         {"loss_scale", &MetricsLine::loss_scale},
                         {"seconds", &MetricsLine::seconds},
                         {"tokens", &MetricsLine::tokens},
                         {"host_wait_ms", &MetricsLine::host_wait_ms},
                         {"stall_ms", &MetricsLine::stall_ms},
                         {"at", &MetricsLine::at},
                         {"peak_bytes", &MetricsLine::peak_bytes},
                         {"validation_loss", &MetricsLine::validation_loss}};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : left_(text) {}

  bool take(char c) {
    skip();
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  // A key has no escapes: ours have none.
  bool key(std::string_view& name) {
    if (!take('"')) return false;
    const std::size_t end = left_.find_first_of("\"\\");
    if (end == std::string_view::npos || left_[end] != '"') return false;
    name = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return take(':');
  }
  // A number, true, false or null, which is none.
  bool value(double& out) {
    skip();
    for (const auto& [word, means] :
         {std::pair<std::string_view, double>{"true", 1}, {"false", 0}, {"null", MetricsLine::kNone}}) {
      if (!left_.starts_with(word)) continue;
      left_.remove_prefix(word.size());
      out = means;
      return true;
    }
    if (left_.empty() || (left_.front() != '-' && (left_.front() < '0' || left_.front() > '9'))) return false;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), out);
    if (error != std::errc{}) return false;
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    return true;
  }
  bool at_end() {
    skip();
    return left_.empty();
  }

 private:
  void skip() {
    while (!left_.empty() && (left_.front() == ' ' || left_.front() == '\t' || left_.front() == '\r'))
      left_.remove_prefix(1);
  }
  std::string_view left_;
};

}  // namespace

std::optional<MetricsLine> read_metrics_line(std::string_view line) {
  constexpr double kMostSteps = 9e15;  // beyond it a double skips whole numbers
  Scanner in(line);
  MetricsLine m;
  bool has_step = false;
  if (!in.take('{')) return {};
  do {
    std::string_view name;
    double value = 0;
    if (!in.key(name) || !in.value(value)) return {};
    if (name == "step") {
      if (!(value >= 0 && value <= kMostSteps) || value != std::floor(value)) return {};
      m.step = static_cast<int64_t>(value);
      has_step = true;
    } else if (name == "skipped") {
      m.skipped = value == 1;
    } else {
      for (const Key& k : kKeys)
        if (k.name == name) m.*k.field = value;
      m.is_step = m.is_step || name == "loss";
    }
  } while (in.take(','));
  if (!in.take('}') || !in.at_end() || !has_step) return {};
  return m;
}

}  // namespace kiln

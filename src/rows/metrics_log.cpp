#include "rows/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/write_at.h"

namespace kiln {

KeptMetrics keep_metrics(std::string_view text, int64_t last_step) {
  KeptMetrics kept;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // cut off in the middle
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    try {
      const Json document =
          parse_json(line, {.max_bytes = std::size_t{1} << 16, .max_values = 1000}, "metrics.jsonl");
      const JsonValue root(document, "metrics.jsonl");
      if (root.at("step").integer(0, INT64_MAX) > last_step) continue;
      if (root.has("loss") && !root.at("loss").raw().is_null())
        kept.losses.push_back(root.at("loss").number());
      kept.text.append(line).push_back('\n');
    } catch (const Error&) {
      continue;  // not one of ours; the run's truth is in its checkpoints, not here
    }
  }
  return kept;
}

MetricsLog::MetricsLog(std::string path, int64_t last_step) : path_(std::move(path)) {
  KeptMetrics kept;
  if (last_step > 0 && std::filesystem::exists(path_)) {
    const MappedFile old(path_);
    kept = keep_metrics(old.text(), last_step);
  }
  losses_ = std::move(kept.losses);
  write_file_atomically(path_, kept.text);
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0)
    throw Error(cat("cannot write ", path_, ": ", std::strerror(errno)), "name another folder with --out");
}

MetricsLog::~MetricsLog() { ::close(file_); }

void MetricsLog::append(const std::string& json_object) {
  // What is left of a torn line is no line.
  const std::string text = cat(torn_ ? "\n" : "", json_object, "\n");
  std::string_view left = text;
  const bool whole = append_to(file_, left);
  const int why = errno;
  torn_ = !whole && (torn_ || left.size() < text.size());
  if (!whole) throw Error(cat("cannot write to ", path_, ": ", std::strerror(why)), "is the disk full?");
}

}  // namespace kiln

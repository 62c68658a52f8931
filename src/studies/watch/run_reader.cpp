#include "studies/watch/run_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/on_exit.h"

namespace kiln {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // read at a time; a longer line is none of ours

double number_at(const Json& page, std::string_view key) {
  const Json* value = page.find(key);
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}

int64_t integer_at(const Json& page, std::string_view key) {
  const double value = number_at(page, key);
  return std::abs(value) < 9e15 ? static_cast<int64_t>(value) : 0;
}

std::string text_at(const Json& page, std::string_view key) {
  const Json* value = page.find(key);
  return value != nullptr && value->is_string() ? value->text() : std::string();
}

WatchedFacts read_facts(const Json& page) {
  WatchedFacts f;
  f.known = true;
  const Json none = Json::object();
  const auto part = [&](std::string_view key) -> const Json& {
    const Json* found = page.find(key);
    return found != nullptr && found->is_object() ? *found : none;
  };
  const Json &options = part("options"), &model = part("model"), &machine = part("machine");
  f.model = text_at(options, "model");
  f.precision = text_at(options, "precision");
  f.strategy = text_at(options, "strategy");
  f.steps = integer_at(options, "steps");
  f.ranks = std::max<int64_t>(1, integer_at(options, "ranks"));
  f.parameters = integer_at(model, "parameters");
  f.device = text_at(machine, "device");
  f.peak_flops = number_at(machine, "peak_flops");
  f.first_step = integer_at(page, "first_step");
  f.tokens_per_step = integer_at(page, "tokens_per_step");
  f.step_flops = number_at(page, "step_flops");
  f.predicted_step_ms = number_at(page, "predicted_step_ms");
  f.predicted_peak_bytes = number_at(page, "predicted_peak_bytes");
  f.began = number_at(page, "began");
  return f;
}

}  // namespace

RunReader::RunReader(std::string folder) : folder_(std::move(folder)) {}

std::optional<RunReader::FileId> RunReader::id_of(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return {};
  return FileId{s.st_dev, s.st_ino, s.st_mtim.tv_sec * int64_t{1'000'000'000} + s.st_mtim.tv_nsec, s.st_size};
}

bool RunReader::refresh_facts() {
  const std::string path = folder_ + "/run.json";
  const std::optional<FileId> now = id_of(path);
  if (!now || *now == facts_file_) return false;
  try {
    const std::string text = read_small_file(path, std::size_t{1} << 20, "a run.json");
    facts_ =
        read_facts(parse_json(text, {.max_bytes = std::size_t{1} << 20, .max_values = 10'000}, "run.json"));
  } catch (const Error&) {  // the figures themselves are elsewhere
    facts_ = {};
  }
  facts_file_ = *now;
  return true;
}

void RunReader::restart() {
  curves_ = {};
  tally_ = {};
  recent_.clear();
  offset_ = 0;
  skipping_ = false;
}

bool RunReader::refresh() {
  bool changed = refresh_facts();
  const std::string path = folder_ + "/metrics.jsonl";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    if (metrics_file_ != FileId{}) restart();
    metrics_file_ = {};
    return changed;
  }
  const OnExit close([file] { ::close(file); });
  struct stat s{};
  if (::fstat(file, &s) != 0 || !S_ISREG(s.st_mode)) return changed;
  const bool other = s.st_ino != metrics_file_.inode || s.st_dev != metrics_file_.device;
  if (other || s.st_size < offset_) {
    changed = changed || tally_.lines > 0;
    restart();
  }
  metrics_file_ = {s.st_dev, s.st_ino, s.st_mtim.tv_sec * int64_t{1'000'000'000} + s.st_mtim.tv_nsec,
                   s.st_size};
  std::string piece(kPiece, '\0');
  while (offset_ < s.st_size) {
    const ssize_t n = ::pread(file, piece.data(), piece.size(), offset_);
    if (n <= 0) break;
    std::string_view text(piece.data(), static_cast<std::size_t>(n));
    std::size_t used = 0;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', used)) {
      if (!std::exchange(skipping_, false)) take(text.substr(used, end - used));
      used = end + 1;
    }
    if (used == 0 && text.size() == kPiece) {
      tally_.unreadable += skipping_ ? 0 : 1;
      skipping_ = true;
      used = kPiece;
    }
    changed = changed || used > 0;
    if (used == 0) break;  // the rest of the line has not been written yet
    offset_ += static_cast<int64_t>(used);
  }
  return changed;
}

void RunReader::take(std::string_view line) {
  if (line.empty()) return;  // what ends a torn line
  const std::optional<MetricsLine> m = read_metrics_line(line);
  ++tally_.lines;
  if (!m) {
    ++tally_.unreadable;
  } else if (m->is_step) {
    take_step(*m);
  } else if (std::isfinite(m->validation_loss)) {
    curves_.validation.add(m->step, m->validation_loss);
    tally_.last_validation = *m;
    tally_.best_validation = std::fmin(tally_.best_validation, m->validation_loss);
  }
}

void RunReader::take_step(const MetricsLine& m) {
  curves_.loss.add(m.step, m.loss);
  curves_.grad_norm.add(m.step, m.grad_norm);
  curves_.peak_bytes.add(m.step, m.peak_bytes);
  if (std::isfinite(m.loss)) {
    if (std::isnan(tally_.first_loss)) tally_.first_loss = m.loss;
    tally_.last_finite_loss = m.loss;
  }
  tally_.skipped += m.skipped ? 1 : 0;
  tally_.last = m;
  if (std::isfinite(m.tokens)) tally_.tokens += m.tokens;
  if (!(m.seconds > 0)) return;
  tally_.seconds += m.seconds;
  if (std::isfinite(m.host_wait_ms)) tally_.host_wait_ms += m.host_wait_ms;
  // A process' first step also warms everything up.
  if (m.step == facts_.first_step + 1 || m.step == 1) return;
  curves_.step_ms.add(m.step, 1e3 * m.seconds);
  curves_.tokens_per_s.add(m.step, m.tokens / m.seconds);
  curves_.data_wait.add(m.step, m.host_wait_ms / (1e3 * m.seconds));
  if (facts_.peak_flops > 0) curves_.of_peak.add(m.step, facts_.step_flops / m.seconds / facts_.peak_flops);
  if (m.step <= facts_.first_step) return;
  recent_.push_back({m.step, m.seconds, m.tokens, m.host_wait_ms, m.at});
  if (recent_.size() > kRecent) recent_.pop_front();
}

// Asked of the system's table of locks and not by trying: a lock that is tried is held for a moment, and a
// run that starts in it would be refused its own folder.
std::optional<bool> RunReader::is_held() const {
  const std::optional<FileId> lock = id_of(folder_ + "/lock");
  if (!lock) return false;
  std::ifstream table("/proc/locks");
  if (!table) return {};
  std::string line;
  while (std::getline(table, line)) {
    // 3: FLOCK  ADVISORY  WRITE 4242 00:2f:1234567 0 EOF
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, place;
    words >> number >> kind >> advisory >> access >> pid >> place;
    if (kind != "FLOCK" || access != "WRITE") continue;
    if (place.substr(place.rfind(':') + 1) == std::to_string(lock->inode)) return true;
  }
  return false;
}

double RunReader::silent_seconds() const {
  if (metrics_file_.changed_ns == 0) return 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(
      0.0, 1e-9 * static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() -
                                      metrics_file_.changed_ns));
}

}  // namespace kiln

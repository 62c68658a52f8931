#include "studies/watch/run_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace kiln {
namespace {

constexpr std::size_t kPieces = 8;

// From one step's line to the next one's: the step, and what was done between.
std::vector<double> laps_of(const std::deque<RecentStep>& recent) {
  std::vector<double> laps;
  for (std::size_t i = 1; i < recent.size(); ++i) {
    const double lap = recent[i].at - recent[i - 1].at;
    const bool whole = std::isfinite(lap) && lap >= 0 && recent[i].step == recent[i - 1].step + 1;
    laps.push_back(whole ? lap : recent[i].seconds);
  }
  return laps;
}

Json known(double x) { return std::isfinite(x) ? Json(x) : Json(); }
Json known(const std::optional<double>& x) { return x ? known(*x) : Json(); }
Json above_zero(double x) { return x > 0 ? known(x) : Json(); }
Json above_zero(int64_t n) { return n > 0 ? Json(n) : Json(); }
Json whole(double x) { return std::abs(x) < 9e15 ? Json(static_cast<int64_t>(x)) : Json(); }

RunState state_of(const RunReader& reader, int64_t step) {
  const std::optional<bool> held = reader.is_held();
  if (reader.facts().steps > 0 && step >= reader.facts().steps) return RunState::finished;
  if (held.value_or(false)) return step > 0 ? RunState::training : RunState::starting;
  if (held.has_value() || !reader.facts().known) return RunState::stopped;
  return reader.silent_seconds() < 60 ? RunState::training : RunState::quiet;
}

}  // namespace

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, 5> kNames = {"starting", "training", "quiet", "stopped", "finished"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<TimeLeft> time_left(const std::deque<RecentStep>& recent, int64_t steps_left) {
  const std::vector<double> laps = laps_of(recent);
  if (laps.size() < kPieces || steps_left <= 0) return {};
  // Neighbours are alike, so what one more step adds to the knowledge is less than independent ones would:
  // means of pieces are compared, not single steps.
  const std::size_t length = laps.size() / kPieces;
  double sum = 0, squares = 0;
  for (std::size_t p = 0; p < kPieces; ++p) {
    double piece = 0;
    for (std::size_t i = 0; i < length; ++i) piece += laps[laps.size() - (p + 1) * length + i];
    piece /= static_cast<double>(length);
    sum += piece;
    squares += piece * piece;
  }
  const double mean = sum / kPieces;
  const double variance = std::max(0.0, (squares - sum * sum / kPieces) / (kPieces - 1));
  const double left = static_cast<double>(steps_left), pieces_left = left / static_cast<double>(length);
  // Of the mean of what was measured, and of the mean of what is to come.
  const double error = left * std::sqrt(variance * (1.0 / kPieces + 1 / std::max(1.0, pieces_left)));
  return TimeLeft{left * mean, 2 * error};
}

std::optional<double> RunSummary::prediction_error() const {
  if (!step_ms || facts.predicted_step_ms <= 0) return {};
  return facts.predicted_step_ms / *step_ms - 1;
}

RunSummary summarize_run(const RunReader& reader) {
  RunSummary s;
  s.run = reader.folder();
  s.facts = reader.facts();
  s.tally = reader.tally();
  s.step = s.tally.last ? s.tally.last->step : 0;
  s.state = state_of(reader, s.step);
  s.silent_seconds = reader.silent_seconds();
  double seconds = 0, tokens = 0, waited = 0;
  for (const RecentStep& r : reader.recent()) {
    seconds += r.seconds;
    tokens += std::isfinite(r.tokens) ? r.tokens : 0;
    waited += std::isfinite(r.host_wait_ms) ? r.host_wait_ms : 0;
  }
  if (seconds > 0) {
    const auto count = static_cast<double>(reader.recent().size());
    s.step_ms = 1e3 * seconds / count;
    s.tokens_per_s = tokens / seconds;
    s.data_wait = waited / (1e3 * seconds);
    if (s.facts.peak_flops > 0) s.of_peak = s.facts.step_flops * count / seconds / s.facts.peak_flops;
  }
  const std::vector<CurveBin>& bins = reader.curves().loss.bins();
  double sum = 0;
  int64_t n = 0;
  for (std::size_t i = bins.size(); i-- > 0 && n < 20;) {
    sum += bins[i].sum;
    n += bins[i].count;
  }
  if (n > 0) s.mean_loss = sum / static_cast<double>(n);
  s.left = time_left(reader.recent(), s.facts.steps - s.step);
  return s;
}

Json summary_json(const RunSummary& s) {
  const RunTally& t = s.tally;
  const MetricsLine last = t.last.value_or(MetricsLine());
  return {{"command", "watch"},
          {"run", s.run},
          {"state", name_of(s.state)},
          {"model", s.facts.model},
          {"precision", s.facts.precision},
          {"device", s.facts.device},
          {"strategy", s.facts.strategy},
          {"ranks", s.facts.ranks},
          {"parameters", above_zero(s.facts.parameters)},
          {"step", s.step},
          {"steps", above_zero(s.facts.steps)},
          {"first_loss", known(t.first_loss)},
          {"loss", known(t.last_finite_loss)},
          {"mean_loss", known(s.mean_loss)},
          {"validation_loss", t.last_validation ? known(t.last_validation->validation_loss) : Json()},
          {"validation_step", t.last_validation ? Json(t.last_validation->step) : Json()},
          {"best_validation_loss", known(t.best_validation)},
          {"lr", known(last.lr)},
          {"grad_norm", known(last.grad_norm)},
          {"loss_scale", known(last.loss_scale)},
          {"skipped", t.skipped},
          {"tokens", whole(t.tokens)},
          {"seconds", t.seconds},
          {"tokens_per_s", known(s.tokens_per_s)},
          {"of_peak", known(s.of_peak)},
          {"step_ms", known(s.step_ms)},
          {"predicted_step_ms", above_zero(s.facts.predicted_step_ms)},
          {"prediction_error", known(s.prediction_error())},
          {"peak_bytes", whole(last.peak_bytes)},
          {"predicted_peak_bytes",
           s.facts.predicted_peak_bytes > 0 ? whole(s.facts.predicted_peak_bytes) : Json()},
          {"data_wait", known(s.data_wait)},
          {"seconds_left", s.left ? known(s.left->seconds) : Json()},
          {"seconds_left_error", s.left ? known(s.left->error) : Json()},
          {"silent_seconds", s.silent_seconds},
          {"lines", t.lines},
          {"unreadable_lines", t.unreadable}};
}

}  // namespace kiln

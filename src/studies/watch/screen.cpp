#include "studies/watch/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/one_line.h"
#include "base/plain_number.h"
#include "base/units.h"
#include "report/charts/braille.h"
#include "report/charts/loss_curve.h"

namespace kiln {
namespace {

constexpr int kLabel = 12, kValue = 26;  // columns of a figure's line, before its course

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return plain(per_second / 1e6, 3) + " M";
  if (per_second >= 1e4) return plain(per_second / 1e3, 4) + " k";
  return fmt::format("{:.0f}", per_second);
}

// What fits; a name's end says more than its middle.
std::string cut(const std::string& text, int width) {
  const auto most = static_cast<std::size_t>(std::max(4, width));
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

std::string figure_line(const std::string& label, const std::string& value, const ThinCurve& curve,
                        const ScreenShape& shape) {
  std::string line = fmt::format("{:<{}}{:<{}}", label, kLabel, cut(value, kValue - 1), kValue);
  if (!curve.empty()) {
    line += sparkline(curve.means(), std::min(60, shape.width - kLabel - kValue), shape.unicode);
  } else {
    line.resize(line.find_last_not_of(' ') + 1);
  }
  return line + "\n";
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string head_lines(const RunSummary& s, int width) {
  const std::string state(name_of(s.state));
  std::string text = fmt::format("{}  {}", cut(one_line(s.run), width - 14), state) + "\n";
  const double share =
      s.facts.steps > 0
          ? std::clamp(static_cast<double>(s.step) / static_cast<double>(s.facts.steps), 0.0, 1.0)
          : 0;
  if (s.facts.steps > 0) {
    const std::string steps = fmt::format("step {} of {}  {} ", s.step, s.facts.steps, percent(share));
    const int bar = std::clamp(width - static_cast<int>(steps.size()) - 2, 8, 40);
    const auto full = static_cast<std::size_t>(std::lround(share * bar));
    text += fmt::format("{}[{}{}]\n", steps, std::string(full, '#'),
                        std::string(static_cast<std::size_t>(bar) - full, '.'));
  } else {
    text += fmt::format("step {}\n", s.step);
  }
  return text;
}

std::string loss_text(const RunSummary& s) {
  const RunTally& t = s.tally;
  if (!std::isfinite(t.last_finite_loss)) return "no figures yet\n";
  std::string text =
      fmt::format("loss {:.4f}, from {:.4f}", s.mean_loss.value_or(t.last_finite_loss), t.first_loss);
  if (t.last_validation)
    text += fmt::format("; validation {:.4f} at step {}", t.last_validation->validation_loss,
                        t.last_validation->step);
  if (t.skipped > 0) text += fmt::format("; {} skipped", t.skipped);
  return text + "\n";
}

std::string step_text(const RunSummary& s) {
  if (!s.step_ms) return "-";
  std::string text = fmt::format("{} ms", plain(*s.step_ms, 4));
  if (s.prediction_error()) text += fmt::format(", {} pred.", plain(s.facts.predicted_step_ms, 4));
  return text;
}

std::string memory_text(const RunSummary& s) {
  const double bytes = s.tally.last ? s.tally.last->peak_bytes : NAN;
  if (!std::isfinite(bytes)) return "-";
  std::string text = human({static_cast<std::size_t>(bytes)});
  if (s.facts.predicted_peak_bytes > 0)
    text += bytes == s.facts.predicted_peak_bytes
                ? ", as predicted"
                : fmt::format(", {:+.1f} % pred.", 100 * (s.facts.predicted_peak_bytes / bytes - 1));
  return text;
}

std::string left_text(const RunSummary& s) {
  if (s.state == RunState::finished) return fmt::format("trained for {}", human_duration(s.tally.seconds));
  if (!s.left) return {};
  return fmt::format("{} left, give or take {}", human_duration(s.left->seconds),
                     human_duration(s.left->error));
}

std::string figures(const RunSummary& s, const RunCurves& c, const ScreenShape& shape) {
  const auto show = [](const std::optional<double>& x, auto text) { return x ? text(*x) : std::string("-"); };
  std::string text;
  text += figure_line("tokens/s", show(s.tokens_per_s, rate_text), c.tokens_per_s, shape);
  text += figure_line("MFU", show(s.of_peak, percent), c.of_peak, shape);
  text += figure_line("step", step_text(s), c.step_ms, shape);
  text += figure_line(
      "grad norm",
      s.tally.last && std::isfinite(s.tally.last->grad_norm) ? plain(s.tally.last->grad_norm, 4) : "-",
      c.grad_norm, shape);
  text += figure_line("data wait", show(s.data_wait, percent), c.data_wait, shape);
  text += figure_line("peak memory", memory_text(s), c.peak_bytes, shape);
  return text;
}

}  // namespace

std::string human_duration(double seconds) {
  const auto s = static_cast<int64_t>(std::min(1e12, std::max(0.0, std::round(seconds))));
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(0.0, seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  if (s < 172800) return fmt::format("{}:{:02} h", s / 3600, s % 3600 / 60);
  return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
}

std::string watch_screen(const RunSummary& s, const RunCurves& c, const ScreenShape& shape) {
  std::string text = head_lines(s, shape.width) + loss_text(s);
  const std::string below = figures(s, c, shape);
  std::string end = left_text(s);
  if (s.state == RunState::quiet || s.state == RunState::stopped)
    end += fmt::format("{}nothing new for {}", end.empty() ? "" : "; ", human_duration(s.silent_seconds));
  if (s.tally.unreadable > 0)
    end += fmt::format("{}{} unreadable line{}", end.empty() ? "" : "; ", s.tally.unreadable,
                       s.tally.unreadable == 1 ? "" : "s");
  const int others = static_cast<int>(std::count(text.begin(), text.end(), '\n') +
                                      std::count(below.begin(), below.end(), '\n')) +
                     2;
  const int rows = std::clamp(shape.height - others, 0, 16), columns = std::max(8, shape.width - 11);
  if (rows >= 3 && !c.loss.empty())
    text += shape.unicode ? draw_braille_curve(c.loss.means(), columns, rows)
                          : draw_curve(c.loss.means(), columns, rows);
  text += below;
  if (!end.empty()) text += cut(end, shape.width) + "\n";
  return text;
}

std::string watch_line(const RunSummary& s) {
  std::string text = fmt::format("{}: {}, step {}", s.run, name_of(s.state), s.step);
  if (s.facts.steps > 0) text += fmt::format(" of {}", s.facts.steps);
  if (std::isfinite(s.tally.last_finite_loss)) text += fmt::format(", loss {:.4f}", s.tally.last_finite_loss);
  if (s.tally.last_validation)
    text += fmt::format(", validation {:.4f}", s.tally.last_validation->validation_loss);
  if (s.tokens_per_s) text += fmt::format(", {} tokens/s", rate_text(*s.tokens_per_s));
  if (s.of_peak) text += fmt::format(", MFU {}", percent(*s.of_peak));
  if (s.left && s.state != RunState::finished)
    text += fmt::format(", {} left (+- {})", human_duration(s.left->seconds), human_duration(s.left->error));
  return one_line(text);
}

}  // namespace kiln

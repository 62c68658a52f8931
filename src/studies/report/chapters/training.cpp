// The runs that lie beside the rows: their losses, and how fast they learned.
#include <fmt/format.h>

#include "base/plain_number.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

ChartLine line_of(const Json& row, const char* steps, const char* losses, std::size_t colour) {
  ChartLine line;
  line.colour = colour;
  line.style = LineStyle::predicted;  // without dots: hundreds of them would be a smear
  const std::vector<double> at = samples_of(row, steps), loss = samples_of(row, losses);
  for (std::size_t i = 0; i < std::min(at.size(), loss.size()); ++i) line.points.push_back({at[i], loss[i]});
  return line;
}

Answer losses(Rows rows) {
  Answer a;
  LineChart chart{.title = "Loss of every run",
                  .below_title = "of the training batches, and of the validation text (dots)",
                  .x_label = "step",
                  .y_label = "loss, nats a token",
                  .x_ticks = {},
                  .lines = {},
                  .style_names = {"validation", "training", ""}};
  double most = 0;
  for (const Json& row : rows) {
    const auto first = number_at(row, "first_loss"), last = number_at(row, "last_loss"),
               step = number_at(row, "last_step");
    if (!first || !last || !step) continue;
    most = std::max(most, *step);
    const auto held = number_at(row, "last_val_loss"), rate = number_at(row, "tokens_per_s");
    a.sentences.push_back(fmt::format("{}: loss {:.3f} at the first step, {:.3f} at step {:.0f}{}{}.",
                                      text_at(row, "run"), *first, *last, *step,
                                      held ? fmt::format(", {:.3f} on the validation text", *held) : "",
                                      rate ? fmt::format("; {} tokens/s", figure(*rate)) : ""));
    const std::size_t colour = chart.lines.size() / 2;
    chart.lines.push_back(line_of(row, "steps", "losses", colour));
    chart.lines.back().name = text_at(row, "run");
    chart.lines.push_back(line_of(row, "val_steps", "val_losses", colour));
    chart.lines.back().style = LineStyle::measured;
  }
  if (a.empty()) return a;
  for (double tick = 1; tick <= most; tick *= 10)
    for (const double times : {1.0, 3.0})
      if (times * tick <= most) chart.x_ticks.push_back({times * tick, plain(times * tick, 6)});
  a.charts.push_back({{"loss", line_chart_svg(chart)}, "loss over the steps of every run"});
  return a;
}

constexpr Question kQuestions[] = {
    {"",
     "training",
     "Losses of the runs here",
     {"train"},
     losses,
     "kiln train --text README.md --size nano --steps 60"},
};

}  // namespace

Chapter training_chapter() { return {"training", "Training", kQuestions}; }

}  // namespace kiln

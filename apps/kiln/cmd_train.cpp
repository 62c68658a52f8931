// kiln train: text to a trained model.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/one_line.h"
#include "base/plain_number.h"
#include "dist/launch/rank_env.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/console/train_view.h"
#include "studies/format.h"
#include "studies/watch/dashboard_options.h"
#include "train/run/known_link.h"
#include "train/run/model_folder.h"
#include "train/run/train.h"
#include "train/run/train_options.h"
#include "train/run/train_ranks.h"

namespace kiln::cli {
namespace {

// Without --out: a folder named after what is trained on what, so that the same command resumes its own
// run.
std::string run_folder_of(const TrainRequest& r, const CommonOptions& common) {
  if (common.out_given) return common.out;
  const std::filesystem::path text =
      r.text.empty() ? "kiln" : std::filesystem::absolute(r.text).lexically_normal();
  const std::string stem = text.has_stem() ? text.stem().string() : text.parent_path().stem().string();
  const std::string model = std::filesystem::path(model_text(r)).stem().string();
  return fmt::format("{}/{}-{}", common.out, stem.empty() ? "text" : stem, model);
}

// Options that are not of training itself: the device and the ranks.
void complete(TrainRequest& r, const Options& options, const CommonOptions& common) {
  take_launched_ranks(r, !options.find("--ranks")->given().empty());
  if (std::filesystem::is_directory(r.model)) r.model = model_folder(r.model);
  r.seed = common.seed;
  r.run = run_folder_of(r, common);
  r.device = device_here(common);
  if (r.device.is_meta())
    throw Error(fmt::format("kiln train needs values, and --device {} has none", common.device),
                "use --device cpu or cuda; the memory a run will take is printed before its first step",
                ErrorKind::usage);
  r.results = results_folder(r, common.out);
  check_request(r);
}

double tokens_per_second(const RunTotals& t) {
  return t.seconds > 0 ? static_cast<double>(t.tokens) / t.seconds : 0;
}

// What was said before the first step, beside what came of it.
std::string prediction_line(const TrainOutcome& o) {
  const std::optional<double> took = o.step_seconds();
  if (!o.predicted_step || !took) return {};
  return fmt::format("a step took {} ms, {} predicted ({:+.1f} %)\n", plain(1e3 * *took, 4),
                     plain(1e3 * *o.predicted_step, 4), 100 * (*o.predicted_step / *took - 1));
}

// Where a run that waits for its data has its time.
std::string input_line(const InputTimes& input) {
  if (input.steps == 0) return {};
  std::string text = fmt::format("data wait: host {:.3f} ms a step ({:.2f} %)", input.host_wait_ms(),
                                 100 * input.host_share());
  if (input.stall_ms()) text += fmt::format(", device {:.3f} ms a step", *input.stall_ms());
  return text + "\n";
}

// What there is to say when it is over, for a person.
std::string summary(const TrainRequest& r, const TrainOutcome& o, const ConsoleView& view) {
  std::string text;
  if (o.steps == 0) return "stopped before the first step: nothing was trained or saved\n";
  if (o.skipped > 0)
    text = fmt::format("{} update(s) skipped: {}\n", o.skipped,
                       r.on_non_finite == OnNonFinite::skip ? "loss or gradients were not finite"
                                                            : "gradients overflowed at their loss scale");
  if (o.steps_now == 0 && o.steps >= r.steps)
    text += fmt::format("the run in {} has its {} steps already; --steps N continues it, --fresh restarts\n",
                        r.run, o.steps);
  const double rate = tokens_per_second(o.totals);  // of all steps but the first: none after a single one
  text += fmt::format("{} of {} steps{}: loss {:.4f} to {:.4f}{}\n", o.steps, r.steps,
                      o.steps < r.steps ? " (stopped by a signal; the same command resumes)" : "",
                      o.totals.first_loss, o.totals.last_loss,
                      rate > 0 ? fmt::format(", {:.0f} tokens a second", rate) : "");
  text += prediction_line(o);
  text += input_line(view.input());
  if (const std::string why = o.load.why_unreliable(); !why.empty()) text += why + "\n";
  if (o.steps_now > 0)
    text += fmt::format(
        "first step {:.2f} s after the start; {:.1f} % of the time since the run began in steps\n",
        o.start_seconds, 100 * o.effective_training);
  if (!o.sample.empty()) text += fmt::format("sample:\n{}\n", indented(o.sample));
  text += fmt::format("model    {}\nmetrics  {}\n", o.checkpoint, o.metrics);
  return text;
}

// Of the first rank alone, which is the one that writes the run's figures.
std::unique_ptr<Dashboard> dashboard_of(const DashboardOptions& asked, const TrainRequest& r) {
  auto page = read_rank_env().rank == 0 ? open_dashboard(asked, r.run, true) : nullptr;
  if (page) fmt::print(stderr, "dashboard  {}\n", page->url());
  return page;
}

void run_train(const TrainRequest& request, const DashboardOptions& asked, const CommonOptions& common) {
  const std::unique_ptr<Dashboard> dashboard = dashboard_of(asked, request);
  TrainOutcome outcome;
  Json result;
  std::string text;
  {
    ConsoleView view;
    const StopOnSignals signals;
    outcome = train(request, view, stop_requested());
    view.draw_losses();
    result = {{"command", "train"},
              {"steps", outcome.steps},
              {"steps_now", outcome.steps_now},
              {"first_loss", outcome.totals.first_loss},
              {"final_loss", outcome.totals.last_loss},
              {"validation_loss", nullptr},
              {"tokens_per_s", nullptr},
              {"step_ms", nullptr},
              {"predicted_step_ms", nullptr},
              {"of_peak", view.of_peak()},
              {"host_wait_ms", nullptr},
              {"data_wait_share", nullptr},
              {"stall_ms", nullptr},
              {"parameters", outcome.parameters},
              {"skipped", outcome.skipped},
              {"start_seconds", nullptr},
              {"effective_training", nullptr},
              {"strategy", request.strategy},
              {"ranks", request.ranks},
              {"tp", request.tensor_ranks},
              {"transport", outcome.transport},
              {"wanted_steps", request.steps},
              {"stopped", outcome.steps < request.steps},
              {"checkpoint", outcome.checkpoint},
              {"sample", outcome.sample},
              {"run", request.run},
              {"metrics", outcome.metrics},
              {"load", load_json(outcome.load)}};
    if (!outcome.metrics_complete)
      throw Error(fmt::format("{} lacks lines: the disk was full or failed", outcome.metrics),
                  fmt::format("the model itself is complete: {}", outcome.checkpoint));
    if (outcome.totals.seconds > 0) result["tokens_per_s"] = tokens_per_second(outcome.totals);
    if (outcome.step_seconds()) result["step_ms"] = 1e3 * *outcome.step_seconds();
    if (outcome.predicted_step) result["predicted_step_ms"] = 1e3 * *outcome.predicted_step;
    if (outcome.steps_now > 0) {
      result["start_seconds"] = outcome.start_seconds;
      result["effective_training"] = outcome.effective_training;
    }
    if (view.input().steps > 0) {
      result["host_wait_ms"] = view.input().host_wait_ms();
      result["data_wait_share"] = view.input().host_share();
    }
    if (view.input().stall_ms()) result["stall_ms"] = *view.input().stall_ms();
    if (view.last_evaluation()) result["validation_loss"] = view.last_evaluation()->loss;
    text = summary(request, outcome, view);
  }
  if (common.json) text = result.dump(2) + "\n";
  fmt::print("{}", text);
}

}  // namespace

void add_train(Command& command, const CommonOptions& common) {
  auto request = std::make_shared<TrainRequest>();
  auto dashboard = std::make_shared<DashboardOptions>();
  add_train_options(command.options, *request);
  add_dashboard_options(command.options, *dashboard);
  command.run = [request, dashboard, &command, &common] {
    complete(*request, command.options, common);
    run_train(*request, *dashboard, common);
  };
}

}  // namespace kiln::cli

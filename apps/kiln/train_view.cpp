#include "kiln/train_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "kiln/one_line.h"
#include "report/loss_curve.h"

namespace kiln::cli {
namespace {

std::string human_time(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s % 3600 / 60);
}

}  // namespace

ConsoleView::ConsoleView(std::string metrics)
    : terminal_(::isatty(STDERR_FILENO) == 1), metrics_path_(std::move(metrics)) {}

ConsoleView::~ConsoleView() {
  if (drawn_) std::fputs("\n", stderr);
}

void ConsoleView::on_setup(const TrainRequest& r, const TrainSetup& s) {
  setup_ = s;
  steps_ = r.steps;
  // Only now: a run that cannot begin leaves no file behind.
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(metrics_path_).parent_path(), error);
  metrics_.open(metrics_path_, std::ios::trunc);
  if (!metrics_) throw Error(fmt::format("cannot write {}", metrics_path_), "name another folder with --out");
  const double params = static_cast<double>(s.parameters);
  const double state = params * state_bytes_per_parameter(policy_of(
                                    parse_precision("--precision", r.precision), r.micro_steps == 1));
  std::string text;
  text += fmt::format("model    {}: {} layers, d_model {}, {} heads, vocabulary {}: {:.2f} M parameters\n",
                      r.size, s.model.layers, s.model.d_model, s.model.heads, s.model.vocab, params / 1e6);
  text += fmt::format("state    {} for weights, gradients and Adam moments ({})\n",
                      human({static_cast<std::size_t>(state)}), r.precision);
  text += fmt::format("text     {} tokens to train on, {} held out\n", s.train_tokens, s.validation_tokens);
  text += fmt::format("step     {} x {} tokens x {} = {} tokens, {:.3g} GFLOP\n", r.batch, r.context,
                      r.micro_steps, s.tokens_per_step, s.step_flops / 1e9);
  text += fmt::format("machine  {} threads, {}, {:.0f} GFLOP/s of multiply-adds measured now\n", s.threads,
                      s.isa, s.peak_flops / 1e9);
  std::fputs(text.c_str(), stderr);
  last_line_ = Clock::now();
}

void ConsoleView::on_step(const StepReport& r) {
  losses_.push_back(r.loss);
  if (r.step > 1) {
    seconds_ += r.seconds;
    tokens_ += r.tokens;
  }
  write_metrics(nlohmann::ordered_json{
      {"step", r.step},
      {"loss", r.loss},
      {"lr", r.lr},
      {"grad_norm", r.grad_norm},
      {"clip", r.clip},
      {"seconds", r.seconds},
      {"tokens",
       r.tokens}}.dump());
  print_line(r);
}

// Over and over in one place on a terminal; elsewhere the first, the last, and one now and then.
void ConsoleView::print_line(const StepReport& r) {
  constexpr auto kRedraw = std::chrono::milliseconds(100);
  constexpr auto kNextLine = std::chrono::seconds(5);
  const auto now = Clock::now();
  const bool always = r.step == 1 || r.step == steps_;
  if (!always && now - last_line_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kNextLine)))
    return;
  last_line_ = now;
  const double rate = tokens_per_second();
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}", r.step,
                                 std::to_string(steps_).size(), steps_, r.loss, r.lr, r.grad_norm);
  if (rate > 0) {
    const auto left = static_cast<double>((steps_ - r.step) * setup_.tokens_per_step);
    line += fmt::format("  {:.0f} tok/s  {:.0f} % of peak  {} left", rate, 100 * of_peak(),
                        human_time(left / rate));
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[K%s", one_line(line).c_str());
    std::fflush(stderr);
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void ConsoleView::on_evaluation(int64_t step, const Evaluation& e) {
  evaluation_ = e;
  write_metrics(
      nlohmann::ordered_json{{"step", step}, {"validation_loss", e.loss}, {"tokens", e.tokens}}.dump());
  if (drawn_) std::fputs("\n", stderr);
  drawn_ = false;
  std::fprintf(stderr, "step %lld  validation loss %.4f\n", static_cast<long long>(step), e.loss);
}

void ConsoleView::draw_losses() const {
  const std::string curve = draw_curve(losses_, 60, 12);
  if (losses_.size() > 1) std::fprintf(stderr, "\nloss\n%s", curve.c_str());
}

double ConsoleView::tokens_per_second() const {
  return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0;
}

double ConsoleView::of_peak() const {
  if (setup_.peak_flops <= 0 || setup_.tokens_per_step == 0) return 0;
  const double per_token = setup_.step_flops / static_cast<double>(setup_.tokens_per_step);
  return tokens_per_second() * per_token / setup_.peak_flops;
}

void ConsoleView::write_metrics(const std::string& line) {
  metrics_ << line << '\n' << std::flush;
  if (!metrics_) throw Error(fmt::format("cannot write to {}", metrics_path_), "is the disk full?");
}

}  // namespace kiln::cli

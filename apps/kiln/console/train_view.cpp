#include "kiln/console/train_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "base/one_line.h"
#include "base/plain_number.h"
#include "base/units.h"
#include "kiln/console/memory_table.h"
#include "report/charts/loss_curve.h"
#include "studies/watch/run_trace.h"
#include "train/run/train_options.h"

namespace kiln::cli {
namespace {

std::string human_time(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s % 3600 / 60);
}

// A line that wraps cannot be drawn over.
std::size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace

ConsoleView::ConsoleView() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ConsoleView::~ConsoleView() {
  if (drawn_) std::fputs("\n", stderr);
}

void ConsoleView::on_setup(const TrainRequest& r, const TrainSetup& s) {
  setup_ = s;
  steps_ = r.steps;
  run_ = r.run;
  losses_ = s.earlier_losses;
  std::string text;
  text += fmt::format("model    {}: {} layers, d_model {}, {} heads, vocabulary {}, {}\n", model_text(r),
                      s.model.layers, s.model.d_model, s.model.heads, s.model.vocab, r.precision);
  text += fmt::format("text     {}: {} training tokens, {} validation\n", s.text, s.train_tokens,
                      s.validation_tokens);
  text += fmt::format("step     {} x {} tokens x {} = {} tokens, {} GFLOP\n", r.batch, r.context,
                      r.micro_steps, s.tokens_per_step, plain(s.step_flops / 1e9, 3));
  if (r.ranks > 1)
    text += fmt::format("ranks    {}{} over {}{}{}\n", r.ranks,
                        r.tensor_ranks > 1 ? fmt::format(", {} to a model", r.tensor_ranks) : "", s.transport,
                        r.strategy == "none" ? "" : ", " + r.strategy,
                        r.link.empty() ? "" : fmt::format(", link=modelled ({})", r.link));
  text +=
      r.device.type == DeviceType::cuda
          ? fmt::format("machine  {}, {}\n", r.device.str(),
                        s.peak_flops > 0 ? fmt::format("{:.0f} GFLOP/s GEMM rate{}, just measured",
                                                       s.peak_flops / 1e9, r.ranks > 1 ? " of all ranks" : "")
                                         : "no memory free to measure its GEMM rate")
          : fmt::format("machine  {} thread{}, {}, {:.0f} GFLOP/s FMA rate{}, just measured\n", s.threads,
                        s.threads == 1 ? "" : "s", s.isa, s.peak_flops / 1e9,
                        r.ranks > 1 ? " of all ranks" : "");
  if (s.predicted_step) text += fmt::format("predict  {} ms a step\n", plain(1e3 * *s.predicted_step, 4));
  if (!s.resumed.empty()) text += fmt::format("resumed  after step {}, from {}\n", s.first_step, s.resumed);
  if (!s.products.empty() && !s.resumed.empty()) text += fmt::format("GEMMs    tuned in {}\n", s.products);
  text += memory_table(s.groups, s.model.tied, s.memory);
  std::fputs(text.c_str(), stderr);
  last_line_ = Clock::now();
}

// A curve of sixty columns needs no more, and a run of any length no more memory.
void ConsoleView::keep_loss(double loss) {
  constexpr std::size_t kMost = 4096;
  if (++passed_ < every_) return;
  passed_ = 0;
  losses_.push_back(loss);
  if (losses_.size() < kMost) return;
  for (std::size_t i = 0; i < losses_.size() / 2; ++i) losses_[i] = losses_[2 * i + 1];
  losses_.resize(losses_.size() / 2);
  every_ *= 2;
}

void ConsoleView::on_step(const StepReport& r) {
  if (std::isfinite(r.loss)) keep_loss(r.loss);  // not of a step that was skipped
  last_step_ = r.step;
  if (r.step > setup_.first_step + 1) {
    seconds_ += r.seconds;
    tokens_ += r.tokens;
    ++input_.steps;
    input_.host += r.host_wait_ms;
    input_.seconds += r.seconds;
    input_.measured += r.stall_ms ? 1 : 0;
    input_.device += r.stall_ms.value_or(0);
  }
  print_line(r);
}

// Over and over in one place on a terminal; elsewhere the first, the last, and one now and then.
void ConsoleView::print_line(const StepReport& r) {
  constexpr auto kRedraw = std::chrono::milliseconds(100);
  constexpr auto kNextLine = std::chrono::seconds(5);
  const auto now = Clock::now();
  const bool always = r.step == setup_.first_step + 1 || r.step == steps_;
  if (!always && now - last_line_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kNextLine)))
    return;
  last_line_ = now;
  const double rate = tokens_per_second();
  const std::string scale = r.loss_scale == 1 ? "" : fmt::format("  scale {}", plain(r.loss_scale, 6));
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  lr {:.2e}  ", r.step,
                                 std::to_string(steps_).size(), steps_, r.loss, r.lr);
  line += r.skipped && r.loss_scale == 1 ? "not finite, skipped"
          : r.skipped                    ? "overflowed, skipped"
                                         : fmt::format("norm {:.3f}", r.grad_norm);
  line += scale;
  if (rate > 0) {
    const double left = static_cast<double>(steps_ - r.step) * static_cast<double>(setup_.tokens_per_step);
    line += fmt::format("  {:.0f} tok/s  {:.0f} % of peak  {} left", rate, 100 * of_peak(),
                        human_time(left / rate));
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[K%s", one_line(line).substr(0, terminal_width() - 1).c_str());  // all ASCII
    std::fflush(stderr);
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void ConsoleView::on_evaluation(int64_t step, const Evaluation& e) {
  evaluation_ = e;
  say(fmt::format("step {}  validation loss {:.4f}", step, e.loss));
}

void ConsoleView::on_saved(int64_t step, const std::string& checkpoint) {
  if (!terminal_) say(fmt::format("step {}  saved to {}", step, checkpoint));
}

void ConsoleView::on_sample_text(int64_t step, const std::string& text) {
  say(fmt::format("step {}  sample:", step));
  std::fprintf(stderr, "%s\n", indented(text).c_str());
}

void ConsoleView::on_warning(const std::string& line) { say("warning: " + line); }

void ConsoleView::on_note(const std::string& line) { say(line); }

// A line of its own, below the live one.
void ConsoleView::say(const std::string& line) {
  if (drawn_) std::fputs("\n", stderr);
  drawn_ = false;
  std::fprintf(stderr, "%s\n", one_line(line).c_str());
}

void ConsoleView::on_memory(const MemoryStats& measured) {
  if (drawn_) std::fputs("\n", stderr);
  drawn_ = false;
  std::fputs(memory_comparison(setup_.memory, measured, last_step_ >= steps_).c_str(), stderr);
}

void ConsoleView::on_trace(const RunTrace& trace) {
  for (const std::string& path : write_run_trace(run_, trace)) say("trace    " + path);
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

}  // namespace kiln::cli

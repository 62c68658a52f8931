#include "train/run/run_recorder.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "train/run/text_generator.h"

namespace kiln {
namespace {

// What the model makes of the prompt now; nothing where there is no tokenizer to read it with. Temperature a
// little below 1: a model this young is too often surprised by its own mistakes.
std::string sample_text(const TrainRequest& r, const CheckpointParts& parts) {
  if (parts.tokenizer == nullptr || r.sample_tokens == 0) return {};
  GenerateOptions options;
  options.tokens = r.sample_tokens;
  options.context = r.context;
  options.sampling.temperature = 0.8;
  options.seed = r.seed;
  TextGenerator generator(parts.ctx, parts.model, *parts.tokenizer);
  // A line's end before it all: texts of one document never showed the model how a text begins.
  return r.prompt + generator.generate(r.prompt.empty() ? "\n" : r.prompt, options).samples.front().text;
}

// Of the process, whose start the system knows to a hundredth of a second.
double seconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // the 22nd, in clock ticks since the machine's start
  timespec now{};
  if (!fields || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

void RunRecorder::on_step(const StepReport& r) {
  RunTotals& t = state_.totals;
  if (r.step == 1 && std::isfinite(r.loss)) t.first_loss = r.loss;
  if (std::isfinite(r.loss)) t.last_loss = r.loss;  // not of a step that was skipped
  if (!warm_) start_seconds_ = seconds_since_start();
  if (warm_) {
    t.seconds += r.seconds;
    t.tokens += r.tokens;
  }
  warm_ = true;
  metrics_.on_step(r);
  view_.on_step(r);
  saver_.poll(r.step);
}

void RunRecorder::on_evaluation(int64_t step, const Evaluation& e) {
  metrics_.on_evaluation(step, e);
  view_.on_evaluation(step, e);
}

void RunRecorder::on_save(const StepScalars& last) {
  state_.scalars = last;
  if (!request_.overfit) state_.loader = loader_.state();  // else the first batch is always the one
  saver_.save(state_);
}

void RunRecorder::on_sample(int64_t step) {
  if (const std::string text = sample(); !text.empty()) view_.on_sample_text(step, text);
}

std::string RunRecorder::sample() {
  try {
    return sample_text(request_, parts_);
  } catch (const Error& e) {
    view_.on_warning(cat("no sample: ", e.what()));
    return {};
  }
}

}  // namespace kiln

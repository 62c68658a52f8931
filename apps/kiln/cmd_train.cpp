// kiln train: text to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "kiln/cmd.h"
#include "kiln/parse_number.h"
#include "kiln/train.h"
#include "kiln/train_view.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// As typed; read_options makes numbers of them.
struct Typed {
  TrainRequest request;
  std::string steps, batch, context, accumulate, lr, min_lr, warmup, decay, clip, eval_every, eval_batches,
      held_out, threads, loss_scale, scale_interval;
};

TrainRequest read_options(const Typed& t, const CommonOptions& common) {
  constexpr int64_t kMany = int64_t{1} << 40;
  TrainRequest r = t.request;
  read_number<int64_t>("--steps", t.steps, 1, kMany, r.steps);
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int64_t>("--context", t.context, 1, 1 << 24, r.context);
  read_number<int>("--accumulate", t.accumulate, 1, 1 << 20, r.micro_steps);
  read_number<double>("--lr", t.lr, 0.0, 1e3, r.lr);
  read_number<double>("--min-lr", t.min_lr, 0.0, 1e3, r.min_lr);
  read_number<int64_t>("--warmup", t.warmup, 0, kMany, r.warmup);
  read_number<double>("--decay", t.decay, 0.0, 1e3, r.decay);
  read_number<double>("--clip", t.clip, 0.0, 1e9, r.clip);
  read_number<int64_t>("--eval-every", t.eval_every, 0, kMany, r.eval_every);
  read_number<int64_t>("--eval-batches", t.eval_batches, 1, kMany, r.eval_batches);
  read_number<double>("--held-out", t.held_out, 0.0, 0.9, r.held_out);
  read_number<int>("--threads", t.threads, 1, 1024, r.threads);
  read_number<double>("--loss-scale", t.loss_scale, 1.0, 1e30, r.loss_scale.initial);
  read_number<int64_t>("--scale-interval", t.scale_interval, 0, kMany, r.loss_scale.interval);
  r.seed = common.seed;
  if (common.device != "auto" && common.device != "cpu")
    throw Error(fmt::format("kiln train runs on the CPU so far; --device is {}", common.device), {},
                ErrorKind::unavailable);
  check_request(r);
  return r;
}

// The one place that must be reachable from a signal handler. The first signal asks the run to stop after the
// step that is under way; the second ends the process as if there were no handler.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_stop_signal(int signal) {
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);
}

class StopOnSignals {
 public:
  StopOnSignals()
      : interrupt_(std::signal(SIGINT, on_stop_signal)), terminate_(std::signal(SIGTERM, on_stop_signal)) {
    stop_requested.store(false);
  }
  ~StopOnSignals() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGTERM, terminate_);
  }
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
};

void run_train(const Typed& typed, const CommonOptions& common) {
  const TrainRequest request = read_options(typed, common);
  const std::string metrics = common.out + "/metrics.jsonl";
  int64_t done = 0;
  ordered_json result;
  {
    ConsoleView view(metrics);
    const StopOnSignals signals;
    done = train(request, view, stop_requested);
    view.draw_losses();
    result = {{"steps", done},
              {"first_loss", view.losses().front()},
              {"final_loss", view.losses().back()},
              {"validation_loss", nullptr},
              {"tokens_per_s", view.tokens_per_second()},
              {"of_peak", view.of_peak()},
              {"parameters", view.setup().parameters},
              {"metrics", metrics}};
    if (view.last_evaluation()) result["validation_loss"] = view.last_evaluation()->loss;
  }
  if (common.json) {
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("{} of {} steps{}: loss {:.4f} to {:.4f}, {:.0f} tokens a second\nevery step is in {}\n", done,
             request.steps, done < request.steps ? " (stopped by a signal)" : "",
             result["first_loss"].get<double>(), result["final_loss"].get<double>(),
             result["tokens_per_s"].get<double>(), metrics);
}

}  // namespace

CommandBody add_train(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  TrainRequest& r = t->request;
  app.add_option("--text", r.text, "A text file, a folder of them, or a folder that kiln tokenize made")
      ->type_name("PATH");
  app.add_option("--tokenizer", r.tokenizer, "byte (default), or a tokenizer's file or folder")
      ->type_name("NAME");
  app.add_option("--size", r.size, "The model, by the names of kiln sizes (default nano)")->type_name("NAME");
  app.add_option("--steps", t->steps, "Updates (default 200)")->type_name("N");
  app.add_option("--batch", t->batch, "Sequences of a micro-step (default 4)")->type_name("N");
  app.add_option("--context", t->context, "Tokens of a sequence (default 128)")->type_name("N");
  app.add_option("--accumulate", t->accumulate, "Micro-steps of an update (default 1)")->type_name("N");
  app.add_option("--lr", t->lr, "Highest learning rate (default 1e-3)")->type_name("X");
  app.add_option("--min-lr", t->min_lr, "Where the cosine ends (default a tenth of --lr)")->type_name("X");
  app.add_option("--warmup", t->warmup, "Steps up to it (default a tenth of --steps, at most 100)")
      ->type_name("N");
  app.add_option("--decay", t->decay, "AdamW's weight decay (default 0.1)")->type_name("X");
  app.add_option("--clip", t->clip, "Largest gradient norm; 0: any (default 1)")->type_name("X");
  app.add_option("--precision", r.precision,
                 "fp32 (default), bf16 (exact master weights), autocast, pure-bf16 or fp16")
      ->type_name("NAME");
  app.add_option("--loss-scale", t->loss_scale, "fp16's first loss scale (default 65536)")->type_name("X");
  app.add_option("--scale-interval", t->scale_interval,
                 "Good steps until it doubles; 0: never (default 2000)")
      ->type_name("N");
  app.add_option("--recompute", r.recompute,
                 "none (default), block, every:k or nested: keep less for backward")
      ->type_name("NAME");
  app.add_option("--preset", r.preset, "optimized (default), or baseline: nothing fused")->type_name("NAME");
  app.add_option("--variant", r.variants, "On top of it: attention=naive,qkv=split,gate_up=fused,...")
      ->type_name("OP=NAME,...");
  app.add_option("--held-out", t->held_out, "Part of the text for validation (default 0.1)")->type_name("X");
  app.add_option("--eval-every", t->eval_every, "Steps between validations; 0: only at the end (default)")
      ->type_name("N");
  app.add_option("--eval-batches", t->eval_batches, "Batches of a validation (default 10)")->type_name("N");
  app.add_flag("--overfit", r.overfit, "Train on the first batch again and again: the loss must go to 0");
  app.add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  return [t, &common] { run_train(*t, common); };
}

}  // namespace kiln::cli

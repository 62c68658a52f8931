// kiln train: text to a trained model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "kiln/cmd.h"
#include "train/run/model_folder.h"
#include "base/one_line.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "train/run/train.h"
#include "train/run/train_ranks.h"
#include "kiln/console/train_view.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// As typed; read_options makes numbers of them.
struct Typed {
  TrainRequest request;
  std::string steps, batch, context, accumulate, lr, min_lr, warmup, decay, clip, eval_every, eval_batches,
      held_out, threads, vocab, kv_heads, save_every, keep, on_save_error, sample_every, sample_tokens,
      loss_scale, scale_interval, ranks, tensor_ranks, bucket_mb, fsdp_prefetch, chunks;
};

// Without --out: a folder named after what is trained on what, so that the same command goes on with its own
// run.
std::string run_folder_of(const TrainRequest& r, const CommonOptions& common) {
  if (common.out_given) return common.out;
  const std::filesystem::path text =
      r.text.empty() ? "kiln" : std::filesystem::absolute(r.text).lexically_normal();
  const std::string stem = text.has_stem() ? text.stem().string() : text.parent_path().stem().string();
  const std::string model = r.model.empty() ? r.size : std::filesystem::path(r.model).stem().string();
  return fmt::format("{}/{}-{}", common.out, stem.empty() ? "text" : stem, model);
}

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
  read_number<int64_t>("--kv-heads", t.kv_heads, 1, 1 << 16, r.kv_heads);
  read_number<int64_t>("--save-every", t.save_every, 0, kMany, r.save_every);
  read_number<int>("--keep", t.keep, 1, 1 << 20, r.keep);
  read_number<int64_t>("--sample-every", t.sample_every, 0, kMany, r.sample_every);
  read_number<int64_t>("--sample-tokens", t.sample_tokens, 0, 1 << 20, r.sample_tokens);
  if (t.on_save_error != "go-on" && t.on_save_error != "stop")
    throw Error(fmt::format("--on-save-error is '{}'; expected go-on or stop", t.on_save_error), {},
                ErrorKind::usage);
  r.stop_on_save_error = t.on_save_error == "stop";
  read_number<int32_t>("--vocab", t.vocab, 257, 1 << 24, r.vocab);
  if (r.text.empty() && t.vocab.empty() && r.tokenizer.empty()) r.vocab = 1024;  // reads better than bytes
  read_number<double>("--loss-scale", t.loss_scale, 1.0, 1e30, r.loss_scale.initial);
  read_number<int64_t>("--scale-interval", t.scale_interval, 0, kMany, r.loss_scale.interval);
  read_number<int>("--ranks", t.ranks, 1, 1 << 16, r.ranks);
  take_launched_ranks(r, !t.ranks.empty());
  read_number<int>("--tp", t.tensor_ranks, 1, 1 << 16, r.tensor_ranks);
  r.bucket_auto = t.bucket_mb == "auto";
  if (!r.bucket_auto) read_number<double>("--bucket-mb", t.bucket_mb, 0.0, 1e9, r.bucket_mb);
  r.results = common.out;
  read_number<int>("--fsdp-prefetch", t.fsdp_prefetch, 0, 64, r.fsdp_prefetch);
  read_number<int>("--chunks", t.chunks, 1, 1 << 20, r.chunks);
  if (std::filesystem::is_directory(r.model)) r.model = model_folder(r.model);
  r.seed = common.seed;
  r.run = run_folder_of(r, common);
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  if (r.device.is_meta())
    throw Error(fmt::format("kiln train needs values, and --device {} has none", common.device),
                "use --device cpu or cuda; the memory a run will take is printed before its first step",
                ErrorKind::usage);
  check_request(r);
  return r;
}

double tokens_per_second(const RunTotals& t) {
  return t.seconds > 0 ? static_cast<double>(t.tokens) / t.seconds : 0;
}

// Where a run that waits for its data has its time.
std::string input_line(const InputTimes& input) {
  if (input.steps == 0) return {};
  std::string text = fmt::format("waited for input: host {:.3f} ms a step", input.host_wait_ms());
  if (input.stall_ms()) text += fmt::format(", device {:.3f} ms a step", *input.stall_ms());
  return text + "\n";
}

// What there is to say when it is over, for a person.
std::string summary(const TrainRequest& r, const TrainOutcome& o, const ConsoleView& view) {
  std::string text;
  if (o.steps == 0) return "stopped before the first step: nothing was trained or saved\n";
  if (o.skipped > 0)
    text = fmt::format("{} update(s) left out: gradients overflowed at their loss scale\n", o.skipped);
  if (o.steps_now == 0 && o.steps >= r.steps)
    text += fmt::format("the run in {} has its {} steps already; --steps N goes on, --fresh begins anew\n",
                        r.run, o.steps);
  text += fmt::format("{} of {} steps{}: loss {:.4f} to {:.4f}, {:.0f} tokens a second\n", o.steps, r.steps,
                      o.steps < r.steps ? " (stopped by a signal; the same command goes on)" : "",
                      o.totals.first_loss, o.totals.last_loss, tokens_per_second(o.totals));
  text += input_line(view.input());
  if (!o.sample.empty()) text += fmt::format("it writes:\n{}\n", indented(o.sample));
  text += fmt::format("model    {}\nmetrics  {}\n", o.checkpoint, view.metrics());
  return text;
}

void run_train(const Typed& typed, const CommonOptions& common) {
  const TrainRequest request = read_options(typed, common);
  TrainOutcome outcome;
  ordered_json result;
  std::string text;
  {
    ConsoleView view(request.run);
    const StopOnSignals signals;
    outcome = train(request, view, stop_requested());
    view.draw_losses();
    result = {{"steps", outcome.steps},
              {"steps_now", outcome.steps_now},
              {"first_loss", outcome.totals.first_loss},
              {"final_loss", outcome.totals.last_loss},
              {"validation_loss", nullptr},
              {"tokens_per_s", nullptr},
              {"of_peak", view.of_peak()},
              {"host_wait_ms", nullptr},
              {"stall_ms", nullptr},
              {"parameters", outcome.parameters},
              {"skipped", outcome.skipped},
              {"strategy", request.strategy},
              {"ranks", request.ranks},
              {"tp", request.tensor_ranks},
              {"transport", outcome.transport},
              {"wanted_steps", request.steps},
              {"stopped", outcome.steps < request.steps},
              {"checkpoint", outcome.checkpoint},
              {"sample", outcome.sample},
              {"run", request.run},
              {"metrics", view.metrics()}};
    if (!view.metrics_complete())
      throw Error(fmt::format("{} lacks lines: the disk was full or failed", view.metrics()),
                  fmt::format("the model itself is whole: {}", outcome.checkpoint));
    if (outcome.totals.seconds > 0) result["tokens_per_s"] = tokens_per_second(outcome.totals);
    if (view.input().steps > 0) result["host_wait_ms"] = view.input().host_wait_ms();
    if (view.input().stall_ms()) result["stall_ms"] = *view.input().stall_ms();
    if (view.last_evaluation()) result["validation_loss"] = view.last_evaluation()->loss;
    text = summary(request, outcome, view);
  }
  if (common.json) text = result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  fmt::print("{}", text);
}

}  // namespace

CommandBody add_train(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  TrainRequest& r = t->request;
  app.add_option(
         "--text", r.text,
         "A text file, a folder of them, or a folder that kiln tokenize made (default kiln's own sources)")
      ->type_name("PATH");
  app.add_option("--tokenizer", r.tokenizer,
                 "byte, or a tokenizer's file or folder (default: the model's own, else byte)")
      ->type_name("NAME");
  app.add_option(
         "--vocab", t->vocab,
         "Train a byte-level BPE of N tokens on the text first, and use it (default 1024 without --text)")
      ->type_name("N");
  app.add_option("--size", r.size, "The model, by the names of kiln sizes (default micro)")
      ->type_name("NAME");
  app.add_option("--model", r.model,
                 "Instead of --size: a config.json, or a Hugging Face folder to begin from")
      ->type_name("PATH");
  app.add_option("--kv-heads", t->kv_heads,
                 "Key and value heads, shared by groups of heads (default as the model)")
      ->type_name("N");
  app.add_flag("--tied", r.tied, "The head is the embedding");
  app.add_option("--steps", t->steps, "Updates of the whole run (default 500)")->type_name("N");
  app.add_option("--batch", t->batch, "Sequences of a micro-step (default 8)")->type_name("N");
  app.add_option("--context,--ctx", t->context, "Tokens of a sequence (default 128)")->type_name("N");
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
  app.add_option("--graph", r.graph,
                 "on, off or auto (default): replay the step as a graph where the device can")
      ->type_name("NAME");
  app.add_option(
         "--prefetch", r.prefetch,
         "on, off or auto (default): batches are read ahead, and cross to a GPU beside the step before")
      ->type_name("NAME");
  app.add_option("--tune", r.tune,
                 "A file of kiln tune, off, or auto (default): the one for this GPU beside the run's folder")
      ->type_name("FILE");
  app.add_option("--held-out", t->held_out, "Part of the text for validation (default 0.1)")->type_name("X");
  app.add_option("--eval-every", t->eval_every, "Steps between validations; 0: only at the end (default)")
      ->type_name("N");
  app.add_option("--eval-batches", t->eval_batches, "Batches of a validation (default 10)")->type_name("N");
  app.add_option("--sample-every", t->sample_every,
                 "Steps between samples of its text; 0: only at the end (default)")
      ->type_name("N");
  app.add_option("--sample-tokens", t->sample_tokens, "Their length; 0: none (default 80)")->type_name("N");
  app.add_option("--prompt", r.prompt, "What they begin with (default the beginning of a line)")
      ->type_name("TEXT");
  app.add_option("--save-every", t->save_every,
                 "Steps between checkpoints; 0: only at the end (default a tenth of --steps, 50 to 1000)")
      ->type_name("N");
  app.add_option("--keep", t->keep, "Checkpoints kept (default 3)")->type_name("N");
  t->on_save_error = "go-on";
  app.add_option("--on-save-error", t->on_save_error, "go-on (default) or stop")->type_name("NAME");
  app.add_flag("--fresh", r.fresh, "Begin anew where there is a run to go on with; that one is moved aside");
  app.add_flag("--overfit", r.overfit, "Train on the first batch again and again: the loss must go to 0");
  app.add_option("--threads", t->threads, "Of the CPU, of each rank (default all, shared out)")
      ->type_name("N");
  app.add_option("--ranks", t->ranks, "Ranks that share the batch out (default 1)")->type_name("N");
  app.add_option("--tp", t->tensor_ranks,
                 "Of them, ranks that hold one model between them: tensor parallel (default 1)")
      ->type_name("N");
  app.add_option("--strategy", r.strategy,
                 "How the others share: none (default), ddp:naive, ddp:flat, ddp:overlap, ddp:bucketed, "
                 "zero1:simple, zero1, "
                 "zero2 or fsdp")
      ->type_name("NAME");
  app.add_option("--transport", r.transport,
                 "threads, mpi, nccl, or auto (default): what carries their collectives")
      ->type_name("NAME");
  app.add_option("--bucket-mb", t->bucket_mb,
                 "Gradients are sent in pieces of up to so many MB; 0: each by itself; auto: as the link is "
                 "(default 25)")
      ->type_name("X");
  app.add_option("--fsdp-prefetch", t->fsdp_prefetch,
                 "fsdp: weights gathered ahead while one is in use; 0: none (default 1)")
      ->type_name("K");
  app.add_option("--link", r.link,
                 "Pace collectives as such a link would: latency=50us,bandwidth=1GB/s (default none)")
      ->type_name("MODEL");
  app.add_option("--wire", r.wire, "fp32 (default) or bf16: gradients between ranks")->type_name("NAME");
  app.add_flag(
      "--canonical", r.canonical,
      "The same bits on 1, 2, 4, ... ranks of any strategy: the step's batch is summed chunk by chunk, "
      "in one fixed order");
  app.add_option("--chunks", t->chunks, "How many chunks (default up to 8; a power of two for each rank)")
      ->type_name("N");
  return [t, &common] { run_train(*t, common); };
}

}  // namespace kiln::cli

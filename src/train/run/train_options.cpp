#include "train/run/train_options.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "dist/launch/transports.h"
#include "dist/strategy/grad_tree.h"
#include "model/compile_check.h"
#include "model/hf_config.h"
#include "model/partition.h"
#include "model/size_registry.h"
#include "ops/renamed.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"
#include "train/inject/injection.h"
#include "train/presets.h"

namespace kiln {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;
constexpr std::string_view kOnSaveError[] = {"continue", "stop"};
constexpr NamedValue<OnNonFinite> kOnNonFinite[] = {
    {"stop", OnNonFinite::stop}, {"skip", OnNonFinite::skip}, {"dump", OnNonFinite::dump}};

TextForm<bool> on_save_error_form() {
  return {[](const std::string& text) { return which_name("--on-save-error", text, kOnSaveError) == 1; },
          [](const bool& stop) { return std::string(kOnSaveError[stop ? 1 : 0]); }};
}

// A size, or auto.
TextForm<double> bucket_form(TrainRequest& r) {
  return {[&r](const std::string& text) {
            r.bucket_auto = text == "auto";
            return r.bucket_auto ? r.bucket_mb : read_number_option("--bucket-mb", text, 0, kAnyNumber);
          },
          [&r](const double& mb) { return r.bucket_auto ? "auto" : number_text(mb); }};
}

TextForm<int> prefetch_form(TrainRequest& r) {
  return {[&r](const std::string& text) {
            r.prefetch_auto = text == "auto";
            return r.prefetch_auto ? r.fsdp_prefetch
                                   : read_number_as("--fsdp-prefetch", text, NumberRange<int>{0, 64});
          },
          [&r](const int& depth) { return r.prefetch_auto ? "auto" : std::to_string(depth); }};
}

// Steps from 1 on: 3, or 3:5 with both ends.
TextForm<StepRange> trace_form() {
  return {[](const std::string& text) {
            const std::size_t colon = std::min(text.find(':'), text.size());
            StepRange range;
            range.first = read_integer_option("--trace", text.substr(0, colon), 1, kMany);
            range.last = colon == text.size()
                             ? range.first
                             : read_integer_option("--trace", text.substr(colon + 1), 1, kMany);
            if (range.last < range.first || range.last - range.first >= kMostTracedSteps)
              throw Error(cat("--trace is '", text, "'; expected FIRST:LAST, at most ", kMostTracedSteps,
                              " steps, the last not before the first"),
                          {}, ErrorKind::usage);
            return range;
          },
          [](const StepRange& r) {
            return r.first == 0 ? std::string() : cat(r.first, r.last == r.first ? "" : cat(":", r.last));
          }};
}

void add_data_options(Options& o, TrainRequest& r) {
  o.opt("--text", r.text,
        "text file, folder of text files, output of kiln tokenize, or token files (.bin, .npy)")
      .value("PATH")
      .unset("kiln's own sources");
  o.opt("--tokenizer", r.tokenizer, "byte, or a tokenizer's file or folder")
      .unset("the model's own, else byte");
  o.opt("--train-bpe", r.train_bpe, between(257, 1 << 24),
        "vocabulary size of a byte-level BPE, trained on the text first")
      .unset("none; 1024 without --text")
      .was("--vocab");
  o.opt("--val-fraction", r.held_out, between(0.0, 0.9), "validation fraction, the end of the text")
      .was("--held-out");
}

void add_step_options(Options& o, TrainRequest& r) {
  const auto switches = one_of({"on", "off", "auto"});
  o.opt("--steps", r.steps, between<int64_t>(1, kMany), "total training steps");
  o.opt("--batch", r.batch, between(1, 1 << 20), "global micro-batch size");
  o.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  o.opt("--grad-accum", r.micro_steps, between(1, 1 << 20), "gradient accumulation: micro-steps of a step")
      .was("--accumulate");
  o.opt("--precision,--dtype", r.precision, precision_names(), "{}; bf16 keeps exact master weights");
  o.opt("--loss-scale", r.loss_scale.initial, between(1.0, 1e30), "first loss scale of fp16");
  o.opt("--scale-interval", r.loss_scale.interval, between<int64_t>(0, kMany),
        "finite steps until the loss scale doubles; 0: never");
  o.opt("--recompute", r.recompute,
        checked_text([](const std::string& text) { (void)parse_recompute("--recompute", text); }),
        kRecomputeHelp);
  o.opt("--compile", r.compile, compile_mode_names(), kCompileHelp);
  o.opt(
      "--fit", r.fit,
      "choose micro-batch, accumulation and recompute for batch x grad-accum sequences, so that a step fits "
      "into the free memory and is fastest by prediction");
  o.opt("--preset", r.preset, preset_names(), "{}; baseline fuses nothing");
  o.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  o.opt("--graph", r.graph, switches, "replay the step as a CUDA graph: {} (where the device can)");
  o.opt("--prefetch", r.prefetch, switches,
        "read batches ahead, and copy them to a GPU during the step before: {}");
  o.opt("--tune", r.tune, "file of kiln tune, off, or auto: the one for this GPU next to the run's folder")
      .value("FILE");
  o.opt("--threads", r.threads, between(0, 1024), "CPU threads of each rank").unset("all, split among ranks");
}

void add_optimizer_options(Options& o, TrainRequest& r) {
  o.opt("--lr", r.lr, between(0.0, 1e3), "peak learning rate");
  o.opt("--schedule", r.schedule, schedule_names(), "learning-rate schedule after warm-up: {}");
  o.opt("--min-lr", r.min_lr, between(0.0, 1e3), "learning rate at the end of the schedule")
      .unset("a tenth of --lr");
  o.opt("--warmup", r.warmup, between<int64_t>(0, kMany), "steps of learning-rate warm-up")
      .unset("a tenth of --steps, at most 100");
  o.opt("--optimizer", r.optimizer.name, optimizer_names(), "{}");
  o.opt("--momentum", r.optimizer.sgd.momentum, between(0.0, 0.999999), "momentum of sgd; 0: none");
  o.opt("--adam-beta1", r.optimizer.adamw.beta1, between(0.0, 0.999999), "decay of AdamW's first moment");
  o.opt("--adam-beta2", r.optimizer.adamw.beta2, between(0.0, 0.999999), "decay of AdamW's second moment");
  o.opt("--adam-eps", r.optimizer.adamw.eps, between(1e-30, 1.0), "AdamW's epsilon");
  o.opt("--weight-decay", r.optimizer.adamw.decay, between(0.0, 1e3), "decoupled weight decay")
      .was("--decay");
  o.opt("--clip", r.clip, between(0.0, 1e9), "largest gradient norm; 0: no clipping");
}

void add_run_options(Options& o, TrainRequest& r) {
  o.opt("--eval-every", r.eval_every, between<int64_t>(0, kMany),
        "steps between validations; 0: only at the end");
  o.opt("--eval-batches", r.eval_batches, between<int64_t>(1, kMany), "batches per validation");
  o.opt("--sample-every", r.sample_every, between<int64_t>(0, kMany),
        "steps between samples; 0: only at the end");
  o.opt("--sample-tokens", r.sample_tokens, between(0, 1 << 20), "length of a sample, tokens; 0: no samples");
  o.opt("--prompt", r.prompt, "prompt for samples").value("TEXT").unset("start of a line");
  o.opt("--save-every", r.save_every, between<int64_t>(0, kMany),
        "steps between checkpoints; 0: only at the end")
      .unset("a tenth of --steps, 50 to 1000");
  o.opt("--keep", r.keep, between(1, 1 << 20), "number of checkpoints kept");
  o.opt("--on-save-error", r.stop_on_save_error, on_save_error_form(),
        "continue, or stop, when a checkpoint cannot be written")
      .was_value("go-on", "continue");
  o.opt("--async-save", r.async_save,
        "save from a copy in host memory, on a thread of its own, while training continues");
  o.opt("--on-non-finite", r.on_non_finite, kOnNonFinite,
        "at a step whose loss or gradients are not finite: {}; dump stops too, and keeps what the step was "
        "made of");
  o.opt("--max-skips", r.max_skips, between<int64_t>(1, kMany),
        "steps in a row that --on-non-finite skip leaves out; one more ends the run");
  o.opt("--check-replicas", r.check_replicas, between<int64_t>(0, kMany),
        "steps between comparisons of what ranks hold alike; 0: never");
  o.opt("--oom-snapshot", r.oom_snapshot,
        "what device memory held when it ran out, for pytorch.org/memory_viz; off: none")
      .value("FILE|off")
      .unset("out-of-memory-rank-N.pickle in the run's folder");
  o.opt("--inject", r.inject,
        "fault to inject, to test a set-up: kill, stall, slow, nan, flip, enospc, eio, oom")
      .value("KIND:KEY=VALUE,...")
      .repeat()
      .unset("none")
      .not_in_config();
  o.opt("--trace", r.trace, trace_form(),
        "steps to trace, 3 or 3:5: a timeline of rank 0's ops, communication and memory, as a page and for "
        "Perfetto; on a GPU no step of the run is then captured as a graph")
      .value("FIRST:LAST")
      .unset("none")
      .not_in_config();
  o.opt("--fresh", r.fresh, "restart instead of resuming; the old run is moved aside").not_in_config();
  o.opt("--overfit", r.overfit, "train on the first batch only: the loss must go to 0");
}

void add_rank_options(Options& o, TrainRequest& r) {
  o.opt("--ranks", r.ranks, between(1, 1 << 16), "number of ranks, which split the batch");
  o.opt("--oversubscribe", r.oversubscribe, "more than 4 ranks to a core").not_in_config();
  o.opt("--tp", r.tensor_ranks, between(1, 1 << 16), "tensor-parallel ranks per model");
  o.opt("--strategy", r.strategy, "data-parallel strategy: {}").offers(strategy_names());
  o.opt("--transport", r.transport, transport_names(/*with_auto=*/true), "transport of collectives: {}");
  o.opt("--bucket-mb", r.bucket_mb, bucket_form(r),
        "largest gradient bucket, MB; 0: one per gradient; auto: from the link's latency and bandwidth")
      .value("X|auto");
  o.opt("--fsdp-prefetch", r.fsdp_prefetch, prefetch_form(r),
        "fsdp: number of weights gathered ahead of the one in use; auto: from the link, the ops' times and "
        "free memory")
      .value("K|auto");
  o.opt("--link", r.link, "simulated link that paces collectives: latency=50us,bandwidth=1GB/s")
      .value("MODEL")
      .unset("none");
  o.opt("--grad-comm-dtype", r.wire, one_of({"fp32", "bf16"}), "dtype of gradients in collectives: {}")
      .was("--wire");
  o.opt("--canonical", r.canonical,
        "same bits on 1, 2, 4, ... ranks of any strategy: sums over a step's batch by chunks, in "
        "one fixed order");
  o.opt("--chunks", r.chunks, between(1, 1 << 20), "chunks of --canonical, a power of two per rank")
      .unset("up to 8");
}

}  // namespace

void add_train_options(Options& o, TrainRequest& r) {
  add_data_options(o, r);
  add_model_options(o, r, /*several=*/false, /*vocabulary=*/false);  // that is the text's
  add_step_options(o, r);
  add_optimizer_options(o, r);
  add_run_options(o, r);
  add_rank_options(o, r);
}

int64_t save_every_of(const TrainRequest& r) {
  return r.save_every.value_or(std::clamp<int64_t>(r.steps / 10, 50, 1000));
}

Precision precision_of(const TrainRequest& r) { return parse_precision("--precision", r.precision); }

std::string model_text(const TrainRequest& r) { return r.model.empty() ? joined(r.sizes) : r.model; }

ModelConfig model_of(const TrainRequest& r) {
  ModelConfig c = model_of(static_cast<const ModelOptions&>(r)).config;
  c.recompute = parse_recompute("--recompute", r.recompute);
  c.compile = parse_compile("--compile", r.compile);
  choose_variants(r.preset, r.variants, r.device.target).apply_to(c);
  check_config(c);
  return c;
}

HfConfig hf_config_of(const TrainRequest& r) {
  HfConfig c = r.model.empty() ? HfConfig() : read_hf_config(r.model);
  c.max_positions = r.model.empty() ? r.context : std::max(c.max_positions, r.context);
  return c;
}

int data_ranks_of(const TrainRequest& r) { return r.ranks / r.tensor_ranks; }

// The default: up to eight, which as many ranks can split.
int chunks_of(const TrainRequest& r) {
  if (!r.canonical) return 0;
  return r.chunks.value_or(static_cast<int>(std::gcd(r.batch * r.micro_steps, int64_t{8})));
}

StepOptions step_of(const TrainRequest& r) {
  StepOptions s;
  s.batch = r.batch / data_ranks_of(r);
  s.context = r.context;
  s.micro_steps = r.micro_steps;
  if (r.canonical) {  // what is computed at a time must not depend on the number of ranks
    s.canonical = true;
    s.batch = r.batch * r.micro_steps / chunks_of(r);
    s.micro_steps = chunks_of(r) / data_ranks_of(r);
  }
  s.max_norm = r.clip;
  s.loss_scale = r.loss_scale;
  s.max_skips = r.on_non_finite == OnNonFinite::skip ? r.max_skips : 0;
  s.check_summed_grads = true;
  // A graph's ops cannot be watched one by one.
  s.graph = r.graph != "off" && r.inject.empty() && r.trace.first == 0;
  if (r.prefetch != "auto") s.prefetch = r.prefetch == "on";
  s.optimizer = r.optimizer;
  s.optimizer.set_decay(r.optimizer.adamw.decay);  // one option for every optimizer
  return s;
}

StrategyOptions strategy_of(const TrainRequest& r) {
  return {r.bucket_mb, parse_wire("--grad-comm-dtype", r.wire), r.fsdp_prefetch,
          chunks_of(r) / data_ranks_of(r)};
}

namespace {

// kiln's own sources read better in a vocabulary of their own than in bytes.
int32_t bpe_of(const TrainRequest& r) {
  return r.train_bpe.value_or(r.text.empty() && r.tokenizer.empty() ? 1024 : 0);
}

}  // namespace

// A model that comes with a tokenizer was trained on its ids, and knows no others.
std::string tokenizer_of(const TrainRequest& r) {
  if (!r.tokenizer.empty()) return r.tokenizer;
  const bool own = std::filesystem::is_directory(r.model) &&
                   std::filesystem::exists(std::filesystem::path(r.model) / "tokenizer.json");
  return own && bpe_of(r) == 0 ? r.model : "byte";
}

TextOptions text_of(const TrainRequest& r) {
  const std::string tokenizer = tokenizer_of(r);
  return {.tokenizer = tokenizer,
          .tokenizer_named = !r.tokenizer.empty() || tokenizer != "byte",
          .model_vocab = r.model.empty() ? 0 : model_of(r).vocab,
          .train_vocab = bpe_of(r),
          .held_out = r.held_out,
          .context = r.context};
}

LrSchedule schedule_of(const TrainRequest& r) {
  return {.peak = r.lr,
          .floor = r.min_lr.value_or(r.lr / 10),
          .warmup = r.warmup.value_or(std::min<int64_t>(100, r.steps / 10)),
          .decay_end = r.steps,
          .shape = r.schedule};
}

RunOptions run_options_of(const TrainRequest& r) {
  RunOptions o;
  o.steps = r.steps;
  o.lr = schedule_of(r);
  o.eval_every = r.eval_every;
  // As many sequences whatever a rank takes at a time.
  o.eval_batches = std::max<int64_t>(1, r.eval_batches * r.batch / step_of(r).batch);
  o.save_every = save_every_of(r);
  o.sample_every = r.sample_tokens > 0 ? r.sample_every : 0;
  o.overfit_one_batch = r.overfit;
  o.results_at_once = r.on_non_finite != OnNonFinite::stop;
  return o;
}

namespace {

void check_canonical(const TrainRequest& r) {
  if (!r.canonical) {
    if (r.chunks)
      throw Error("--chunks says how --canonical cuts a step's batch", "add --canonical", ErrorKind::usage);
    return;
  }
  auto refuse = [](const std::string& why, const char* remedy) {
    throw Error(cat("--canonical: ", why), remedy, ErrorKind::unavailable);
  };
  if (r.tensor_ranks > 1)
    refuse("tensor-parallel ranks sum shards of every matmul, in an order of their own",
           "leave --tp out: ddp, zero and fsdp keep their bits");
  if (r.wire != "fp32")
    refuse(cat("gradients rounded to ", r.wire, " between ranks are others than those of one rank"),
           "use --grad-comm-dtype fp32");
  const int chunks = chunks_of(r), ranks = data_ranks_of(r);
  if (ranks > CanonicalScalars::kPieces)
    refuse(cat("there are ", ranks, " ranks, and at most 16 can be"), "take fewer ranks");
  if (r.batch * r.micro_steps % chunks != 0)
    throw Error(cat("--chunks is ", chunks, ", and the ", r.batch * r.micro_steps,
                    " sequences of a step do not divide into as many"),
                {}, ErrorKind::usage);
  check_chunks(chunks, ranks);
}

}  // namespace

void check_request(const TrainRequest& r) {
  Options declared;
  TrainRequest copy = r;
  add_train_options(declared, copy);
  declared.check();
  if (r.run.empty()) throw Error("the run has no folder", "name one with --out", ErrorKind::usage);
  if (r.tune.empty())
    throw Error("--tune is empty; expected a file of kiln tune, auto or off", {}, ErrorKind::usage);
  if (r.graph == "on" && r.device.type != DeviceType::cuda)
    throw Error(cat("--graph is 'on', and ", r.device.str(), " cannot capture one"),
                "use --graph auto, or --device cuda", ErrorKind::unavailable);
  if (r.graph == "on" && r.trace.first > 0)
    throw Error("--graph is 'on', and --trace watches ops one by one, which a graph does not call",
                "leave one of them out", ErrorKind::usage);
  if (r.trace.first > r.steps)
    throw Error(cat("--trace begins at step ", r.trace.first, ", and --steps is ", r.steps),
                "trace steps that the run has", ErrorKind::usage);
  if (r.ranks % r.tensor_ranks != 0)
    throw Error(cat("--ranks is ", r.ranks, " and --tp is ", r.tensor_ranks,
                    ": the ranks do not divide into models of ", r.tensor_ranks),
                cat("--ranks is data-parallel x tensor-parallel ranks: --ranks ",
                    (r.ranks / r.tensor_ranks + 1) * r.tensor_ranks, ", say"),
                ErrorKind::usage);
  const int data_ranks = data_ranks_of(r);
  check_strategy(r.strategy, data_ranks);
  if (!r.link.empty()) (void)LinkModel::parse(r.link, "--link");
  check_canonical(r);
  (void)strategy_of(r);
  if (r.batch % data_ranks != 0 && !r.canonical)
    throw Error(cat("--batch is ", r.batch, " and --ranks is ", r.ranks,
                    r.tensor_ranks > 1 ? cat(", ", data_ranks, " models of ", r.tensor_ranks, " ranks") : "",
                    r.batch < data_ranks ? ": some ranks would have no sequence"
                                         : ": the batch does not divide among them"),
                cat("--batch ", (r.batch / data_ranks + 1) * data_ranks, " does"), ErrorKind::usage);
  if (r.check_replicas > 0 && data_ranks < 2)
    throw Error(
        cat("--check-replicas is ", r.check_replicas, ", and no two ranks hold the same part of the model"),
        "leave it out, or take more --ranks", ErrorKind::usage);
  check_injections(parse_injections(r.inject), {.ranks = r.ranks,
                                                .steps = r.steps,
                                                .save_every = save_every_of(r),
                                                .sums_gradients = r.strategy != "none"});
  if (r.fit && r.canonical)
    throw Error("--fit chooses the micro-batch, and --canonical has its own",
                "leave one out; --recompute budget:SIZE goes with --canonical", ErrorKind::usage);
  if (r.fit && r.recompute != "none")
    throw Error(cat("--fit chooses the recompute policy, and --recompute is '", r.recompute, "'"),
                "leave one out", ErrorKind::usage);
  check_text_options(text_of(r));
  check_schedule(schedule_of(r));
  check_shards(model_of(r), r.tensor_ranks);
  check_context(model_of(r), r.context);
  check_compile(model_of(r), r.device);
}

}  // namespace kiln

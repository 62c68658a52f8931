#include "kiln/train_options.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/build_info.h"
#include "base/error.h"
#include "base/json.h"
#include "dist/strategy/grad_tree.h"
#include "kiln/bench_options.h"
#include "model/hf_config.h"
#include "model/partition.h"
#include "model/size_registry.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// A config.json, or a folder with one.
HfConfig read_model(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  return read_hf_config(folder ? (std::filesystem::path(path) / "config.json").string() : path);
}

int64_t save_every_of(const TrainRequest& r) {
  return r.save_every < 0 ? std::clamp<int64_t>(r.steps / 10, 50, 1000) : r.save_every;
}

ordered_json bucket_json(const TrainRequest& r) {
  return r.bucket_auto ? ordered_json("auto") : ordered_json(r.bucket_mb);
}

}  // namespace

Precision precision_of(const TrainRequest& r) { return parse_precision("--precision", r.precision); }

ModelConfig model_of(const TrainRequest& r) {
  ModelConfig c = r.model.empty() ? config_of(find_model_size(r.size)) : read_model(r.model).model;
  if (std::filesystem::is_directory(r.model) &&
      ((r.kv_heads > 0 && r.kv_heads != c.kv_heads) || (r.tied && !c.tied)))
    throw Error(cat(r.model, " has weights for ", c.kv_heads, " key/value heads and ", c.tied ? "a" : "no",
                    " tied head"),
                "--kv-heads and --tied are for a model that begins from nothing: give its config.json",
                ErrorKind::usage);
  if (r.kv_heads > 0) c.kv_heads = r.kv_heads;
  c.tied = c.tied || r.tied;
  c.recompute = parse_recompute("--recompute", r.recompute);
  choose_variants(r.preset, r.variants, r.device.target).apply_to(c);
  check_config(c);
  return c;
}

HfConfig hf_config_of(const TrainRequest& r) {
  HfConfig c = r.model.empty() ? HfConfig() : read_model(r.model);
  c.max_positions = r.model.empty() ? r.context : std::max(c.max_positions, r.context);
  return c;
}

int data_ranks_of(const TrainRequest& r) { return r.ranks / r.tensor_ranks; }

// Without a word: up to eight, which as many ranks can share out.
int chunks_of(const TrainRequest& r) {
  if (!r.canonical || r.chunks > 0) return r.canonical ? r.chunks : 0;
  return static_cast<int>(std::gcd(r.batch * r.micro_steps, int64_t{8}));
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
  s.graph = r.graph != "off";
  if (r.prefetch != "auto") s.prefetch = r.prefetch == "on";
  s.adamw.decay = r.decay;
  s.adamw.beta2 = 0.95;  // a short run's second moment must forget the first steps
  return s;
}

StrategyOptions strategy_of(const TrainRequest& r) {
  return {r.bucket_mb, parse_wire("--wire", r.wire), r.fsdp_prefetch, chunks_of(r) / data_ranks_of(r)};
}

// A model that comes with a tokenizer was trained on its ids, and knows no others.
std::string tokenizer_of(const TrainRequest& r) {
  if (!r.tokenizer.empty()) return r.tokenizer;
  const bool own = std::filesystem::is_directory(r.model) &&
                   std::filesystem::exists(std::filesystem::path(r.model) / "tokenizer.json");
  return own && r.vocab == 0 ? r.model : "byte";
}

TextOptions text_of(const TrainRequest& r) {
  return {.tokenizer = tokenizer_of(r), .train_vocab = r.vocab, .held_out = r.held_out, .context = r.context};
}

LrSchedule schedule_of(const TrainRequest& r) {
  return {r.lr, r.min_lr < 0 ? r.lr / 10 : r.min_lr,
          r.warmup < 0 ? std::min<int64_t>(100, r.steps / 10) : r.warmup, r.steps};
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
  return o;
}

namespace {

void check_canonical(const TrainRequest& r) {
  if (!r.canonical) {
    if (r.chunks > 0)
      throw Error("--chunks says how --canonical cuts a step's batch", "add --canonical", ErrorKind::usage);
    return;
  }
  auto refuse = [](const std::string& why, const char* remedy) {
    throw Error(cat("--canonical: ", why), remedy, ErrorKind::unavailable);
  };
  if (r.tensor_ranks > 1)
    refuse("tensor-parallel ranks add up parts of every product, in an order of their own",
           "leave --tp out: ddp, zero and fsdp keep their bits");
  if (r.wire != "fp32")
    refuse(cat("gradients rounded to ", r.wire, " between ranks are others than those of one rank"),
           "use --wire fp32");
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
  auto at_least = [](const char* option, auto value, auto least) {
    if (value < least)
      throw Error(cat(option, " is ", value, "; expected ", least, " or more"), {}, ErrorKind::usage);
  };
  if (r.run.empty()) throw Error("the run has no folder", "name one with --out", ErrorKind::usage);
  at_least("--steps", r.steps, int64_t{1});
  at_least("--batch", r.batch, int64_t{1});
  at_least("--context", r.context, int64_t{1});
  at_least("--accumulate", r.micro_steps, 1);
  at_least("--eval-every", r.eval_every, int64_t{0});
  at_least("--eval-batches", r.eval_batches, int64_t{1});
  at_least("--keep", r.keep, 1);
  at_least("--sample-every", r.sample_every, int64_t{0});
  at_least("--sample-tokens", r.sample_tokens, int64_t{0});
  at_least("--threads", r.threads, 0);
  at_least("--clip", r.clip, 0.0);
  at_least("--decay", r.decay, 0.0);
  if (!(r.held_out >= 0 && r.held_out < 1))
    throw Error(
        cat("--held-out is ", r.held_out, "; expected a part of the text from 0 up to, not including, 1"), {},
        ErrorKind::usage);
  if (r.graph != "auto" && r.graph != "on" && r.graph != "off")
    throw Error(cat("--graph is '", r.graph, "'; expected on, off or auto"), {}, ErrorKind::usage);
  if (r.prefetch != "auto" && r.prefetch != "on" && r.prefetch != "off")
    throw Error(cat("--prefetch is '", r.prefetch, "'; expected on, off or auto"), {}, ErrorKind::usage);
  if (r.tune.empty())
    throw Error("--tune is empty; expected a file of kiln tune, auto or off", {}, ErrorKind::usage);
  if (r.graph == "on" && r.device.type != DeviceType::cuda)
    throw Error(cat("--graph is 'on', and ", r.device.str(), " cannot capture one"),
                "use --graph auto, or --device cuda", ErrorKind::unavailable);
  at_least("--ranks", r.ranks, 1);
  index_of("--transport", r.transport, {"auto", "threads", "mpi", "nccl"});
  at_least("--tp", r.tensor_ranks, 1);
  if (r.ranks % r.tensor_ranks != 0)
    throw Error(cat("--ranks is ", r.ranks, " and --tp is ", r.tensor_ranks,
                    ": the ranks do not divide into models of ", r.tensor_ranks),
                cat("--ranks is data-parallel x tensor-parallel ranks: --ranks ",
                    (r.ranks / r.tensor_ranks + 1) * r.tensor_ranks, ", say"),
                ErrorKind::usage);
  const int data_ranks = data_ranks_of(r);
  check_strategy(r.strategy, data_ranks);
  if (!r.link.empty()) (void)LinkModel::parse(r.link, "--link");
  if (!(r.bucket_mb >= 0))
    throw Error(cat("--bucket-mb is ", r.bucket_mb, "; expected 0 or more"), {}, ErrorKind::usage);
  check_canonical(r);
  (void)strategy_of(r);
  if (r.batch % data_ranks != 0 && !r.canonical)
    throw Error(cat("--batch is ", r.batch, " and --ranks is ", r.ranks,
                    r.tensor_ranks > 1 ? cat(", ", data_ranks, " models of ", r.tensor_ranks, " ranks") : "",
                    r.batch < data_ranks ? ": some ranks would have no sequence"
                                         : ": the batch does not divide among them"),
                cat("--batch ", (r.batch / data_ranks + 1) * data_ranks, " does"), ErrorKind::usage);
  check_text_options(text_of(r));
  check_schedule(schedule_of(r));
  (void)precision_of(r);
  check_parts(model_of(r), r.tensor_ranks);
}

namespace {

nlohmann::ordered_json options_json(const TrainRequest& r) {
  const LrSchedule lr = schedule_of(r);
  const StepOptions step = step_of(r);
  return {{"text", r.text},
          {"tokenizer", tokenizer_of(r)},
          {"vocab", r.vocab},
          {"model", r.model.empty() ? r.size : r.model},
          {"precision", r.precision},
          {"recompute", r.recompute},
          {"preset", r.preset},
          {"variants", r.variants},
          {"graph", r.graph},
          {"prefetch", r.prefetch},
          {"steps", r.steps},
          {"batch", r.batch},
          {"context", r.context},
          {"accumulate", r.micro_steps},
          {"lr", lr.peak},
          {"min_lr", lr.floor},
          {"warmup", lr.warmup},
          {"decay", step.adamw.decay},
          {"beta1", step.adamw.beta1},
          {"beta2", step.adamw.beta2},
          {"eps", step.adamw.eps},
          {"clip", r.clip},
          {"loss_scale", r.loss_scale.initial},
          {"scale_interval", r.loss_scale.interval},
          {"eval_every", r.eval_every},
          {"eval_batches", r.eval_batches},
          {"save_every", save_every_of(r)},
          {"keep", r.keep},
          {"on_save_error", r.stop_on_save_error ? "stop" : "go-on"},
          {"sample_every", r.sample_every},
          {"sample_tokens", r.sample_tokens},
          {"prompt", r.prompt},
          {"held_out", r.held_out},
          {"overfit", r.overfit},
          {"seed", r.seed},
          {"strategy", r.strategy},
          {"ranks", r.ranks},
          {"tp", r.tensor_ranks},
          {"transport", r.transport},
          {"bucket_mb", bucket_json(r)},
          {"link", r.link},
          {"fsdp_prefetch", r.fsdp_prefetch},
          {"wire", r.wire},
          {"canonical", chunks_of(r)}};
}

}  // namespace

std::string options_text(const TrainRequest& r) {
  return options_json(r).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string run_record(const TrainRequest& r, const TrainSetup& s, uint64_t generation) {
  const ModelConfig& m = s.model;
  const ordered_json page = {
      {"options", options_json(r)},
      {"model",
       {{"vocab", m.vocab},
        {"d_model", m.d_model},
        {"d_ff", m.d_ff},
        {"layers", m.layers},
        {"heads", m.heads},
        {"kv_heads", m.kv_heads},
        {"tied", m.tied},
        {"parameters", s.parameters}}},
      {"data", {{"train_tokens", s.train_tokens}, {"validation_tokens", s.validation_tokens}}},
      {"machine", {{"device", r.device.str()}, {"isa", s.isa}, {"threads", s.threads}}},
      {"products", s.products.empty() ? ordered_json() : ordered_json("gemm.json")},
      {"build", {{"version", build_info().version}, {"id", build_info().build_id}}},
      {"generation", generation},
      {"first_step", s.first_step}};
  return page.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<std::string> changed_options(const std::string& before, const std::string& now) {
  std::vector<std::string> changes;
  const JsonLimits limits{.max_bytes = std::size_t{1} << 20, .max_values = 10'000};
  const nlohmann::json old_page = parse_json(before, limits, "run.json"),
                       page = parse_json(now, limits, "run.json");
  const JsonValue old_root(old_page, "run.json"), root(page, "run.json");
  if (!old_root.has("options")) return changes;
  const JsonValue options = root.at("options"), old_options = old_root.at("options");
  for (const auto& [key, value] : options.object()) {
    const nlohmann::json old = old_options.get(key).raw();
    if (old != value) changes.push_back(cat(key, " was ", old.dump(), ", is ", value.dump()));
  }
  return changes;
}

}  // namespace kiln::cli

#include "train/run/training_rank.h"

#include <algorithm>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/units.h"
#include "device/device_room.h"
#include "device/gpu_info.h"
#include "dist/launch/transports.h"
#include "model/compile_check.h"
#include "model/hf_folder.h"
#include "train/presets.h"
#include "train/run/auto_bucket.h"
#include "train/run/auto_prefetch.h"
#include "train/run/run_choice.h"
#include "train/run/step_prediction.h"
#include "train/run/train_options.h"
#include "train/run/train_setup.h"
#include "train/run/tuned.h"

namespace kiln {
namespace {

// The vocabulary is the text's, unless the model comes with its own, larger one.
ModelConfig with_vocabulary(ModelConfig c, const TrainRequest& r, int32_t of_text) {
  if (r.model.empty()) {
    c.vocab = of_text;
  } else if (c.vocab < of_text) {
    throw Error(cat(r.model, " has a vocabulary of ", c.vocab, "; the text's tokenizer has ", of_text),
                "name the model's own tokenizer with --tokenizer");
  }
  return c;
}

// Ranks on the first one's device: all threads; of processes those of this machine, distributed over its
// GPUs.
int ranks_on_device(const RankContext& ctx, const Communicator& comm) {
  if (comm.world() == 1 || !find_transport(comm.transport()).processes) return comm.world();
  const int here = read_rank_env().local_world;
  const int gpus = ctx.device().type == DeviceType::cuda ? static_cast<int>(list_gpus().size()) : 1;
  return std::max(1, (here + gpus - 1) / std::max(1, gpus));
}

std::string what_is_safe(const CheckpointManager& saver) {
  return saver.last_good().empty() ? std::string("there is no checkpoint yet")
                                   : cat("the last good checkpoint is ", saver.last_good());
}

}  // namespace

TrainingRank::TrainingRank(const TrainRequest& request, RankContext& ctx, Communicator& comm,
                           SharedDataset& share, TrainView& view, const std::atomic<bool>& stop)
    : asked_(request),
      request_(request),
      ctx_(ctx),
      comm_(comm),
      share_(share),
      view_(view),
      stop_(stop),
      first_(comm.rank() == 0),
      shape_(step_of(request)),
      warn_([&view](const std::string& line) { view.on_warning(line); }) {}

TrainOutcome TrainingRank::run() {
  try {
    return run_through();
  } catch (const Error& e) {
    if (!memory_watch_ || memory_watch_->said().empty()) throw;
    const std::string what = e.what();  // it names the largest blocks by tag alone: here they have names
    throw Error(cat(what.substr(0, what.find("; largest: ")), "; ", memory_watch_->said()), e.hint(),
                e.kind());
  }
}

TrainOutcome TrainingRank::run_through() {
  inject_faults();
  watch_memory();
  text_ = &share_.text(request_, ctx_.pool());
  if (any_rank(ctx_, comm_, stop_)) return {};
  share_out(*text_);
  if (asks_for_choice(request_)) choose_what_fits();
  make_loader();
  take_up();
  state_.recompute = name_of(config_.recompute);
  const bool done = found_ && state_.step() >= request_.steps;
  if (first_ && !done) predict_memory_or_refuse();
  if (first_) clean_folder();
  if (done) return already_done();
  choose_products();
  make_step();
  TrainOutcome outcome = first_ ? train_and_speak() : train_beside();
  report_injections();
  return outcome;
}

void TrainingRank::share_out(const TrainingText& text) {
  config_ = with_vocabulary(model_of(request_), request_, text.vocab_size);
  if (const int32_t wanted = text_of(request_).train_vocab; first_ && text.vocab_size < wanted)
    view_.on_note(cat("--train-bpe is ", wanted, ", and the text has no more pairs to merge after ",
                      text.vocab_size, " tokens: that is the vocabulary"));
  sharing_ = strategy_of(request_);
  if (request_.bucket_auto) {
    const AutoBucket bucket = auto_bucket(request_, count_params(config_).total());
    sharing_.bucket_mb = bucket.mb;
    if (first_) view_.on_note(bucket.why);
  }
  if (request_.prefetch_auto && request_.strategy == "fsdp") choose_prefetch();
  place_.emplace(ctx_, comm_, request_.tensor_ranks, request_.strategy, sharing_);
}

void TrainingRank::make_loader() {
  layout_ = layout_for(precision_of(request_), shape_, place_->data().world(), place_->strategy());
  layout_.tensor_ranks = request_.tensor_ranks;
  loader_.emplace(text_->train,
                  LoaderOptions{.batch = shape_.batch,
                                .context = request_.context,
                                .micro_steps = shape_.micro_steps,
                                .rank = place_->data().rank(),
                                .world = place_->data().world(),
                                .ranks_first = shape_.canonical && place_->strategy().sums_ranks_first(),
                                .seed = request_.seed,
                                .prefetch = request_.prefetch != "off"});
}

void TrainingRank::choose_prefetch() {
  MemoryRequest memory{config_,
                       layout_for(precision_of(request_), shape_, data_ranks_of(request_), true),
                       shape_,
                       false,
                       request_.strategy,
                       sharing_,
                       comm_.options(),
                       request_.async_save};
  memory.layout.tensor_ranks = request_.tensor_ranks;
  const double free_memory =
      first_ ? static_cast<double>(free_memory_on(ctx_.device())) / ranks_on_device(ctx_, comm_) : 0;
  const AutoPrefetch chosen = auto_prefetch(request_, memory, ctx_, comm_, free_memory);
  sharing_.prefetch = chosen.depth;
  if (first_) view_.on_note(chosen.why);
}

void TrainingRank::take_up() {
  if (first_) folder_.emplace(request_.run);
  state_.identity = {request_.precision, text_->tokenizer ? text_->tokenizer->fingerprint() : "",
                     request_.optimizer.name};
  if (first_ && !request_.fresh) found_ = newest_checkpoint(folder_->checkpoints(), warn_);
  found_ = same_checkpoint(ctx_, comm_, request_.run, found_);
  if (!found_) {
    state_.loader = loader_->state();
    return;
  }
  check_same_run(*found_, config_, state_.identity);
  state_ = read_train_state(*found_);
  loader_->seek(state_.loader);
}

MemoryRequest TrainingRank::memory_request() const {
  return {config_,           layout_,  shape_,          text_->validation != nullptr,
          request_.strategy, sharing_, comm_.options(), request_.async_save};
}

RankOptions TrainingRank::planned_rank() const {
  RankOptions options = rank_options_of(request_, comm_.world());
  options.threads = ctx_.pool().threads();
  options.meta_compute_capability = ctx_.traits().compute_capability;
  return options;
}

std::size_t TrainingRank::free_memory() const {
  return free_memory_on(request_.device) / static_cast<std::size_t>(ranks_on_device(ctx_, comm_));
}

void TrainingRank::choose_what_fits() {
  std::string text;
  if (first_) {
    choice_ = stored_choice(asked_);
    if (!choice_) {
      layout_ = layout_for(precision_of(request_), shape_, place_->data().world(), place_->strategy());
      layout_.tensor_ranks = request_.tensor_ranks;
      const StepClock clock = clock_of(request_.results, request_.device, ctx_.pool().threads(),
                                       policy_of(precision_of(request_)).compute);
      choice_ = choose_for_run(request_, memory_request(), planned_rank(), free_memory(), clock);
    }
    view_.on_note(choice_->why);
    text = choice_text(*choice_);
  }
  choice_ = parse_choice(same_text(ctx_, comm_, std::move(text), "what fits"));
  take_choice(*choice_, request_);
  shape_ = step_of(request_);
  config_.recompute = parse_recompute("--recompute", request_.recompute);
  check_config(config_);
}

// What a rank of the run will take on this very device. A run that cannot be, for lack of memory or of a
// kernel, is refused before anything in the folder is moved or removed.
void TrainingRank::predict_memory_or_refuse() {
  const MemoryRequest request = memory_request();
  const RankOptions options = planned_rank();
  memory_ = predict_memory(request, options);
  check_fits(request, options, memory_, free_memory(), request_.results);
}

void TrainingRank::clean_folder() {
  if (request_.fresh) {
    if (const std::string aside = folder_->set_aside(); !aside.empty())
      view_.on_warning(cat("the earlier run is now in ", aside));
  }
  clear_leftovers(*folder_, state_.step());
  if (found_)
    retire_checkpoints(*folder_, state_.step(), request_.keep, warn_);  // a kill may have come before
}

TrainOutcome TrainingRank::already_done() const {
  TrainOutcome outcome;
  outcome.steps = state_.step();
  outcome.checkpoint = *found_;
  outcome.totals = state_.totals;
  outcome.parameters = count_params(config_).total();
  return outcome;
}

void TrainingRank::choose_products() {
  if (const std::string note = compile_note(config_, request_.device); first_ && !note.empty())
    view_.on_note(note);
  const std::optional<TunePlace> here = tune_place(request_.device);
  if (first_)
    tuning_ = tuning_of_run(*folder_, found_.has_value(), request_.tune, here,
                            [this](const std::string& line) { view_.on_note(line); });
  comm_.barrier(ctx_, "the folder is ready");
  tuning_ = same_tuning(ctx_, comm_, tuning_, here);
  if (tuning_) use_tuning(ctx_, *tuning_);
}

void TrainingRank::make_step() {
  model_ = make_model(config_, place_->partition());
  model_->params().materialize(ctx_, layout_);
  if (!found_ && std::filesystem::is_directory(request_.model)) {
    HfFolder source(request_.model);
    load_weights(source, config_, RopeLayout::halves, ctx_, model_->params());
  }
  Strategy& strategy = place_->strategy();
  strategy.attach(model_->params());
  if (injector_) {
    injector_->attach(model_->params());
    place_->data().observe(ctx_, injector_);
  }
  step_ = std::make_unique<TrainStep>(ctx_, *model_, strategy, shape_);
  step_->on_bad_step([this](const BadStep& bad) { on_bad_step(bad); });
  if (!found_) return;
  load_checkpoint(*found_, parts());
  strategy.after_update();  // a rank may have read no more than it updates
  step_->restore(state_.scalars);
}

CheckpointParts TrainingRank::parts() const {
  return {ctx_,
          *model_,
          step_->optimizer(),
          text_->tokenizer.get(),
          hf_config_of(request_),
          comm_.world() > 1 ? &comm_ : nullptr};
}

RunOptions TrainingRank::options() {
  RunOptions options = run_options_of(request_);
  options.first = state_.step();
  if (!samples()) options.sample_every = 0;
  add_hooks(options);
  if (comm_.world() > 1) options.agree_to_stop = agreement(ctx_, comm_, options.first);
  return options;
}

TrainOutcome TrainingRank::train_beside() {
  TrainLoop run(ctx_, *model_, *step_, shape_, *loader_, text_->validation, options());
  CheckpointManager saver(nullptr, parts(), save_options(), {});
  SavingRank other(saver, std::move(state_));
  run.run(other, stop_);
  saver.finish();
  return {};
}

TrainOutcome TrainingRank::train_and_speak() {
  TrainLoop run(ctx_, *model_, *step_, shape_, *loader_, text_->validation, options());
  TrainSetup setup = describe_setup(request_, ctx_, *model_, memory_, *text_);
  setup.first_step = state_.step();
  setup.transport = comm_.transport();
  setup.resumed = found_.value_or("");
  if (tuning_) setup.products = folder_->file("gemm.json");
  setup.choice = choice_;
  setup.predicted_step = predict_run_step(request_, memory_request(), planned_rank());
  record_setup(*folder_, asked_, setup, view_);
  RunMetrics metrics(request_.run, setup.first_step, warn_);
  setup.earlier_losses = metrics.kept_losses();
  view_.on_setup(request_, setup);

  CheckpointManager saver(*folder_, parts(), save_options(), warn_);
  saver.start_from(setup.resumed);
  saver.on_saved([this](int64_t step, const std::string& at) { view_.on_saved(step, at); });
  if (request_.async_save)
    view_.on_note(cat("--async-save keeps a copy of what is saved in host memory: ",
                      human({saver.staged_bytes()}), comm_.world() > 1 ? " on each rank" : ""));
  RunRecorder keeper(request_, parts(), view_, metrics, saver, *loader_, std::move(state_));
  TrainOutcome outcome = run_steps(run, keeper, saver);
  outcome.steps_now = outcome.steps - setup.first_step;
  outcome.parameters = setup.parameters;
  outcome.tokens_per_step = setup.tokens_per_step;
  outcome.predicted_step = setup.predicted_step;
  outcome.skipped = step_->finish().skipped;
  outcome.metrics_complete = metrics.complete();
  outcome.start_seconds = keeper.start_seconds();
  const double since = seconds_since_1970() - setup.began;
  if (since > 0) outcome.effective_training = std::min(1.0, outcome.totals.seconds / since);
  if (outcome.steps_now > 0) view_.on_memory(ctx_.allocator().stats());
  if (!stop_ && outcome.steps > 0 && samples()) outcome.sample = keeper.sample();
  return outcome;
}

// Names what is safe in whatever goes wrong from here on.
TrainOutcome TrainingRank::run_steps(TrainLoop& run, RunRecorder& keeper, CheckpointManager& saver) {
  TrainOutcome outcome;
  try {
    outcome.steps = run.run(keeper, stop_);
    saver.finish();
    if (trace_) trace_->finish();  // of a run that was stopped, what there is
  } catch (const Error& e) {
    saver.abandon();
    throw Error(e.what(), cat(e.hint(), e.hint().empty() ? "" : "; ", what_is_safe(saver)), e.kind());
  } catch (const std::bad_alloc&) {
    saver.abandon();
    throw Error("out of memory on the host", what_is_safe(saver));
  }
  if (saver.error()) throw Error(cat("the last save failed: ", saver.error()->what()), what_is_safe(saver));
  outcome.checkpoint = saver.last_good();
  outcome.totals = keeper.state().totals;
  return outcome;
}

}  // namespace kiln

#include "kiln/train.h"

#include <algorithm>
#include <filesystem>
#include <new>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "device/device_room.h"
#include "kiln/train_options.h"
#include "kiln/tuned.h"
#include "model/hf_folder.h"
#include "perf/ceilings.h"
#include "perf/device_ceilings.h"
#include "train/presets.h"
#include "train/text_generator.h"

namespace kiln::cli {
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

// Hears what the loop reports, keeps the totals, saves, and tells the view.
class RunKeeper final : public RunListener {
 public:
  RunKeeper(const TrainRequest& request, const CheckpointParts& parts, TrainView& view, RunSaver& saver,
            const BatchLoader& loader, TrainState state)
      : request_(request),
        parts_(parts),
        view_(view),
        saver_(saver),
        loader_(loader),
        state_(std::move(state)) {}

  void on_step(const StepReport& r) override {
    RunTotals& t = state_.totals;
    if (r.step == 1) t.first_loss = r.loss;
    t.last_loss = r.loss;
    if (warm_) {
      t.seconds += r.seconds;
      t.tokens += r.tokens;
    }
    warm_ = true;
    view_.on_step(r);
  }
  void on_evaluation(int64_t step, const Evaluation& e) override { view_.on_evaluation(step, e); }
  void on_save(const StepScalars& last) override {
    state_.scalars = last;
    if (!request_.overfit) state_.loader = loader_.state();  // else the first batch is always the one
    saver_.save(state_);
    if (!saver_.error()) view_.on_saved(last.attempt, saver_.last_good());
  }
  void on_sample(int64_t step) override {
    if (const std::string text = sample(); !text.empty()) view_.on_sample_text(step, text);
  }
  // A picture of the model, not part of its training: where it cannot be made, that is said and no more.
  std::string sample() {
    try {
      return sample_text(request_, parts_);
    } catch (const Error& e) {
      view_.on_warning(cat("no sample: ", e.what()));
      return {};
    }
  }

  const TrainState& state() const { return state_; }

 private:
  const TrainRequest& request_;
  CheckpointParts parts_;
  TrainView& view_;
  RunSaver& saver_;
  const BatchLoader& loader_;
  TrainState state_;
  bool warm_ = false;  // the first step of a process also warms everything up
};

// What the run will take on this very device. Refuses one that cannot be, for want of room or of a kernel.
MemoryStats checked_memory(const MemoryRequest& request, RankOptions options, const RankContext& ctx) {
  options.meta_compute_capability = ctx.traits().compute_capability;
  const MemoryStats memory = predict_memory(request, options);
  require_room(request, options, memory, room_on(options.device));
  return memory;
}

// On a GPU that the model fills there may be no room for it: then nobody knows, and the run goes on.
double peak_flops_of_gpu(const Device& device, DType dtype) {
  RankOptions options;
  options.device = device;
  try {
    RankContext own(options);  // its memory is not the run's
    return measure_device_ceilings(
               own, {.dtypes = {dtype}, .copy = {1 << 20}, .product = 4096, .seconds_each = 0.01})
        .flops_for(dtype);
  } catch (const Error&) {
    return 0;
  }
}

// What products could reach here, a second: measured now.
double peak_flops(RankContext& ctx, DType dtype) {
  if (ctx.device().type == DeviceType::cuda) return peak_flops_of_gpu(ctx.device(), dtype);
  const CpuIsa isa = ctx.traits().isa;
  return measure_cpu_ceilings(ctx.pool(), isa, {.seconds_each = 0.02, .one_thread = false, .copy = false})
      .flops_for(dtype, isa)
      .all;
}

TrainSetup describe(const TrainRequest& r, RankContext& ctx, const Llama& model, const MemoryStats& memory,
                    const TrainingText& text) {
  TrainSetup s;
  s.model = model.config();
  s.groups = count_params(model.config());
  s.parameters = s.groups.total();
  s.memory = memory;
  s.text = text.name;
  s.train_tokens = text.train->size();
  s.validation_tokens = text.validation ? text.validation->size() : 0;
  s.tokens_per_step = r.batch * r.context * r.micro_steps;
  s.threads = ctx.pool().threads();
  s.step_flops = micro_step_flops(model.config(), r.batch, r.context).model() * r.micro_steps;
  s.isa = name_of(ctx.traits().isa);
  s.peak_flops = peak_flops(ctx, model.dtype() == DType::bf16 ? DType::bf16 : DType::f32);
  return s;
}

// run.json of this part in place of the one before, whatever changed said aloud.
void record_run(const RunFolder& run, const TrainRequest& r, const TrainSetup& setup, TrainView& view) {
  const std::string path = run.file("run.json");
  const std::string now = run_record(r, setup, run.generation());
  if (!setup.resumed.empty() && std::filesystem::exists(path)) {
    try {
      for (const std::string& change :
           changed_options(read_small_file(path, std::size_t{1} << 20, "a run.json"), now))
        view.on_warning(cat("going on with other options: ", change));
    } catch (const Error& e) {  // the checkpoints have what counts
      view.on_warning(cat("cannot tell which options changed: ", e.what()));
    }
  }
  write_file_atomically(path, now);
}

std::string what_is_safe(const RunSaver& saver) {
  return saver.last_good().empty() ? std::string("there is no checkpoint yet")
                                   : cat("the last good checkpoint is ", saver.last_good());
}

// Names what is safe in whatever goes wrong from here on.
TrainOutcome run_steps(TrainingRun& run, RunKeeper& keeper, RunSaver& saver, int64_t first,
                       const std::atomic<bool>& stop) {
  TrainOutcome outcome;
  try {
    outcome.steps = run.run(keeper, stop);
  } catch (const Error& e) {
    throw Error(e.what(), cat(e.hint(), e.hint().empty() ? "" : "; ", what_is_safe(saver)), e.kind());
  } catch (const std::bad_alloc&) {
    throw Error("out of memory on the host", what_is_safe(saver));
  }
  if (saver.error()) throw Error(cat("the last save failed: ", saver.error()->what()), what_is_safe(saver));
  outcome.steps_now = outcome.steps - first;
  outcome.checkpoint = saver.last_good();
  outcome.totals = keeper.state().totals;
  return outcome;
}

TrainOutcome already_done(const TrainState& state, const std::string& checkpoint, const ModelConfig& config) {
  TrainOutcome outcome;
  outcome.steps = state.step();
  outcome.checkpoint = checkpoint;
  outcome.totals = state.totals;
  outcome.parameters = count_params(config).total();
  return outcome;
}

}  // namespace

TrainOutcome train(const TrainRequest& r, TrainView& view, const std::atomic<bool>& stop) {
  check_request(r);
  RankOptions options;
  options.threads = r.threads;
  options.seed = r.seed;
  options.device = r.device;
  options.variants = choose_variants(r.preset, r.variants, r.device.target).ops;
  RankContext ctx(options);
  const TrainingText text = read_training_text(r.text, text_of(r), ctx.pool());
  if (stop) return {};
  const ModelConfig config = with_vocabulary(model_of(r), r, text.vocab_size);
  BatchLoader loader(text.train, {.batch = r.batch,
                                  .context = r.context,
                                  .micro_steps = r.micro_steps,
                                  .seed = r.seed,
                                  .prefetch = r.prefetch != "off"});

  const RunFolder folder(r.run);
  TrainState state;
  state.identity = {r.precision, text.tokenizer ? text.tokenizer->fingerprint() : ""};
  const auto warn = [&view](const std::string& line) { view.on_warning(line); };
  const auto found = r.fresh ? std::nullopt : newest_checkpoint(folder.checkpoints(), warn);
  if (found) {
    check_same_run(*found, config, state.identity);
    state = read_train_state(*found);
    loader.seek(state.loader);
  } else {
    state.loader = loader.state();
  }
  const bool done = found && state.step() >= r.steps;

  // A run that cannot be is refused before anything in the folder is moved or removed.
  const StepOptions shape = step_of(r);
  const ParamLayout layout = layout_for(precision_of(r), shape);
  MemoryStats memory;
  if (!done) memory = checked_memory({config, layout, shape, text.validation != nullptr}, options, ctx);
  if (r.fresh) {
    if (const std::string aside = folder.set_aside(); !aside.empty())
      view.on_warning(cat("the earlier run is now in ", aside));
  }
  clear_leftovers(folder, state.step());
  if (found) retire_checkpoints(folder, state.step(), r.keep, warn);  // a kill may have come before that
  if (done) return already_done(state, *found, config);
  const auto tuning = tuning_of_run(folder, found.has_value(), r.tune, tune_place(r.device),
                                    [&view](const std::string& line) { view.on_note(line); });
  if (tuning) use_tuning(ctx, *tuning);
  Llama model(config);
  model.params().materialize(ctx, layout);
  Strategy one_rank;
  TrainStep step(ctx, model, one_rank, shape);
  const CheckpointParts parts{ctx, model, step.optimizer(), text.tokenizer.get(), hf_config_of(r)};
  if (found) {
    load_checkpoint(*found, parts);
    step.restore(state.scalars);
  } else if (std::filesystem::is_directory(r.model)) {
    HfFolder source(r.model);
    load_weights(source, config, RopeLayout::halves, ctx, model.params());
  }

  TrainSetup setup = describe(r, ctx, model, memory, text);
  setup.first_step = state.step();
  setup.resumed = found.value_or("");
  if (tuning) setup.products = folder.file("gemm.json");
  record_run(folder, r, setup, view);
  view.on_setup(r, setup);

  RunOptions run_options = run_options_of(r);
  run_options.first = state.step();
  RunSaver saver(folder, parts, {r.keep, r.stop_on_save_error}, warn);
  saver.start_from(setup.resumed);
  RunKeeper keeper(r, parts, view, saver, loader, std::move(state));
  TrainingRun run(ctx, model, step, shape, loader, text.validation, run_options);
  TrainOutcome outcome = run_steps(run, keeper, saver, setup.first_step, stop);
  outcome.parameters = setup.parameters;
  outcome.skipped = step.finish().skipped;
  if (outcome.steps_now > 0) view.on_memory(ctx.allocator().stats());
  if (!stop && outcome.steps > 0) outcome.sample = keeper.sample();
  return outcome;
}

}  // namespace kiln::cli

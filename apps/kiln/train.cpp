#include "kiln/train.h"

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "kiln/train_options.h"
#include "model/hf_folder.h"
#include "perf/ceilings.h"
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
class Session final : public RunListener {
 public:
  Session(const TrainRequest& request, const CheckpointParts& parts, TrainView& view, RunSaver& saver,
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
  void on_sample(int64_t step) override { view_.on_sample_text(step, sample_text(request_, parts_)); }

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

TrainSetup describe(const TrainRequest& r, const RankOptions& options, RankContext& ctx, Llama& model,
                    const TrainingText& text) {
  TrainSetup s;
  s.model = model.config();
  for (const Param& p : model.params().params()) s.parameters += p.shape.numel();
  s.groups = count_params(model.config());
  s.memory = predict_memory({model.config(), model.params().layout(), step_of(r), text.validation != nullptr},
                            options);
  s.text = text.name;
  s.train_tokens = text.train->size();
  s.validation_tokens = text.validation ? text.validation->size() : 0;
  s.tokens_per_step = r.batch * r.context * r.micro_steps;
  s.threads = ctx.pool().threads();
  s.step_flops = micro_step_flops(model.config(), r.batch, r.context).model() * r.micro_steps;
  const CpuIsa isa = ctx.traits().isa;
  s.isa = name_of(isa);
  s.peak_flops =
      measure_cpu_ceilings(ctx.pool(), isa, {.seconds_each = 0.02, .one_thread = false, .copy = false})
          .flops_for(model.params().policy().compute == DType::bf16 ? DType::bf16 : DType::f32, isa)
          .all;
  return s;
}

// run.json of this part in place of the one before, whatever changed said aloud.
void record_run(const RunFolder& run, const TrainRequest& r, const TrainSetup& setup, TrainView& view) {
  const std::string path = run.file("run.json");
  const std::string now = run_record(r, setup, run.generation());
  if (!setup.resumed.empty() && std::filesystem::exists(path)) {
    for (const std::string& change :
         changed_options(read_small_file(path, std::size_t{1} << 20, "a run.json"), now))
      view.on_warning(cat("going on with other options: ", change));
  }
  write_file_atomically(path, now);
}

// Names what is safe in whatever goes wrong from here on.
TrainOutcome run_steps(TrainingRun& run, Session& session, RunSaver& saver, int64_t first,
                       const std::atomic<bool>& stop) {
  TrainOutcome outcome;
  try {
    outcome.steps = run.run(session, stop);
  } catch (const Error& e) {
    const std::string& good = saver.last_good();
    throw Error(e.what(),
                cat(e.hint(), e.hint().empty() ? "" : "; ",
                    good.empty() ? std::string("there is no checkpoint yet")
                                 : cat("the last good checkpoint is ", good)),
                e.kind());
  }
  if (saver.error())
    throw Error(cat("the last save failed: ", saver.error()->what()),
                saver.last_good().empty() ? "there is no checkpoint"
                                          : cat("the last good checkpoint is ", saver.last_good()));
  outcome.steps_now = outcome.steps - first;
  outcome.checkpoint = saver.last_good();
  outcome.totals = session.state().totals;
  return outcome;
}

}  // namespace

TrainOutcome train(const TrainRequest& r, TrainView& view, const std::atomic<bool>& stop) {
  check_request(r);
  RankOptions options;
  options.threads = r.threads;
  options.seed = r.seed;
  options.variants = choose_variants(r.preset, r.variants).ops;
  RankContext ctx(options);
  const TrainingText text = read_training_text(r.text, text_of(r), ctx.pool());
  const ModelConfig config = with_vocabulary(model_of(r), r, text.vocab_size);
  BatchLoader loader(text.train,
                     {.batch = r.batch, .context = r.context, .micro_steps = r.micro_steps, .seed = r.seed});

  const RunFolder folder(r.run);
  if (r.fresh) {
    if (const std::string aside = folder.set_aside(); !aside.empty())
      view.on_warning(cat("the earlier run is now in ", aside));
  }
  TrainState state;
  state.identity = {r.precision, text.tokenizer ? text.tokenizer->fingerprint() : ""};
  const auto warn = [&view](const std::string& line) { view.on_warning(line); };
  const auto found = newest_checkpoint(folder.checkpoints(), warn);
  if (found) {
    check_same_run(*found, config, state.identity);
    state = read_train_state(*found);
    loader.seek(state.loader);
  } else {
    state.loader = loader.state();
  }
  clear_leftovers(folder, state.step());
  if (found) retire_checkpoints(folder, state.step(), r.keep, warn);  // a kill may have come before that

  Llama model(config);
  const StepOptions shape = step_of(r);
  model.params().materialize(ctx, layout_for(precision_of(r), shape));
  Strategy one_rank;
  TrainStep step(ctx, model, one_rank, shape);
  const CheckpointParts parts{ctx, model, step.optimizer(), text.tokenizer.get(), r.context};
  if (found) {
    load_checkpoint(*found, parts);
    step.restore(state.scalars);
  } else if (std::filesystem::is_directory(r.model)) {
    HfFolder source(r.model);
    load_weights(source, config, RopeLayout::halves, ctx, model.params());
  }

  TrainSetup setup = describe(r, options, ctx, model, text);
  setup.first_step = state.step();
  setup.resumed = found.value_or("");
  record_run(folder, r, setup, view);
  view.on_setup(r, setup);

  RunOptions run_options = run_options_of(r);
  run_options.first = state.step();
  RunSaver saver(folder, parts, {r.keep, r.stop_on_save_error}, warn);
  saver.start_from(setup.resumed);
  Session session(r, parts, view, saver, loader, std::move(state));
  TrainingRun run(ctx, model, step, shape, loader, text.validation, run_options);
  TrainOutcome outcome = run_steps(run, session, saver, setup.first_step, stop);
  view.on_memory(ctx.allocator().stats());
  outcome.sample = sample_text(r, parts);
  return outcome;
}

}  // namespace kiln::cli

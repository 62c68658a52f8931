#include "train/run/train.h"
#include "train/run/auto_bucket.h"

#include <algorithm>
#include <filesystem>
#include <new>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "device/device_room.h"
#include "device/gpu_info.h"
#include "dist/launch/parallel_rank.h"
#include "train/run/run_recorder.h"
#include "kiln/train_options.h"
#include "train/run/train_ranks.h"
#include "train/run/tuned.h"
#include "model/hf_folder.h"
#include "perf/timing/ceilings.h"
#include "perf/timing/device_ceilings.h"
#include "train/presets.h"

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

// Ranks that live on the first one's device: all threads do; of processes those of this machine, dealt out to
// its GPUs.
int ranks_on_device(const RankContext& ctx, const Communicator& comm) {
  if (comm.world() == 1 || comm.transport() == "threads") return comm.world();
  const int here = read_rank_env().local_world;
  const int gpus = ctx.device().type == DeviceType::cuda ? static_cast<int>(list_gpus().size()) : 1;
  return std::max(1, (here + gpus - 1) / std::max(1, gpus));
}

// What a rank of the run will take on this very device, which `sharing` of them share. Refuses one that
// cannot be, for want of room or of a kernel.
MemoryStats checked_memory(const MemoryRequest& request, RankOptions options, const RankContext& ctx,
                           int sharing) {
  options.meta_compute_capability = ctx.traits().compute_capability;
  const MemoryStats memory = predict_memory(request, options);
  require_room(request, options, memory, room_on(options.device) / static_cast<std::size_t>(sharing));
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
  if (ctx.device().type == DeviceType::cpu) s.peak_flops *= ctx.world();  // each rank has threads of its own
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
TrainOutcome run_steps(TrainingRun& run, RunKeeper& keeper, const RunSaver& saver, int64_t first,
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

// What one rank does. The first of them has the folder, speaks and saves; the others train beside it.
TrainOutcome train_rank(const TrainRequest& r, RankContext& ctx, Communicator& comm, TrainShare& share,
                        TrainView& view, const std::atomic<bool>& stop) {
  const bool first = comm.rank() == 0;
  const TrainingText& text = share.text(r, ctx.pool());
  if (any_rank(ctx, comm, stop)) return {};
  const ModelConfig config = with_vocabulary(model_of(r), r, text.vocab_size);
  StrategyOptions sharing = strategy_of(r);
  if (r.bucket_auto) {
    const AutoBucket bucket = auto_bucket(r, count_params(config).total());
    sharing.bucket_mb = bucket.mb;
    if (first) view.on_note(bucket.why);
  }
  ParallelRank place(ctx, comm, r.tensor_ranks, r.strategy, sharing);
  Strategy& strategy = place.strategy();
  const StepOptions shape = step_of(r);
  BatchLoader loader(text.train, {.batch = shape.batch,
                                  .context = r.context,
                                  .micro_steps = shape.micro_steps,
                                  .rank = place.data().rank(),
                                  .world = place.data().world(),
                                  .ranks_first = shape.canonical && strategy.sums_ranks_first(),
                                  .seed = r.seed,
                                  .prefetch = r.prefetch != "off"});

  std::optional<RunFolder> folder;
  if (first) folder.emplace(r.run);
  TrainState state;
  state.identity = {r.precision, text.tokenizer ? text.tokenizer->fingerprint() : ""};
  const auto warn = [&view](const std::string& line) { view.on_warning(line); };
  std::optional<std::string> found;
  if (first && !r.fresh) found = newest_checkpoint(folder->checkpoints(), warn);
  found = same_checkpoint(ctx, comm, r.run, found);
  if (found) {
    check_same_run(*found, config, state.identity);
    state = read_train_state(*found);
    loader.seek(state.loader);
  } else {
    state.loader = loader.state();
  }
  const bool done = found && state.step() >= r.steps;

  // A run that cannot be is refused before anything in the folder is moved or removed.
  ParamLayout layout = layout_for(precision_of(r), shape, place.data().world(), strategy);
  layout.tensor_ranks = r.tensor_ranks;
  MemoryStats memory;
  if (first && !done) {
    RankOptions rank = rank_options_of(r, comm.world());
    rank.threads = ctx.pool().threads();
    memory = checked_memory(
        {config, layout, shape, text.validation != nullptr, r.strategy, sharing, comm.options()}, rank, ctx,
        ranks_on_device(ctx, comm));
  }
  if (first && r.fresh) {
    if (const std::string aside = folder->set_aside(); !aside.empty())
      view.on_warning(cat("the earlier run is now in ", aside));
  }
  if (first) clear_leftovers(*folder, state.step());
  if (first && found) retire_checkpoints(*folder, state.step(), r.keep, warn);  // a kill may have come before
  if (done) return already_done(state, *found, config);
  std::optional<TuneFile> tuning;
  if (first)
    tuning = tuning_of_run(*folder, found.has_value(), r.tune, tune_place(r.device),
                           [&view](const std::string& line) { view.on_note(line); });
  comm.barrier(ctx, "the folder is ready");
  tuning = same_tuning(ctx, comm, tuning, tune_place(r.device));
  if (tuning) use_tuning(ctx, *tuning);
  Llama model(config, place.partition());
  model.params().materialize(ctx, layout);
  if (!found && std::filesystem::is_directory(r.model)) {
    HfFolder source(r.model);
    load_weights(source, config, RopeLayout::halves, ctx, model.params());
  }
  strategy.attach(model.params());
  TrainStep step(ctx, model, strategy, shape);
  const CheckpointParts parts{ctx,
                              model,
                              step.optimizer(),
                              text.tokenizer.get(),
                              hf_config_of(r),
                              comm.world() > 1 ? &comm : nullptr};
  if (found) {
    load_checkpoint(*found, parts);
    strategy.after_update();  // a rank may have read no more than it updates
    step.restore(state.scalars);
  }
  RunOptions run_options = run_options_of(r);
  run_options.first = state.step();
  const bool samples = r.tensor_ranks == 1 && !strategy.shards_params();  // else no rank has the model
  if (!samples) run_options.sample_every = 0;
  if (comm.world() > 1) run_options.agree_to_stop = agreement(ctx, comm, run_options.first);
  TrainingRun run(ctx, model, step, shape, loader, text.validation, run_options);
  const SaveOptions saving{r.keep, r.stop_on_save_error};
  if (!first) {
    RunSaver saver(nullptr, parts, saving, {});
    SavingRank other(saver, std::move(state));
    run.run(other, stop);
    return {};
  }

  TrainSetup setup = describe(r, ctx, model, memory, text);
  setup.first_step = state.step();
  setup.transport = comm.transport();
  setup.resumed = found.value_or("");
  if (tuning) setup.products = folder->file("gemm.json");
  record_run(*folder, r, setup, view);
  view.on_setup(r, setup);

  RunSaver saver(*folder, parts, saving, warn);
  saver.start_from(setup.resumed);
  RunKeeper keeper(r, parts, view, saver, loader, std::move(state));
  TrainOutcome outcome = run_steps(run, keeper, saver, setup.first_step, stop);
  outcome.parameters = setup.parameters;
  outcome.skipped = step.finish().skipped;
  if (outcome.steps_now > 0) view.on_memory(ctx.allocator().stats());
  if (!stop && outcome.steps > 0 && samples) outcome.sample = keeper.sample();
  return outcome;
}

}  // namespace

TrainOutcome train(const TrainRequest& r, TrainView& view, const std::atomic<bool>& stop) {
  check_request(r);
  TrainShare share;
  TrainOutcome outcome;
  run_ranks(ranks_of(r), rank_options_of(r, r.ranks), [&](RankContext& ctx, Communicator& comm) {
    TrainView nobody;
    const bool first = comm.rank() == 0;
    TrainOutcome mine = train_rank(r, ctx, comm, share, first ? view : nobody, stop);
    if (!first) return;
    outcome = std::move(mine);
    outcome.transport = comm.transport();
  });
  return outcome;
}

}  // namespace kiln::cli

#include "train/run/train_setup.h"

#include <chrono>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "train/run/peak_rate.h"
#include "train/run/run_record.h"
#include "train/run/train_options.h"

namespace kiln {
TrainSetup describe_setup(const TrainRequest& r, RankContext& ctx, const Model& model,
                          const MemoryStats& predicted, const TrainingText& text) {
  TrainSetup s;
  s.model = model.config();
  s.groups = count_params(model.config());
  s.parameters = s.groups.total();
  s.memory = predicted;
  s.text = text.name;
  s.train_tokens = text.train->size();
  s.validation_tokens = text.validation ? text.validation->size() : 0;
  s.tokens_per_step = r.batch * r.context * r.micro_steps;
  s.threads = ctx.pool().threads();
  s.step_flops = micro_step_flops(model.config(), r.batch, r.context).model() * r.micro_steps;
  s.isa = name_of(ctx.traits().isa);
  s.peak_flops = measure_peak(ctx, model.dtype());
  return s;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void record_setup(const RunFolder& run, const TrainRequest& r, TrainSetup& setup, TrainView& view) {
  const std::string path = run.file("run.json");
  setup.began = seconds_since_1970();
  std::string now = run_record(r, setup, run.generation());
  if (!setup.resumed.empty() && std::filesystem::exists(path)) {
    try {
      const std::string before = read_small_file(path, std::size_t{1} << 20, "a run.json");
      if (const double began = began_of(before); began > 0) setup.began = std::min(setup.began, began);
      now = run_record(r, setup, run.generation());
      for (const std::string& change : changed_options(before, now))
        view.on_warning(cat("resuming with other options: ", change));
    } catch (const Error& e) {  // the checkpoints have what counts
      view.on_warning(cat("cannot tell which options changed: ", e.what()));
    }
  }
  write_file_atomically(path, now);
  write_file_atomically(run.file("run_config.json"), run_config(r));
}

}  // namespace kiln

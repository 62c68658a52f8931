// A small model and its step, driven one call at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "support/tiny_run.h"
#include "train/step.h"

namespace kiln {

inline RankOptions one_thread(const Device& device) {
  RankOptions o;
  o.device = device;
  o.threads = 1;
  o.seed = 11;
  return o;
}

// A model and its step.
struct Trainer {
  explicit Trainer(const TinyRun& r, const Device& device = Device::cpu())
      : Trainer(r, device, {r.precision, false}) {}
  Trainer(const TinyRun& r, const Device& device, const ParamLayout& layout)
      : run(r), ctx(one_thread(device)), model(r.model) {
    model.params().materialize(ctx, layout);
    step = std::make_unique<TrainStep>(ctx, model, plain, r.step);
  }
  ~Trainer() { ctx.tape().reset(); }

  std::vector<TinyBatch> batches(int64_t number) const {
    std::vector<TinyBatch> b;
    b.reserve(static_cast<std::size_t>(run.step.micro_steps));
    for (int i = 0; i < run.step.micro_steps; ++i)
      b.push_back(tiny_batch(run, number * run.step.micro_steps + i));
    return b;
  }
  std::optional<StepScalars> train(const std::vector<TinyBatch>& batches, double lr) {
    std::vector<HostBatch> views;
    views.reserve(batches.size());
    for (const TinyBatch& b : batches) views.push_back(b.host());
    return step->run(views, lr);
  }
  std::optional<StepScalars> train(int64_t number) { return train(batches(number), run.lr); }
  std::vector<std::byte> weights() { return fetch_bytes(ctx, model.params().values()); }
  std::vector<float> floats(const Tensor& t) {
    std::vector<float> v(static_cast<std::size_t>(t.numel()));
    ctx.download(v.data(), t);
    return v;
  }

  TinyRun run;
  RankContext ctx;
  Llama model;
  Strategy plain;
  std::unique_ptr<TrainStep> step;
};

template <class F>
std::string complaint(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace kiln

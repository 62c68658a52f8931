// Two models of a few hundred weights, trained on rows of numbers: what a strategy does to every one
// of them can be compared with a single process.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "autograd/tape.h"
#include "dist/strategy/strategy.h"
#include "ops/add/add.h"
#include "ops/elementwise/unary.h"
#include "ops/linear/linear.h"
#include "ops/step_scalars/step_scalars.h"
#include "optim/optimizer.h"

namespace kiln {

// relu(fc1), relu(fc2 + a frozen bias), fc3; and a fixed parameter that nothing uses. Tied: five layers, of
// which the second and the fourth have one weight.
struct ToyModel {
  ToyModel(RankContext& ctx, bool with_ties, const ParamLayout& layout, unsigned seed) : tied(with_ties) {
    fc1 = &store.add("fc1", {10, 10}, {});
    fc2 = &store.add("fc2", {50, 10}, {});
    if (tied) {
      fc3 = &store.add("fc3", {10, 50}, {});
      last = &store.add("fc5", {5, 50}, {});
    } else {
      bias = &store.add("fc2.bias", {50}, {});
      last = &store.add("fc3", {5, 50}, {});
      fixed = &store.add("fixed", {2}, {});
      bias->trainable = fixed->trainable = false;
    }
    store.materialize(ctx, layout);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.4f);
    for (Param& p : store.params()) {
      for (int64_t i = 0; i < p.shape.numel(); ++i) p.value.data<float>()[i] = normal(random);
    }
  }

  Tensor forward(RankContext& ctx, const Tensor& x) {
    Tensor y = relu(ctx, linear(ctx, relu(ctx, linear(ctx, x, *fc1)), *fc2));
    if (tied) {
      y = relu(ctx, linear(ctx, relu(ctx, linear(ctx, y, *fc3)), *fc2));
    } else {
      const Tensor rows = ctx.empty({x.dim(0), 50}, DType::f32);
      for (int64_t i = 0; i < rows.numel(); ++i) rows.data<float>()[i] = bias->value.data<float>()[i % 50];
      y = relu(ctx, add(ctx, y, rows));
    }
    return linear(ctx, y, *last);
  }

  std::vector<float> values() const {  // of all parameters, without padding
    std::vector<float> all;
    for (const Param& p : store_params())
      all.insert(all.end(), p.value.data<float>(), p.value.data<float>() + p.shape.numel());
    return all;
  }
  const std::deque<Param>& store_params() const { return const_cast<ParamStore&>(store).params(); }

  ParamStore store;
  bool tied;
  Param *fc1, *fc2, *fc3 = nullptr, *bias = nullptr, *last, *fixed = nullptr;
};

// `rows` of 10 inputs and 5 targets each, in a new random order for each step.
struct ToyData {
  explicit ToyData(int64_t row_count, unsigned seed = 5) : rows(row_count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < rows * 10; ++i) x.push_back(normal(random));
    for (int64_t i = 0; i < rows * 5; ++i) y.push_back(normal(random));
  }
  std::vector<int64_t> order(int step) const {
    std::vector<int64_t> o(static_cast<std::size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) o[static_cast<std::size_t>(i)] = i;
    std::mt19937 random(static_cast<unsigned>(step) + 77);
    for (std::size_t i = o.size(); i > 1; --i) std::swap(o[i - 1], o[random() % i]);
    return o;
  }
  int64_t rows;
  std::vector<float> x, y;
};

// One step on this rank's rows of it: mean squared error over all ranks' rows.
inline void toy_step(RankContext& ctx, ToyModel& model, Strategy& strategy, Optimizer& optimizer,
                     const Tensor& scalars, const ToyData& data, int step, int micro_steps = 1) {
  model.store.begin_step();
  strategy.begin_step();
  const std::vector<int64_t> order = data.order(step);
  const int64_t n = data.rows / ctx.world() / micro_steps;
  for (int micro = 0; micro < micro_steps; ++micro) {
    strategy.begin_micro_step(micro + 1 == micro_steps);
    ctx.tape().reset();
    const Tensor x = ctx.empty({n, 10}, DType::f32), dy = ctx.empty({n, 5}, DType::f32);
    auto row = [&](int64_t i) {
      return order[static_cast<std::size_t>((ctx.rank() * micro_steps + micro) * n + i)];
    };
    for (int64_t i = 0; i < n * 10; ++i)
      x.data<float>()[i] = data.x[static_cast<std::size_t>(row(i / 10) * 10 + i % 10)];
    const Tensor y = model.forward(ctx, ctx.tape().watch(x));
    for (int64_t i = 0; i < n * 5; ++i) {
      const float target = data.y[static_cast<std::size_t>(row(i / 5) * 5 + i % 5)];
      dy.data<float>()[i] = 2 * (y.data<float>()[i] - target) / static_cast<float>(data.rows * 5);
    }
    ctx.tape().backward(y, dy);
    ctx.tape().reset();
  }
  model.store.finish_gradients(ctx);
  strategy.finish_gradients();
  square_sum(ctx, strategy.own_grads(model.store), scalars);
  strategy.reduce_scalars(scalars);
  finish_step_scalars(ctx, scalars, 0, {0.9, 0.999});
  optimizer.step(ctx, scalars);
  strategy.after_update();
}

inline Tensor toy_scalars(RankContext& ctx, double lr) {
  const Tensor t = make_step_scalars(ctx);
  StepScalars s;
  s.lr = lr;
  ctx.upload(t, &s);
  return t;
}

}  // namespace kiln

#include "ops/cases/run_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/cpu_rows.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace kiln {
namespace {

Tensor make_tensor(RankContext& ctx, const CaseInput& in, const std::vector<double>& values, DType dtype,
                   Tag tag);

std::vector<double> draw(const CaseInput& in, uint64_t seed, DType dtype) {
  const int64_t count = in.shape.numel();
  std::vector<double> values(static_cast<std::size_t>(count));
  const PhiloxKey key = philox_key(seed, in.name);
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const float normal = in.scale * philox_normal(key, static_cast<uint64_t>(i));
      const float z = in.absolute ? std::fabs(normal) : normal;
      values[i] = static_cast<double>(widen(static_cast<T>(static_cast<Accum<T>>(z))));
    }
  });
  return values;
}

std::vector<double> draw_ids(const CaseInput& in, uint64_t seed) {
  std::vector<double> ids(static_cast<std::size_t>(in.shape.numel()));
  const PhiloxKey key = philox_key(seed, in.name);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<double>(philox(key, i, 0).x % static_cast<uint64_t>(in.ids_below));
    if (in.ignore_every > 0 && i % in.ignore_every == 0) ids[i] = kIgnoreTarget;
  }
  return ids;
}

// Fewer values than elements repeat: the first ones come from the host, the device copies them on, each time
// as many as there are already.
Tensor make_repeating(RankContext& ctx, const Shape& shape, const std::vector<double>& values, DType dtype,
                      Tag tag) {
  const Tensor whole = ctx.empty(shape, dtype, tag);
  if (ctx.device().is_meta() || whole.numel() == 0) return whole;
  std::size_t done = values.size() * size_of(dtype);
  const CaseInput start{"start", CaseInput::Kind::activation, {static_cast<int64_t>(values.size())}};
  const Tensor first = make_tensor(ctx, start, values, dtype, tag);
  ctx.backend().copy_within(whole.raw(), first.raw(), done, ctx.compute());
  for (const std::size_t all = whole.bytes().value; done < all; done = std::min(all, 2 * done))
    ctx.backend().copy_within(whole.raw() + done, whole.raw(), std::min(done, all - done), ctx.compute());
  return whole;
}

// Writes host doubles into a tensor of any float dtype or int32; rows may be padded.
Tensor make_tensor(RankContext& ctx, const CaseInput& in, const std::vector<double>& values, DType dtype,
                   Tag tag) {
  const auto count = static_cast<std::size_t>(in.shape.numel());
  if (in.row_padding == 0 && !values.empty() && values.size() < count)
    return make_repeating(ctx, in.shape, values, dtype, tag);
  const int64_t cols = in.shape.last(), rows = in.shape.rows(), pitch = cols + in.row_padding;
  Tensor whole = ctx.empty(in.row_padding == 0 ? in.shape : in.shape.with_last(pitch), dtype, tag);
  if (!ctx.device().is_meta() && whole.numel() > 0) {
    std::vector<std::byte> bytes(whole.bytes().value);
    auto fill = [&](auto zero) {
      using T = decltype(zero);
      T* host = reinterpret_cast<T*>(bytes.data());
      // Padding holds NaN: a kernel that reads across its row is found out.
      for (int64_t i = 0; i < rows * pitch; ++i)
        host[i] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c)
          host[r * pitch + c] = static_cast<T>(static_cast<Accum<T>>(values[r * cols + c]));
      }
    };
    if (dtype == DType::i32) {
      for (std::size_t i = 0; i < values.size(); ++i)
        reinterpret_cast<int32_t*>(bytes.data())[i] = static_cast<int32_t>(values[i]);
    } else {
      with_float(dtype, fill);
    }
    ctx.upload(whole, bytes.data());
  }
  return in.row_padding == 0 ? whole : whole.narrow(-1, 0, cols);
}

Tensor poisoned(RankContext& ctx, const Shape& shape, DType dtype) {  // an unwritten output shows as NaN
  const CaseInput in{"poison", CaseInput::Kind::activation, shape};
  return make_tensor(ctx, in, std::vector<double>(shape.numel() > 0 ? 1 : 0, std::nan("")), dtype, Tag::grad);
}

}  // namespace

std::vector<double> fetch(RankContext& ctx, const Tensor& t) {
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
  if (values.empty()) return values;
  std::vector<std::byte> bytes(t.bytes().value);
  ctx.download(bytes.data(), t);
  with_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(widen(reinterpret_cast<T*>(bytes.data())[i]));
  });
  return values;
}

std::vector<double> fetch_joined(RankContext& ctx, const Tensor& high, const Tensor& low) {
  std::vector<double> values = fetch(ctx, high);
  if (!low.defined() || values.empty()) return values;
  std::vector<int16_t> halves(values.size());
  ctx.download(halves.data(), low);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = join_float(static_cast<bf16>(static_cast<float>(values[i])), halves[i]);
  return values;
}

CaseData draw_case(const OpCase& c, DType dtype, uint64_t seed) {
  CaseData data;
  for (const CaseInput& in : c.inputs) {
    data.inputs.push_back(in.kind == CaseInput::Kind::ids ? draw_ids(in, seed) : draw(in, seed, dtype));
  }
  data.dy = draw_gradient(c, dtype, seed);
  return data;
}

std::vector<double> draw_gradient(const OpCase& c, DType dtype, uint64_t seed) {
  // The output's size is known by running the schedule without data.
  RankOptions meta;
  meta.device = Device::meta();
  RankContext ctx(meta);
  CaseData nothing;
  nothing.inputs.resize(c.inputs.size());
  const CaseSetup setup(ctx, c, nothing, dtype);
  GradModeGuard off(ctx, GradMode::off);
  const Shape out{c.call(ctx, setup.arguments()).numel()};
  return draw({"dy", CaseInput::Kind::activation, out}, seed, dtype);
}

CaseSetup::CaseSetup(RankContext& ctx, const OpCase& c, const CaseData& data, DType dtype,
                     const std::vector<std::string>& wants, std::optional<DType> param_grad)
    : ctx_(ctx) {
  ctx.tape().reset();
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput& in = c.inputs[i];
    const bool wanted = wants.empty() || std::find(wants.begin(), wants.end(), in.name) != wants.end();
    const bool leaf = in.kind == CaseInput::Kind::activation || in.kind == CaseInput::Kind::statistic;
    watched_.push_back(wanted && leaf);
    if (in.kind == CaseInput::Kind::param) {
      Param& p = params_.emplace_back();
      p.name = in.name;
      p.shape = in.shape;
      p.value = make_tensor(ctx, in, data.inputs[i], dtype, Tag::param);
      p.trainable = wanted;
      if (wanted) p.grad = poisoned(ctx, in.shape, param_grad.value_or(stat_dtype(dtype)));
      arguments_.push_back({Tensor(), &p});
    } else if (in.kind == CaseInput::Kind::ids) {
      arguments_.push_back({make_tensor(ctx, in, data.inputs[i], DType::i32, Tag::data), nullptr});
    } else if (in.kind == CaseInput::Kind::state) {
      arguments_.push_back({make_tensor(ctx, in, data.inputs[i], stat_dtype(dtype), Tag::optim), nullptr});
    } else if (in.kind == CaseInput::Kind::low_half) {
      arguments_.push_back(
          {dtype == DType::bf16 ? ctx.zeros(in.shape, DType::i16, Tag::param) : Tensor(), nullptr});
    } else {
      const DType own = in.kind == CaseInput::Kind::statistic ? stat_dtype(dtype) : dtype;
      const Tensor t = make_tensor(ctx, in, data.inputs[i], own, Tag::data);
      arguments_.push_back({watched_.back() ? ctx.tape().watch(t) : t, nullptr});
    }
  }
}

Tensor CaseSetup::gradient(int i) const {
  const CaseArgument& a = arguments_[static_cast<std::size_t>(i)];
  if (a.param != nullptr) return a.param->grad;
  return watched_[static_cast<std::size_t>(i)] ? ctx_.tape().grad(a.tensor) : Tensor();
}

void CaseSetup::begin_step(bool fresh_tape) {
  if (fresh_tape) ctx_.tape().reset();
  for (Param& p : params_) {
    p.touched.clear();
    p.expected = p.arrived = 0;
  }
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (watched_[i]) arguments_[i].tensor = ctx_.tape().watch(arguments_[i].tensor.detach());
  }
}

SmallVector<Tensor, 2> CaseSetup::upload_gradients(const CaseOutputs& y, const std::vector<double>& values) {
  SmallVector<Tensor, 2> grads;
  auto next = values.begin();
  for (const Tensor& t : y.tensors) {
    const CaseInput out{"dy", CaseInput::Kind::activation, t.shape()};
    const auto end = values.empty() ? next : next + t.numel();
    grads.push_back(make_tensor(ctx_, out, {next, end}, t.dtype(), Tag::data));
    next = end;
  }
  return grads;
}

void CaseSetup::backward(const CaseOutputs& y, SmallVector<Tensor, 2> grads, int floor) {
  for (int i = 1; i < grads.size(); ++i) ctx_.tape().give_grad(y.tensors[i], std::move(grads[i]));
  ctx_.tape().backward(y.tensors[0], std::move(grads[0]), floor);
}

std::vector<double> repeat_to(std::vector<double> values, int64_t count) {
  const auto n = static_cast<std::size_t>(count);
  const std::size_t period = std::max<std::size_t>(1, values.size());
  values.resize(n);
  for (std::size_t i = period; i < n; ++i) values[i] = values[i - period];
  return values;
}

CaseData draw_periods(const OpCase& c, DType dtype, uint64_t seed, int64_t period) {
  CaseData data;
  for (const CaseInput& in : c.inputs) {
    CaseInput part = in;
    part.shape = {std::min(in.shape.numel(), period)};
    data.inputs.push_back(in.kind == CaseInput::Kind::ids ? draw_ids(part, seed) : draw(part, seed, dtype));
  }
  return data;
}

CaseData draw_repeating(const OpCase& c, DType dtype, uint64_t seed) {
  CaseData data = draw_periods(c, dtype, seed, 65536);
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    data.inputs[i] = repeat_to(std::move(data.inputs[i]), c.inputs[i].shape.numel());
  return data;
}

CaseResult run_case(RankContext& ctx, const OpCase& c, const CaseData& data, DType dtype,
                    const CaseOptions& options) {
  Tape& tape = ctx.tape();
  const bool meta = ctx.device().is_meta();
  CaseSetup setup(ctx, c, data, dtype);
  const std::span<const CaseArgument> arguments = setup.arguments();
  CaseResult result;
  ctx.allocator().reset_peaks();
  for (int pass = 0; pass < options.times; ++pass) {
    GradModeGuard mode(ctx, options.backward ? GradMode::record : GradMode::off);
    const CaseOutputs y = c.call(ctx, arguments);
    for (int i = 0; i < y.tensors.size(); ++i) {
      if (meta || pass > 0) continue;
      const std::vector<double> values = fetch_joined(ctx, y.tensors[i], y.low_of(i));
      result.y.insert(result.y.end(), values.begin(), values.end());
    }
    if (options.backward) setup.backward(y, setup.upload_gradients(y, data.dy));
  }
  result.memory = ctx.allocator().stats();
  if (meta || !options.backward) return result;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput::Kind kind = c.inputs[i].kind;
    if (kind == CaseInput::Kind::param) {
      result.grads.push_back(fetch(ctx, arguments[i].param->grad));
    } else if (kind == CaseInput::Kind::activation || kind == CaseInput::Kind::statistic) {
      result.grads.push_back(fetch(ctx, tape.grad(arguments[i].tensor)));
    } else {
      result.grads.emplace_back();
    }
  }
  tape.reset();
  return result;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(a[i])) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace kiln

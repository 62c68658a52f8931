#include "ops/cases/sampled_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "autograd/tape.h"
#include "base/plain_number.h"
#include "base/rng.h"
#include "ops/cpu_rows.h"
#include "ops/op_list.h"

namespace kiln {
namespace {

// Prime: rows of any usual width begin at different values, so one that is read in place of another shows.
constexpr int64_t kPeriod = 65521;

// Elements of a row as slices count them.
int64_t width_of(const Shape& shape, bool ids) { return ids || shape.rank() <= 1 ? 1 : shape.last(); }

// Seen as slices see it.
Tensor as_rows(const Tensor& t) {
  return t.shape().rank() <= 1 ? t.reshape({t.numel(), 1}) : t.reshape_rows();
}

Tensor run_of(const Tensor& rows, int64_t row, int64_t col, int64_t count) {
  return rows.narrow(0, row, 1).narrow(1, col, count).reshape({count});
}

void write(RankContext& ctx, const Tensor& flat, const std::vector<double>& values) {
  std::vector<std::byte> bytes(flat.bytes().value);
  if (flat.dtype() == DType::i32) {
    for (std::size_t i = 0; i < values.size(); ++i)
      reinterpret_cast<int32_t*>(bytes.data())[i] = static_cast<int32_t>(values[i]);
  } else {
    with_float(flat.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t i = 0; i < values.size(); ++i)
        reinterpret_cast<T*>(bytes.data())[i] = static_cast<T>(static_cast<Accum<T>>(values[i]));
    });
  }
  ctx.upload(flat, bytes.data());
}

void round_to(DType dtype, std::vector<double>& values) {
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (double& v : values) v = static_cast<double>(widen(static_cast<T>(static_cast<Accum<T>>(v))));
  });
}

double spacing_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-46;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

// Sums of squares of one tensor's differences from fp64.
struct Distance {
  double apart = 0, low_apart = 0, size = 0;
  int64_t count = 0;

  void add(const double* got, const double* low, const double* exact, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const double d = got[i] - exact[i], l = low[i] - exact[i];
      apart += d * d;
      low_apart += l * l;
      size += exact[i] * exact[i];
    }
    count += static_cast<int64_t>(n);
  }
};

RankOptions naive_rank(int threads, uint64_t seed) {
  RankOptions o;
  o.device = Device::cpu();
  o.threads = threads;
  o.seed = seed;
  o.variants = defining_variants();
  return o;
}

}  // namespace

VariantChoice defining_variants() {
  VariantChoice choice;
  for (const OpListing& op : list_ops()) {
    for (const char* name : {"naive", "composed"}) {
      const bool has = std::any_of(op.variants.begin(), op.variants.end(), [&](const VariantListing& v) {
        return v.device == DeviceType::cpu && v.name == std::string_view(name);
      });
      if (!has) continue;
      choice.set(op.name, name);
      break;
    }
  }
  return choice;
}

void judge(SampledResult& result, const Finding& f) {
  const auto share = [](const Finding& x) { return x.allowed > 0 ? x.error / x.allowed : 0.0; };
  if (result.worst.tensor.empty() || !(share(f) <= share(result.worst))) result.worst = f;
  if (f.error <= f.allowed) return;  // NaN is not
  result.passed = false;
  result.reason += fmt::format("{}{} is off by {}, {} is allowed", result.reason.empty() ? "" : "; ",
                               f.tensor, plain(f.error, 3), plain(f.allowed, 3));
}

void SampledReference::Expected::add(const Slice& slice, int64_t rows, const double* exact,
                                     const double* low) {
  const int64_t cols = slice.cols == 0 ? width : slice.cols;
  const auto put = [&](int64_t row, int64_t col, int64_t at, int64_t count) {
    Values& v = runs[{row, col}];
    v.exact.resize(static_cast<std::size_t>(count));
    v.low.resize(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      v.exact[static_cast<std::size_t>(i)] += exact[at + i];
      v.low[static_cast<std::size_t>(i)] += low[at + i];
    }
  };
  if (slice.all_rows && cols == width) return put(-1, 0, 0, rows * width);
  const int64_t count = slice.all_rows ? rows : static_cast<int64_t>(slice.rows.size());
  for (int64_t i = 0; i < count; ++i)
    put(slice.all_rows ? i : slice.rows[static_cast<std::size_t>(i)], slice.col, i * cols, cols);
}

void SampledReference::Expected::expect_zeros(int64_t rows, uint64_t seed) {
  constexpr int kTries = 8;
  if (runs.empty() || runs.begin()->first.first < 0) return;
  std::set<int64_t> reached;
  for (const auto& [at, values] : runs) reached.insert(at.first);
  const PhiloxKey key = philox_key(seed, "zero rows");
  for (int i = 0; i < kTries; ++i) {
    const auto row = static_cast<int64_t>(philox(key, static_cast<uint64_t>(i), 0).x %
                                          static_cast<uint64_t>(std::max<int64_t>(1, rows)));
    if (reached.count(row) != 0) continue;
    const std::vector<double> zeros(static_cast<std::size_t>(width));
    runs[{row, 0}] = {zeros, zeros};
  }
}

SampledReference::SampledReference(SampledCase c, DType dtype, uint64_t seed, int threads)
    : case_(std::move(c)), dtype_(dtype), periods_(draw_periods(case_.whole, dtype, seed, kPeriod)) {
  for (std::size_t i = 0; i < case_.values.size(); ++i) {
    if (!case_.values[i].empty()) periods_.inputs[i] = case_.values[i];
  }
  RankOptions meta;
  meta.device = Device::meta();
  {
    RankContext ctx(meta);
    CaseData nothing;
    nothing.inputs.resize(case_.whole.inputs.size());
    const CaseSetup setup(ctx, case_.whole, nothing, dtype);
    const GradModeGuard off(ctx, GradMode::off);
    const CaseOutputs y = case_.whole.call(ctx, setup.arguments());
    for (const Tensor& t : y.tensors) {
      output_shapes_.push_back(t.shape());
      outputs_.push_back({width_of(t.shape(), false), {}});
    }
  }
  for (const CaseInput& in : case_.whole.inputs)
    gradients_.push_back({width_of(in.shape, in.kind == CaseInput::Kind::ids), {}});
  RankContext naive(naive_rank(threads, seed));
  for (std::size_t i = 0; i < case_.parts.size(); ++i) run_part(case_.parts[i], i, seed, naive);
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    gradients_[i].expect_zeros(
        case_.whole.inputs[i].shape.numel() / std::max<int64_t>(1, gradients_[i].width), seed);
}

std::vector<double> SampledReference::gather(const CaseInput& in, const std::vector<double>& period,
                                             const Slice& slice) const {
  const int64_t width = width_of(in.shape, in.kind == CaseInput::Kind::ids);
  const int64_t cols = slice.cols == 0 ? width : slice.cols, n = static_cast<int64_t>(period.size());
  std::vector<double> values;
  const int64_t rows = slice.all_rows ? in.shape.numel() / std::max<int64_t>(1, width)
                                      : static_cast<int64_t>(slice.rows.size());
  values.reserve(static_cast<std::size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = slice.all_rows ? i : slice.rows[static_cast<std::size_t>(i)];
    int64_t at = (row * width + slice.col) % n;
    for (int64_t c = 0; c < cols; ++c) {
      values.push_back(period[static_cast<std::size_t>(at)]);
      if (++at == n) at = 0;
    }
  }
  return values;
}

void SampledReference::run_part(const SampledPart& part, std::size_t index, uint64_t seed,
                                RankContext& naive) {
  CaseData data;
  for (const SampledPart::Input& in : part.inputs) {
    const auto of = static_cast<std::size_t>(in.of);
    data.inputs.push_back(gather(case_.whole.inputs[of], periods_.inputs[of], in.slice));
    if (in.instead) std::fill(data.inputs.back().begin(), data.inputs.back().end(), *in.instead);
  }
  if (case_.backward)
    data.dy = draw_gradient(part.problem, case_.dy_dtype.value_or(dtype_), seed + 1 + index);
  const CaseOptions options{.backward = case_.backward};
  const CaseResult exact = run_case(naive, part.problem, data, DType::f64, options);
  const auto begin = std::chrono::steady_clock::now();
  const CaseResult low = run_case(naive, part.problem, data, dtype_, options);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  int64_t at = 0;
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Slice& slice = part.outputs[part.outputs.size() == 1 ? 0 : o];
    const int64_t width = outputs_[o].width, cols = slice.cols == 0 ? width : slice.cols;
    const int64_t all = output_shapes_[o].numel() / std::max<int64_t>(1, width);
    const int64_t rows = slice.all_rows ? all : static_cast<int64_t>(slice.rows.size());
    outputs_[o].add(slice, all, exact.y.data() + at, low.y.data() + at);
    for (int64_t r = 0; case_.backward && r < rows; ++r) {
      const auto from = data.dy.begin() + at + r * cols;
      dy_.push_back({static_cast<int>(o),
                     slice.all_rows ? r : slice.rows[static_cast<std::size_t>(r)],
                     slice.col,
                     {from, from + cols}});
    }
    at += rows * cols;
  }
  if (!case_.backward) return;
  for (std::size_t i = 0; i < part.inputs.size(); ++i) {
    const auto of = static_cast<std::size_t>(part.inputs[i].of);
    if (exact.grads[i].empty()) continue;
    std::vector<double> rounded = low.grads[i];
    if (case_.param_grad && case_.whole.inputs[of].kind == CaseInput::Kind::param)
      round_to(*case_.param_grad, rounded);
    gradients_[of].add(part.inputs[i].slice,
                       case_.whole.inputs[of].shape.numel() / std::max<int64_t>(1, gradients_[of].width),
                       exact.grads[i].data(), rounded.data());
  }
}

// Inputs that stand for themselves only where a part is.
void SampledReference::place(RankContext& ctx, const CaseSetup& setup) const {
  for (const SampledPart& part : case_.parts) {
    for (const SampledPart::Input& in : part.inputs) {
      const auto of = static_cast<std::size_t>(in.of);
      if (of >= case_.elsewhere.size() || !case_.elsewhere[of] || in.slice.all_rows) continue;
      const CaseInput& input = case_.whole.inputs[of];
      const std::vector<double> values = gather(input, periods_.inputs[of], in.slice);
      const Tensor flat = setup.arguments()[of].tensor.detach().reshape({input.shape.numel()});
      const int64_t width = gradients_[of].width, cols = in.slice.cols == 0 ? width : in.slice.cols;
      for (std::size_t r = 0; r < in.slice.rows.size(); ++r) {
        const auto from = values.begin() + static_cast<int64_t>(r) * cols;
        write(ctx, flat.narrow(0, in.slice.rows[r] * width + in.slice.col, cols), {from, from + cols});
      }
    }
  }
}

SmallVector<Tensor, 2> SampledReference::make_gradients(RankContext& ctx, const CaseOutputs& y) const {
  SmallVector<Tensor, 2> grads;
  for (const Tensor& t : y.tensors) grads.push_back(ctx.zeros(t.shape(), t.dtype(), Tag::data));
  for (const RowGradient& g : dy_) {
    const auto count = static_cast<int64_t>(g.values.size());
    write(ctx, run_of(as_rows(grads[g.output]), g.row, g.col, count), g.values);
  }
  return grads;
}

Finding SampledReference::compare(RankContext& ctx, const std::string& name, const Tensor& t,
                                  const Tensor& low, const Expected& expected) const {
  constexpr std::size_t kFewRuns = 64;  // fetched one by one
  constexpr int64_t kFewValues = 64;
  Distance d;
  const Tensor rows = t.numel() == 0 ? t : as_rows(t);
  const Tensor low_rows = low.defined() && low.numel() > 0 ? as_rows(low) : low;
  const auto low_of = [&](const auto& part) { return low.defined() ? part(low_rows) : low; };
  std::vector<double> all;
  int64_t first = 0;
  if (expected.runs.size() > kFewRuns && rows.contiguous()) {
    first = expected.runs.begin()->first.first;
    const auto part = [&](const Tensor& of) {
      return of.narrow(0, first, expected.runs.rbegin()->first.first + 1 - first);
    };
    all = fetch_joined(ctx, part(rows), low_of(part));
  }
  for (const auto& [at, values] : expected.runs) {
    const std::size_t n = values.exact.size();
    if (n == 0) continue;
    if (!all.empty()) {
      const double* got = all.data() + (at.first - first) * expected.width + at.second;
      d.add(got, values.low.data(), values.exact.data(), n);
      continue;
    }
    const auto part = [&, at = at](const Tensor& of) {
      return run_of(of, at.first, at.second, static_cast<int64_t>(n));
    };
    const std::vector<double> got =
        at.first < 0 ? fetch_joined(ctx, t, low) : fetch_joined(ctx, part(rows), low_of(part));
    d.add(got.data(), values.low.data(), values.exact.data(), n);
  }
  const auto relative = [&](double apart) {
    return d.size == 0 ? std::sqrt(apart) : std::sqrt(apart / d.size);
  };
  const double spacing = spacing_of(!case_.by_own_dtype ? dtype_ : low.defined() ? DType::f32 : t.dtype());
  const double little = d.count < kFewValues ? 2 * spacing : spacing / 4;
  return {name, relative(d.apart), 2 * relative(d.low_apart) + little};
}

SampledResult SampledReference::check(RankContext& ctx) const {
  CaseData data = periods_;
  for (std::size_t i = 0; i < case_.elsewhere.size(); ++i) {
    if (case_.elsewhere[i] && !case_.complete()) data.inputs[i] = {*case_.elsewhere[i]};
  }
  SampledResult result;
  CaseSetup setup(ctx, case_.whole, data, dtype_, {}, case_.param_grad);
  if (!case_.complete()) place(ctx, setup);
  const GradModeGuard mode(ctx, case_.backward ? GradMode::record : GradMode::off);
  CaseOutputs y = case_.whole.call(ctx, setup.arguments());
  for (int o = 0; o < y.tensors.size(); ++o) {
    const std::string name = y.tensors.size() == 1 ? "y" : cat("y", o + 1);
    judge(result, compare(ctx, name, y.tensors[o], y.low_of(o), outputs_[static_cast<std::size_t>(o)]));
  }
  if (case_.backward) {
    setup.backward(y, make_gradients(ctx, y));
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const Tensor g = setup.gradient(static_cast<int>(i));
      if (!g.defined() || gradients_[i].runs.empty()) continue;
      judge(result, compare(ctx, cat("d", case_.whole.inputs[i].name), g, {}, gradients_[i]));
    }
  }
  ctx.tape().reset();
  return result;
}

}  // namespace kiln

#include "compile/compiler.h"

#include <algorithm>
#include <chrono>

#include "compile/run_region.h"
#include "ops/check.h"

namespace kiln::compile {
namespace {

constexpr const char* kOp = "compiled";

// Adds the time that it lives.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), from_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point from_;
};

std::string key_of(const Region& region, const RegionInputs& in) {
  std::string key = cat(region.name, " ", region.key);
  for (const Tensor& t : in.tensors) key += cat(" ", t.shape().str(), name_of(t.dtype()));
  for (const ParamRef& p : in.params) key += cat(" w", p.shape().str(), name_of(dtype_of_weight(*p.param)));
  return key;
}

std::vector<Tensor> upload_tables(RankContext& ctx, const Traced& t) {
  std::vector<Tensor> tables;
  for (const Table& table : t.tables) {
    Tensor made = ctx.empty({table.rows, table.columns}, t.computes, Tag::data);
    tables.push_back(made);
    if (ctx.device().is_meta()) continue;
    with_float(t.computes, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (sizeof(T) >= 4) {
        std::vector<T> values;
        for (int64_t r = 0; r < table.rows; ++r)
          for (int64_t c = 0; c < table.columns; ++c) values.push_back(static_cast<T>(table.at(r, c)));
        ctx.upload(made, values.data());
      }
    });
  }
  return tables;
}

// Which gradients backward will be asked for, were these inputs recorded now.
std::vector<char> wanted_of(const Tape& tape, const RegionInputs& in) {
  std::vector<char> wanted;
  for (const Tensor& t : in.tensors) wanted.push_back(static_cast<char>(tape.needs_grad(t)));
  for (const ParamRef& p : in.params) wanted.push_back(static_cast<char>(p.param->trainable));
  return wanted;
}

void check_inputs(RankContext& ctx, const Region& region, const RegionInputs& in) {
  if (in.tensors.empty()) throw Error(cat("[compile] region ", region.name, " has no tensors"));
  for (const Tensor& t : in.tensors) {
    if (!t.defined()) throw Error(cat("[compile] a tensor of region ", region.name, " is not defined"));
    if (t.device() != ctx.device())
      throw Error(cat("[compile] a tensor of region ", region.name, " is on ", t.device().str(),
                      ", the rank on ", ctx.device().str()));
  }
}

}  // namespace

CompiledRegion& Compiler::find(RankContext& ctx, const Region& region, const RegionInputs& in) {
  std::unique_ptr<CompiledRegion>& found = regions_[key_of(region, in)];
  if (found == nullptr) {
    const Stopwatch watch(seconds_);
    auto made = std::make_unique<CompiledRegion>();
    made->name = region.name;
    made->traced = trace(region, in);
    if (made->traced.outputs.size() > 4)
      throw Error(
          cat("[compile] region ", region.name, " has ", made->traced.outputs.size(), " outputs; 4 at most"));
    made->forward = plan_forward(made->traced);
    made->tables = upload_tables(ctx, made->traced);
    found = std::move(made);
  }
  return *found;
}

Tensors Compiler::run(RankContext& ctx, const Region& region, const RegionInputs& in) {
  check_inputs(ctx, region, in);
  Tape& tape = ctx.tape();
  const void* pinned = tape.next_pinned_row(kOp);
  CompiledRegion& compiled = find(ctx, region, in);
  const std::vector<char> wanted = wanted_of(tape, in);
  const bool records = tape.mode() == GradMode::record &&
                       std::any_of(wanted.begin(), wanted.end(), [](char w) { return w != 0; });
  if (pinned != nullptr && !compiled.is(pinned))
    throw Error(cat("a recomputed span runs region ", region.name, " with other inputs than in forward"));
  if (!records) {
    tape.note_row(kOp, &compiled);
    if (tape.mode() != GradMode::record) {
      for (const ParamRef& p : in.params) tape.note_uses({p});
    }
    return run_forward(ctx, compiled, nullptr, region.in_place, in);
  }
  // A piece that is made again keeps what it kept the first time, whatever is wanted of it now.
  const RegionPlan* plan = compiled.plan_at(pinned);
  if (plan == nullptr) {
    auto found = compiled.plans.find(wanted);
    const Stopwatch watch(seconds_);
    if (found == compiled.plans.end())
      found = compiled.plans.emplace(wanted, plan_region(compiled.traced, wanted)).first;
    plan = &found->second;
  }
  tape.note_row(kOp, plan);
  return run_forward(ctx, compiled, plan, region.in_place, in);
}

}  // namespace kiln::compile

namespace kiln {

std::unique_ptr<RegionCompiler> make_region_compiler() { return std::make_unique<compile::Compiler>(); }

std::string why_not_compiled(const Device& device) {
  if (device.target == DeviceType::cuda)
    return cat("regions are compiled for the CPU; on ", device.str(), " the ops' own kernels run");
  return {};
}

double compile_seconds(RankContext& ctx) { return ctx.regions().seconds(); }

Tensors compiled(RankContext& ctx, const Region& region, const RegionInputs& in) {
  if (const std::string why = why_not_compiled(ctx.device()); !why.empty())
    throw Error(why, "--compile auto compiles where the device can", ErrorKind::unavailable);
  return ctx.regions().run(ctx, region, in);
}

}  // namespace kiln

#include "studies/compile/compile_study.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "autograd/tape.h"
#include "compile/cache.h"
#include "compile/compiler.h"
#include "compile/cuda_source/emit.h"
#include "compile/cuda_source/nvrtc.h"
#include "compile/text.h"
#include "model/model.h"
#include "ops/attention/attention.h"
#include "studies/compile/measured_pass.h"
#include "studies/gate/gate.h"
#include "studies/step/step.h"
#include "train/presets.h"

namespace kiln {
namespace {

using compile::CompiledRegion;
using compile::Compiler;
using compile::CudaKernel;
using compile::Program;
using compile::RegionPlan;

double ms_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

// Forward calls of each region.
class RegionCalls final : public OpObserver {
 public:
  void on_op_begin(RankContext&, const OpEvent& e) override {
    if (e.op == "compiled" && e.pass == Pass::forward) ++calls[std::string(e.variant)];
  }
  std::map<std::string, int> calls;
};

void run_attention(RankContext& ctx, const CompileRequest& r) {
  const ModelConfig& c = r.size.config;
  const DType dtype = policy_of(r.precision).compute;
  const auto make = [&](int64_t heads) {
    return ctx.tape().watch(ctx.empty({r.batch, r.context, heads * c.head_dim()}, dtype));
  };
  const Tensor q = make(c.heads), k = make(c.kv_heads), v = make(c.kv_heads);
  const Tensor o = attention(
      ctx, q, k, v, {.heads = c.heads, .kv_heads = c.kv_heads, .causal = true, .variant = "compiled"});
  ctx.tape().backward(o, ctx.empty(o.shape(), o.dtype()));
}

const char* preset_of(const CompileRequest& r) {
  return r.show == CompileShow::block ? "optimized" : "baseline";
}

// Two blocks hold every region of a block: the second begins with a sum. The softmax of attention is one of a
// model's.
ModelConfig config_of(const CompileRequest& r) {
  ModelConfig c = r.size.config;
  c.compile = r.show == CompileShow::block ? CompileMode::regions : CompileMode::model;
  if (r.show != CompileShow::model) {
    c.layers = 2;
    c.vocab = std::min<int64_t>(c.vocab, 256);
  }
  choose_variants(preset_of(r), "").apply_to(c);
  return c;
}

// A step that runs the regions, against their ops.
void check_regions(const CompileRequest& r, RowOutcome& row) {
  StepSpec spec;
  spec.model = config_of(r);
  spec.precision = r.precision;
  spec.step.batch = r.batch;
  spec.step.context = r.context;
  RankOptions rank;
  rank.threads = r.threads;
  rank.variants = choose_variants(preset_of(r), "").ops;
  StepGate gate("", [](const std::string&) {});
  note_gate(gate.check_ops({spec, rank, plan_step(spec, rank).ops}), row);
}

void run_model(RankContext& ctx, const CompileRequest& r) {
  const ModelConfig c = config_of(r);
  const std::unique_ptr<Model> model = make_model(c);
  model->params().materialize(ctx, {.precision = r.precision, .narrow_grads = true});
  const Tensor ids = ctx.zeros({r.batch, r.context}, DType::i32, Tag::data);
  const Tensor loss = model->loss(ctx, ids, ids);
  ctx.tape().backward(loss, ctx.zeros(loss.shape(), loss.dtype()));
}

class Study {
 public:
  explicit Study(const CompileRequest& r) : cache_(r.cache) {
    report_.request = r;
    if (r.measure) {
      check_regions(r, report_.checked);
      RankOptions o;
      o.threads = r.threads;
      if (!report_.checked.gate_failed()) here_ = std::make_unique<RankContext>(o);
    }
    if (r.arch.empty()) return;
    const bool known = r.arch.size() >= 5 && r.arch.size() <= 8 && r.arch.starts_with("sm_") &&
                       std::all_of(r.arch.begin() + 3, r.arch.end(),
                                   [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
    if (!known)
      throw Error(cat("--arch is '", r.arch, "'"), "an architecture is sm_ and its number: sm_80, sm_90a",
                  ErrorKind::usage);
    std::string why;
    nvrtc_ = compile::Nvrtc::load(&why);
    if (nvrtc_ == nullptr)
      throw Error(cat("--arch is '", r.arch, "': ", why), "leave --arch out to see the source alone",
                  ErrorKind::unavailable);
    report_.compiler = cat("NVRTC ", nvrtc_->version());
  }

  CompileReport run() {
    RankOptions o;
    o.device = Device::meta(DeviceType::cpu);
    o.variants =
        choose_variants(report_.request.show == CompileShow::model ? "baseline" : "optimized", "").ops;
    RankContext ctx(o);
    RegionCalls calls;
    ctx.add_observer(&calls);
    report_.request.show == CompileShow::attention ? run_attention(ctx, report_.request)
                                                   : run_model(ctx, report_.request);
    ctx.remove_observer(&calls);
    ctx.tape().reset();
    report_.plan_ms = 1e3 * ctx.regions().seconds();
    for (const auto& [key, region] : static_cast<const Compiler&>(ctx.regions()).regions()) {
      for (const auto& [wanted, plan] : region->plans) add(*region, plan, calls.calls[region->name]);
    }
    if (!cache_.why_not_kept().empty()) report_.notes.push_back(cache_.why_not_kept());
    report_.from_cache = cache_.hits();
    report_.compiled = cache_.misses();
    return std::move(report_);
  }

 private:
  void add(const CompiledRegion& region, const RegionPlan& plan, int calls) {
    Cost forward, backward;
    for (const compile::TracedOp& op : region.traced.ops) {
      forward = forward + op.forward;
      backward = backward + op.backward;
    }
    RegionText text{region.name, {}, {}, {}};
    text.graph = graph_text(region.traced.graph);
    text.plan = cat("forward keeps ", kept_text(region.traced, plan), "\n");
    pass(region, "forward", plan.forward, calls, forward.bytes, text);
    pass(region, "backward", plan.backward, calls, backward.bytes, text);
    report_.texts.push_back(std::move(text));
  }

  void pass(const CompiledRegion& region, const char* name, const Program& p, int calls, double ops_bytes,
            RegionText& text) {
    text.plan += cat(name, ":\n");
    const std::size_t first = report_.rows.size();
    for (const compile::Kernel& k : p.kernels) {
      CompiledKernelRow row;
      row.region = region.name;
      row.pass = name;
      row.calls = calls;
      row.kernel = static_cast<int>(report_.rows.size() - first);
      row.ops = k.ops;
      row.bytes = k.bytes;
      row.flops = k.flops;
      row.pass_bytes = p.bytes();
      row.ops_bytes = ops_bytes;
      row.apart_bytes = p.bytes_apart();
      row.why = k.why;
      report_.rows.push_back(std::move(row));
      text.plan += kernel_text(p, k);
    }
    if (here_ && region.traced.computes != DType::f64 && first < report_.rows.size())
      report_.rows[first].measured_ms = measured_pass_ms(*here_, p, region.traced.computes);
    source(region, name, p, first, text);
  }

  void source(const CompiledRegion& region, const char* pass, const Program& p, std::size_t first,
              RegionText& text) {
    if (!report_.request.source && nvrtc_ == nullptr) return;
    std::string name = cat(region.name, "_", pass);
    for (char& c : name)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    std::size_t at = first;
    for (const CudaKernel& k : compile::emit_cuda(p, name)) {
      text.source += k.source;
      CompiledKernelRow& row = report_.rows[at++];
      if (nvrtc_ == nullptr) continue;
      const std::string whole = cat(compile::cuda_prelude(), k.source);
      const auto from = std::chrono::steady_clock::now();
      const auto code = cache_.get({whole, report_.request.arch, report_.compiler},
                                   [&] { return nvrtc_->compile(whole, k.name, report_.request.arch); });
      report_.nvrtc_ms += ms_since(from);
      row.code_bytes = code.size();
    }
  }

  CompileReport report_;
  compile::KernelCache cache_;
  std::unique_ptr<RankContext> here_;
  std::unique_ptr<compile::Nvrtc> nvrtc_;
};

}  // namespace

CompileReport compile_study(const CompileRequest& request) { return Study(request).run(); }

}  // namespace kiln

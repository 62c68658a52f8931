#include "ops/op_list.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "device/backend.h"
#include "device/gpu_info.h"
#include "ops/adamw/adamw.h"
#include "ops/add/add.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/init_weights/init_weights.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/renamed.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/select.h"
#include "ops/sgd/sgd.h"
#include "ops/softmax/softmax.h"
#include "ops/step_scalars/step_scalars.h"
#include "ops/swiglu/swiglu.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

// Where a listing's variants would run.
struct Place {
  DeviceTraits cpu{DeviceType::cpu, 0, cpu_isa_from_environment()};
  DeviceTraits gpu{DeviceType::cuda, 0, CpuIsa::plain};
  std::string no_gpu;                  // why there is none, or empty
  const DeviceTraits* only = nullptr;  // null: every variant on its own kind of device
  bool meta = false;

  Place() { look_for_gpu(0); }
  explicit Place(const Device& device) : meta(device.is_meta()) {
    only = device.target == DeviceType::cuda ? &gpu : &cpu;
    if (meta) {
      gpu = make_meta_backend(DeviceType::cuda)->traits();
    } else if (device.type == DeviceType::cuda) {
      look_for_gpu(device.index);
    }
  }
  Place(const Place&) = delete;  // `only` points into it
  Place& operator=(const Place&) = delete;

  void look_for_gpu(int index) {
    const std::vector<GpuInfo> gpus = list_gpus(&no_gpu);
    for (const GpuInfo& g : gpus) {
      if (g.index == index) gpu.compute_capability = 10 * g.major + g.minor;
    }
    if (!gpus.empty() && gpu.compute_capability == 0) no_gpu = cat("there is no cuda:", index);
  }

  template <class Op>
  std::string reason_against(const Variant<Op>& row) const {
    const DeviceTraits& traits = only ? *only : row.device == DeviceType::cuda ? gpu : cpu;
    if (row.device == DeviceType::cuda && traits.type == DeviceType::cuda && !no_gpu.empty()) return no_gpu;
    return why_not<Op>(row, Op::example(), traits, meta);
  }
};

template <class Op>
OpListing listing(const Place& place) {
  OpListing l{Op::kName, Op::kSummary, {}};
  for (const Variant<Op>& row : Op::rows()) {
    std::string reason = place.reason_against(row);
    const bool available = reason.empty();
    l.variants.push_back({row.name, row.device, available, std::move(reason), row.kernels});
  }
  return l;
}

template <class... Op>
struct Ops {
  static std::vector<OpListing> list(const Place& p) { return {listing<Op>(p)...}; }
  static OpKind kind_of(std::string_view name) {
    OpKind kind = OpKind::elementwise;
    ((name == Op::kName ? void(kind = Op::kKind) : void()), ...);
    return kind;
  }
};

// Every op there is.
using AllOps =
    Ops<AccumulateLossOp, AdamWOp, AddOp, AddRmsNormOp, AttentionOp, BatchedMatmulOp, CastOp, CrossEntropyOp,
        EmbeddingOp, FinishStepScalarsOp, InitWeightsOp, LayerNormOp, LinearOp, LinearCrossEntropyOp,
        LossGradientOp, MaskedSoftmaxOp, MulOp, MulColumnsOp, MulRowsOp, ReluOp, RmsNormOp, RopeOp, RowMeanOp,
        RsqrtOp, ScaleOp, SgdOp, SiluOp, SoftmaxOp, SquareOp, SquareSumOp, SubOp, SwigluOp, WeightedSumOp>;

}  // namespace

std::vector<OpListing> list_ops() { return AllOps::list(Place()); }

std::vector<OpListing> list_ops(const Device& device) { return AllOps::list(Place(device)); }

OpKind kind_of_op(std::string_view name) { return AllOps::kind_of(name); }

const OpListing& find_op(std::span<const OpListing> ops, std::string_view asked) {
  const std::string_view name = current_op(asked);
  std::vector<std::string_view> names;
  for (const OpListing& op : ops) {
    if (op.name == name) return op;
    names.push_back(op.name);
  }
  const std::string near = nearest_name(name, names);
  throw Error(cat("there is no op '", name, "'"),
              near.empty() ? "kiln ops lists them" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

VariantChoice parse_variants(std::string_view text) { return parse_variants(text, list_ops()); }

VariantChoice parse_variants(std::string_view text, std::span<const OpListing> ops) {
  VariantChoice choice;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      throw Error(cat("'", item, "' is not an op and a variant"),
                  "write --variant attention=naive,rms_norm=naive", ErrorKind::usage);
    }
    const std::string_view op = current_op(item.substr(0, equals));
    const std::string_view variant = current_variant(op, item.substr(equals + 1));
    if (variant.empty()) continue;
    std::vector<std::string> names;
    for (const VariantListing& v : find_op(ops, op).variants) names.push_back(v.name);
    if (std::find(names.begin(), names.end(), variant) == names.end())
      throw_no_variant(op, variant, names, {});
    choice.set(op, variant);
  }
  return choice;
}

}  // namespace kiln

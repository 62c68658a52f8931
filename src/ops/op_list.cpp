#include "ops/op_list.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "device/gpu_info.h"
#include "ops/adamw/adamw.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/draw_weights/draw_weights.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/select.h"
#include "ops/step_scalars/step_scalars.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

struct Machine {
  DeviceTraits cpu{DeviceType::cpu, 0};
  DeviceTraits gpu{DeviceType::cuda, 0};
  std::string no_gpu;  // why there is none, or empty

  Machine() {
    const auto gpus = list_gpus(&no_gpu);
    if (!gpus.empty()) gpu.compute_capability = 10 * gpus[0].major + gpus[0].minor;
  }
};

template <class Op>
OpListing listing(const Machine& m) {
  OpListing l{Op::kName, Op::kSummary, {}};
  for (const Variant<Op>& row : Op::rows()) {
    const bool cuda = row.device == DeviceType::cuda;
    std::string reason =
        cuda && !m.no_gpu.empty() ? m.no_gpu : why_not<Op>(row, Op::example(), cuda ? m.gpu : m.cpu, false);
    const bool available = reason.empty();
    l.variants.push_back({row.name, row.device, available, std::move(reason)});
  }
  return l;
}

}  // namespace

std::vector<OpListing> list_ops() {
  const Machine m;
  return {
      listing<AccumulateLossOp>(m), listing<AdamWOp>(m),        listing<AddOp>(m),
      listing<AttentionOp>(m),      listing<CrossEntropyOp>(m), listing<DrawWeightsOp>(m),
      listing<EmbeddingOp>(m),      listing<JudgeStepOp>(m),    listing<LinearOp>(m),
      listing<RmsNormOp>(m),        listing<SquareSumOp>(m),    listing<SwigluOp>(m),
  };
}

VariantChoice parse_variants(std::string_view text) {
  VariantChoice choice;
  const std::vector<OpListing> ops = list_ops();
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      throw Error(cat("'", item, "' is not an op and a variant"),
                  "write --variant attention=naive,rms_norm=naive", ErrorKind::usage);
    }
    const std::string_view op = item.substr(0, equals), variant = item.substr(equals + 1);
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpListing& o) { return o.name == op; });
    if (found == ops.end()) {
      std::vector<std::string_view> names;
      for (const OpListing& o : ops) names.push_back(o.name);
      const std::string near = nearest_name(op, names);
      throw Error(cat("there is no op '", op, "'"),
                  near.empty() ? "kiln ops lists them" : cat("did you mean '", near, "'?"), ErrorKind::usage);
    }
    std::vector<std::string> names;
    for (const VariantListing& v : found->variants) names.push_back(v.name);
    if (std::find(names.begin(), names.end(), variant) == names.end())
      throw_no_variant(op, variant, names, {});
    choice.set(op, variant);
  }
  return choice;
}

}  // namespace kiln

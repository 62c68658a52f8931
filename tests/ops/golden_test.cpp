// Every op of the tape against values PyTorch computed (tests/golden/<op>.json, written by
// tools/make_golden.py): every CPU variant, fp32, forward to 1e-5 and gradients to 1e-4 of the norm.
#include <gtest/gtest.h>

#include <set>

#include "ops/add/add.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/golden_file.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/op_list.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

using K = CaseInput::Kind;
using Arguments = std::span<const CaseArgument>;
using Call = std::function<CaseOutputs(RankContext&, Arguments)>;

// To check one more op: its inputs as the file names them, in the order its call takes them, and the call.
struct GoldenOp {
  const char* op;
  std::vector<std::pair<const char*, K>> inputs;
  Call (*call)(const Json& options);
  bool joins_heads = false;  // the file's [..., H, D] is our [..., H D]
};

void PrintTo(const GoldenOp& g, std::ostream* os) { *os << g.op; }  // for GoogleTest

const std::vector<std::pair<const char*, K>> kX = {{"x", K::activation}},
                                             kPair = {{"a", K::activation}, {"b", K::activation}};

// Calls of a function of one tensor, and of two.
template <Tensor (*F)(RankContext&, const Tensor&, std::string_view)>
Call of_x(const Json&) {
  return [](RankContext& ctx, Arguments in) { return F(ctx, in[0].tensor, {}); };
}

template <Tensor (*F)(RankContext&, const Tensor&, const Tensor&, std::string_view)>
Call of_two(const Json&) {
  return [](RankContext& ctx, Arguments in) { return F(ctx, in[0].tensor, in[1].tensor, {}); };
}

const std::vector<GoldenOp>& golden_ops() {
  static const std::vector<GoldenOp> kOps = {
      {"add", kPair, of_two<add>},
      {"add_rms_norm",
       {{"x", K::activation}, {"residual", K::activation}, {"weight", K::param}},
       [](const Json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           const AddRmsNormResult r = add_rms_norm(ctx, in[0].tensor, in[1].tensor, *in[2].param, eps);
           return CaseOutputs{r.sum, r.normed};  // in the order of the names the file gives them: sum, y
         };
       }},
      {"attention",
       {{"q", K::activation}, {"k", K::activation}, {"v", K::activation}},
       [](const Json& options) -> Call {
         AttentionOptions o;
         o.heads = options.at("heads").get<int64_t>();
         o.kv_heads = options.at("kv_heads").get<int64_t>();
         o.causal = options.at("causal").get<bool>();
         o.scale = options.at("scale").get<float>();
         return [o](RankContext& ctx, Arguments in) {
           return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
         };
       }},
      {"batched_matmul", kPair,
       [](const Json& options) -> Call {
         BatchedMatmulOptions o;
         o.heads = options.at("heads").get<int64_t>();
         o.b_heads = options.at("b_heads").get<int64_t>();
         o.transpose_b = options.at("transpose_b").get<bool>();
         o.y_in_columns = options.at("y_in_columns").get<bool>();
         return [o](RankContext& ctx, Arguments in) {
           return batched_matmul(ctx, in[0].tensor, in[1].tensor, o);
         };
       }},
      {"cross_entropy",
       {{"logits", K::activation}, {"targets", K::ids}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return cross_entropy(ctx, in[0].tensor, in[1].tensor); };
       }},
      {"embedding",
       {{"tokens", K::ids}, {"weight", K::param}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return embedding(ctx, in[0].tensor, *in[1].param); };
       }},
      {"layer_norm",
       {{"x", K::activation}, {"weight", K::param}, {"bias", K::param}},
       [](const Json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           return layer_norm(ctx, in[0].tensor, *in[1].param, *in[2].param, eps);
         };
       }},
      {"linear",
       {{"x", K::activation}, {"weight", K::param}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return linear(ctx, in[0].tensor, *in[1].param); };
       }},
      {"linear_cross_entropy",
       {{"x", K::activation}, {"weight", K::param}, {"targets", K::ids}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) {
           return linear_cross_entropy(ctx, in[0].tensor, *in[1].param, in[2].tensor);
         };
       }},
      {"masked_softmax", kX,
       [](const Json& options) -> Call {
         MaskedSoftmaxOptions o;
         o.scale = options.at("scale").get<float>();
         o.causal = options.at("causal").get<bool>();
         return [o](RankContext& ctx, Arguments in) { return masked_softmax(ctx, in[0].tensor, o); };
       }},
      {"mul", kPair, of_two<mul>},
      {"mul_columns",
       {{"x", K::activation}, {"weight", K::param}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return mul_columns(ctx, in[0].tensor, *in[1].param); };
       }},
      {"mul_rows", {{"x", K::activation}, {"s", K::statistic}}, of_two<mul_rows>},
      {"relu", kX, of_x<relu>},
      {"rms_norm",
       {{"x", K::activation}, {"weight", K::param}},
       [](const Json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           return rms_norm(ctx, in[0].tensor, *in[1].param, eps);
         };
       }},
      {"rope",
       {{"x", K::activation}},
       [](const Json& options) -> Call {
         RopeOptions o;
         o.heads = o.kv_heads = options.at("heads").get<int64_t>();
         o.theta = options.at("theta").get<double>();
         o.offset = options.at("first_position").get<int64_t>();
         return [o](RankContext& ctx, Arguments in) {  // the file has one tensor: it is q, and k a constant
           return rope(ctx, in[0].tensor, in[0].tensor.detach(), o).q;
         };
       },
       true},
      {"row_mean", kX, of_x<row_mean>},
      {"rsqrt", kX,
       [](const Json& options) -> Call {
         return [eps = options.at("eps").get<double>()](RankContext& ctx, Arguments in) {
           return rsqrt(ctx, in[0].tensor, eps);
         };
       }},
      {"scale", kX,
       [](const Json& options) -> Call {
         return [factor = options.at("factor").get<double>()](RankContext& ctx, Arguments in) {
           return scale(ctx, in[0].tensor, factor);
         };
       }},
      {"silu", kX, of_x<silu>},
      {"softmax", kX, of_x<softmax>},
      {"square", kX, of_x<square>},
      {"sub", kPair, of_two<sub>},
      {"swiglu", {{"gate", K::activation}, {"up", K::activation}}, of_two<swiglu>},
      {"weighted_sum",
       {{"x", K::activation}, {"weight", K::param}},
       [](const Json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return weighted_sum(ctx, in[0].tensor, *in[1].param); };
       }},
  };
  return kOps;
}

std::vector<std::string> cpu_variants(std::string_view op) {
  const std::vector<OpListing> ops = list_ops();
  std::vector<std::string> names;
  for (const VariantListing& v : find_op(ops, op).variants) {
    if (v.device == DeviceType::cpu) names.push_back(v.name);
  }
  return names;
}

class Golden : public testing::TestWithParam<GoldenOp> {};

TEST_P(Golden, MatchesPyTorch) {
  const GoldenOp& golden = GetParam();
  for (const Json& page : read_cases(golden.op)) {
    OpCase c{golden.op, page.at("name").text(), {}, golden.call(page.at("options"))};
    CaseData data;
    for (const auto& [name, kind] : golden.inputs) {
      const Json& tensor = page.at("inputs").at(name);
      Shape shape = shape_of(tensor);
      if (golden.joins_heads) {
        Shape joined;
        for (int i = 0; i + 2 < shape.rank(); ++i) joined.push_back(shape[i]);
        joined.push_back(shape[-2] * shape[-1]);
        shape = joined;
      }
      c.inputs.push_back({name, kind, shape});
      data.inputs.push_back(numbers(tensor));
    }
    std::vector<double> expected;
    for (const auto& [output, tensor] : page.at("outputs").items()) {
      const std::vector<double> y = numbers(tensor), dy = numbers(page.at("dout").at(output));
      expected.insert(expected.end(), y.begin(), y.end());
      data.dy.insert(data.dy.end(), dy.begin(), dy.end());
    }
    for (const std::string& variant : cpu_variants(golden.op)) {
      RankOptions options;
      options.threads = 2;
      options.variants.set(golden.op, variant);
      RankContext ctx(options);
      const CaseResult r = run_case(ctx, c, data, DType::f32);
      const std::string what = cat(c.op, " ", c.name, " ", variant);
      // What is between the parts of a composed variant is rounded each time.
      const double floor = variant == "composed" || variant == "compiled" ? 0x1p-20 : 0x1p-23;
      expect_near(r.y, expected, kForward, what, floor);
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        if (c.inputs[i].kind == K::ids) continue;
        const char* name = c.inputs[i].name;
        expect_near(r.grads[i], numbers(page.at("grads").at(name)), kBackward, what + " d" + name, floor);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_ops()),
                         [](const auto& info) { return std::string(info.param.op); });

// An op that is new to `kiln ops` needs a line above, or a test in golden_update_test.cpp.
TEST(GoldenValues, EveryOpHasThem) {
  std::set<std::string_view> checked = {"accumulate_loss", "adamw", "finish_step_scalars", "sgd",
                                        "square_sum"};
  for (const GoldenOp& g : golden_ops()) checked.insert(g.op);
  checked.insert("init_weights");   // its numbers are our own generator's: tests/base/rng_test.cpp
  checked.insert("cast");           // exact: tests/ops/cast_test.cpp
  checked.insert("loss_gradient");  // one product: tests/ops/update_ops_test.cpp
  for (const OpListing& op : list_ops())
    EXPECT_EQ(checked.count(op.name), 1U) << op.name << " has no golden values: tools/make_golden.py";
}

}  // namespace
}  // namespace kiln

// Every op against values PyTorch computed (tests/golden/<op>.json, written by tools/make_golden.py): the
// naive variant and the one a run takes, fp32, forward to 1e-5 and gradients to 1e-4 of the norm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "op_cases/run_case.h"
#include "ops/adamw/adamw.h"
#include "ops/add/add.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/op_list.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sgd/sgd.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

using nlohmann::json;
using K = CaseInput::Kind;
using Arguments = std::span<const CaseArgument>;
using Call = std::function<Tensor(RankContext&, Arguments)>;

constexpr double kForward = 1e-5, kBackward = 1e-4;

// To check one more op: its inputs as the file names them, in the order its call takes them, and the call.
struct GoldenOp {
  const char* op;
  std::vector<std::pair<const char*, K>> inputs;
  Call (*call)(const json& options);
  bool joins_heads = false;  // the file's [..., H, D] is our [..., H D]
};

void PrintTo(const GoldenOp& g, std::ostream* os) { *os << g.op; }  // for GoogleTest

const std::vector<GoldenOp>& golden_ops() {
  static const std::vector<GoldenOp> kOps = {
      {"attention",
       {{"q", K::activation}, {"k", K::activation}, {"v", K::activation}},
       [](const json& options) -> Call {
         AttentionOptions o;
         o.heads = options.at("heads");
         o.kv_heads = options.at("kv_heads");
         o.causal = options.at("causal");
         o.scale = options.at("scale");
         return [o](RankContext& ctx, Arguments in) {
           return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
         };
       }},
      {"cross_entropy",
       {{"logits", K::activation}, {"targets", K::ids}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return cross_entropy(ctx, in[0].tensor, in[1].tensor); };
       }},
      {"embedding",
       {{"tokens", K::ids}, {"weight", K::param}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return embedding(ctx, in[0].tensor, *in[1].param); };
       }},
      {"layer_norm",
       {{"x", K::activation}, {"weight", K::param}, {"bias", K::param}},
       [](const json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           return layer_norm(ctx, in[0].tensor, *in[1].param, *in[2].param, eps);
         };
       }},
      {"linear",
       {{"x", K::activation}, {"weight", K::param}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return linear(ctx, in[0].tensor, *in[1].param); };
       }},
      {"linear_cross_entropy",
       {{"x", K::activation}, {"weight", K::param}, {"targets", K::ids}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) {
           return linear_cross_entropy(ctx, in[0].tensor, *in[1].param, in[2].tensor);
         };
       }},
      {"relu",
       {{"x", K::activation}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return relu(ctx, in[0].tensor); };
       }},
      {"rms_norm",
       {{"x", K::activation}, {"weight", K::param}},
       [](const json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           return rms_norm(ctx, in[0].tensor, *in[1].param, eps);
         };
       }},
      {"rope",
       {{"x", K::activation}},
       [](const json& options) -> Call {
         RopeOptions o;
         o.heads = o.kv_heads = options.at("heads");
         o.theta = options.at("theta");
         o.offset = options.at("first_position");
         return [o](RankContext& ctx, Arguments in) {  // the file has one tensor: it is q, and k a constant
           return rope(ctx, in[0].tensor, in[0].tensor.detach(), o).q;
         };
       },
       true},
      {"silu",
       {{"x", K::activation}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return silu(ctx, in[0].tensor); };
       }},
      {"softmax",
       {{"x", K::activation}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return softmax(ctx, in[0].tensor); };
       }},
      {"swiglu",
       {{"gate", K::activation}, {"up", K::activation}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return swiglu(ctx, in[0].tensor, in[1].tensor); };
       }},
      {"weighted_sum",
       {{"x", K::activation}, {"weight", K::param}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return weighted_sum(ctx, in[0].tensor, *in[1].param); };
       }},
  };
  return kOps;
}

const std::filesystem::path& folder() {
  static const std::filesystem::path kFolder = std::filesystem::path(KILN_TESTS_FOLDER) / "golden";
  return kFolder;
}

// The cases of an op's file. A file that is not there is a failure: a golden value nobody checks is none.
json read_cases(const std::string& op) {
  const std::filesystem::path path = folder() / (op + ".json");
  std::ifstream file(path);
  if (!file) {
    ADD_FAILURE() << path << " is missing: run tools/make_golden.py --only " << op
                  << " where PyTorch is, and commit it";
    return json::array();
  }
  json page = json::parse(file);
  EXPECT_EQ(page.at("op"), op);
  EXPECT_FALSE(page.at("cases").empty()) << path;
  return page.at("cases");
}

std::vector<double> numbers(const json& tensor) { return tensor.at("data").get<std::vector<double>>(); }

Shape shape_of(const json& tensor) {
  Shape s;
  for (const json& n : tensor.at("shape")) s.push_back(n.get<int64_t>());
  return s;
}

// Within `bound` of the golden values' norm. The gradient of x / |x| at a single x is terms of order one that
// cancel to almost nothing; fp32 gives what is left to its spacing at one, and no better.
void expect_near(const std::vector<double>& got, const json& golden, double bound, const std::string& what) {
  const std::vector<double> expected = numbers(golden);
  double norm = 0;
  for (double v : expected) norm += v * v;
  const double relative = relative_error(got, expected);
  const double distance = norm == 0 ? relative : relative * std::sqrt(norm);
  EXPECT_LE(distance, bound * std::sqrt(norm) + 0x1p-23) << what << ": relative error " << relative;
}

#define KILN_NEEDS_GOLDEN_FILES()         \
  if (!std::filesystem::exists(folder())) \
  GTEST_SKIP() << folder() << " is absent: tools/make_golden.py writes it where PyTorch is"

bool has_naive(std::string_view op) {
  const std::vector<OpListing> ops = list_ops();
  const auto& rows = find_op(ops, op).variants;
  return std::any_of(rows.begin(), rows.end(), [](const VariantListing& v) { return v.name == "naive"; });
}

class Golden : public testing::TestWithParam<GoldenOp> {};

TEST_P(Golden, MatchesPyTorch) {
  KILN_NEEDS_GOLDEN_FILES();
  const GoldenOp& golden = GetParam();
  for (const json& page : read_cases(golden.op)) {
    OpCase c{golden.op, page.at("name"), {}, golden.call(page.at("options"))};
    CaseData data;
    for (const auto& [name, kind] : golden.inputs) {
      const json& tensor = page.at("inputs").at(name);
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
    const std::string output = page.at("outputs").begin().key();
    data.dy = numbers(page.at("dout").at(output));
    for (const char* variant : {has_naive(golden.op) ? "naive" : "composed", ""}) {
      RankOptions options;
      options.threads = 2;
      if (*variant != '\0') options.variants.set(golden.op, variant);
      RankContext ctx(options);
      const CaseResult r = run_case(ctx, c, data, DType::f32);
      const std::string what = cat(c.op, " ", c.name, " ", *variant ? variant : "default");
      expect_near(r.y, page.at("outputs").at(output), kForward, what);
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        if (c.inputs[i].kind == K::ids) continue;
        const char* name = c.inputs[i].name;
        expect_near(r.grads[i], page.at("grads").at(name), kBackward, what + " d" + name);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_ops()),
                         [](const auto& info) { return std::string(info.param.op); });

// Two outputs: the gradient that comes in is that of sum . dsum + y . dy.
TEST(GoldenTwoOutputs, AddRmsNorm) {
  KILN_NEEDS_GOLDEN_FILES();
  for (const json& page : read_cases("add_rms_norm")) {
    for (const char* variant : {"naive", "fused", "composed", ""}) {
      RankContext ctx;
      auto upload = [&](const json& tensor) {
        Tensor t = ctx.empty(shape_of(tensor), DType::f32);
        ctx.upload(t, tensor.at("data").get<std::vector<float>>().data());
        return t;
      };
      auto download = [&](const Tensor& t) {
        std::vector<float> v(static_cast<std::size_t>(t.numel()));
        ctx.download(v.data(), t);
        return std::vector<double>(v.begin(), v.end());
      };
      const json &inputs = page.at("inputs"), &outputs = page.at("outputs"), &dout = page.at("dout");
      const Tensor x = ctx.tape().watch(upload(inputs.at("x"))),
                   residual = ctx.tape().watch(upload(inputs.at("residual")));
      Param weight;
      weight.name = "weight";
      weight.shape = shape_of(inputs.at("weight"));
      weight.value = upload(inputs.at("weight"));
      weight.grad = ctx.zeros(weight.shape, DType::f32);
      const AddRmsNormResult r =
          add_rms_norm(ctx, x, residual, weight, page.at("options").at("eps"), variant);
      const std::string what = cat(page.at("name"), " ", variant);
      expect_near(download(r.sum), outputs.at("sum"), kForward, what + " sum");
      expect_near(download(r.normed), outputs.at("y"), kForward, what + " y");
      const Tensor total =
          add(ctx, mul(ctx, r.sum, upload(dout.at("sum"))), mul(ctx, r.normed, upload(dout.at("y"))));
      Tensor ones = ctx.empty(total.shape(), DType::f32);
      ctx.upload(ones, std::vector<float>(static_cast<std::size_t>(ones.numel()), 1.0f).data());
      ctx.tape().backward(total, ones);
      const json& grads = page.at("grads");
      expect_near(download(ctx.tape().grad(x)), grads.at("x"), kBackward, what + " dx");
      expect_near(download(ctx.tape().grad(residual)), grads.at("residual"), kBackward, what + " dresidual");
      expect_near(download(weight.grad), grads.at("weight"), kBackward, what + " dweight");
    }
  }
}

// An optimizer's file: the first weights, the gradient of every step, the weights after every step. `update`
// gets the weights, the gradient, the step's record and two zeroed states to keep.
using Update = void (*)(RankContext&, const json& options, const Tensor& weight, const Tensor& grad,
                        const Tensor& scalars, const Tensor (&state)[2], std::string_view variant);

void expect_golden_updates(const char* op, Update update) {
  for (const json& page : read_cases(op)) {
    const json &o = page.at("options"), &inputs = page.at("inputs");
    for (const char* variant : {"naive", ""}) {
      RankContext ctx;
      auto upload = [&](const json& tensor) {
        const auto values = tensor.at("data").get<std::vector<float>>();
        Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::f32);
        ctx.upload(t, values.data());
        return t;
      };
      const Tensor w = upload(inputs.at("weight")), scalars = make_step_scalars(ctx);
      const Tensor state[2] = {ctx.zeros(w.shape(), DType::f32), ctx.zeros(w.shape(), DType::f32)};
      for (int step = 1; step <= o.at("steps").get<int>(); ++step) {
        StepScalars s;
        s.lr = o.at("lr");
        s.step = step;
        s.beta1_power = std::pow(o.value("beta1", 0.0), step);
        s.beta2_power = std::pow(o.value("beta2", 0.0), step);
        ctx.upload(scalars, &s);
        update(ctx, o, w, upload(inputs.at(cat("grad", step))), scalars, state, variant);
        std::vector<float> got(static_cast<std::size_t>(w.numel()));
        ctx.download(got.data(), w);
        expect_near({got.begin(), got.end()}, page.at("outputs").at(cat("weight", step)), kForward,
                    cat(page.at("name"), " step ", step, " ", variant));
      }
    }
  }
}

TEST(GoldenUpdate, AdamW) {
  KILN_NEEDS_GOLDEN_FILES();
  expect_golden_updates(
      "adamw", [](RankContext& ctx, const json& o, const Tensor& w, const Tensor& g, const Tensor& scalars,
                  const Tensor(&state)[2], std::string_view variant) {
        adamw(ctx, {w, Tensor(), g, state[0], state[1]}, scalars, o.at("beta1"), o.at("beta2"), o.at("eps"),
              o.at("decay"), variant);
      });
}

TEST(GoldenUpdate, Sgd) {
  KILN_NEEDS_GOLDEN_FILES();
  expect_golden_updates("sgd", [](RankContext& ctx, const json& o, const Tensor& w, const Tensor& g,
                                  const Tensor& scalars, const Tensor(&state)[2], std::string_view variant) {
    const double momentum = o.at("momentum");
    sgd(ctx, w, Tensor(), g, momentum == 0 ? Tensor() : state[0], scalars, momentum, o.at("decay"), variant);
  });
}

}  // namespace
}  // namespace kiln

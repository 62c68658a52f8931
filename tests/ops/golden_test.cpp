// Every op against values PyTorch computed (tests/golden/<op>.json, written by tools/make_golden.py): the
// naive variant and the one a run takes, fp32, forward to 1e-5 and gradients to 1e-4 of the norm.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "op_cases/run_case.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"

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
      {"linear",
       {{"x", K::activation}, {"weight", K::param}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return linear(ctx, in[0].tensor, *in[1].param); };
       }},
      {"rms_norm",
       {{"x", K::activation}, {"weight", K::param}},
       [](const json& options) -> Call {
         return [eps = options.at("eps").get<float>()](RankContext& ctx, Arguments in) {
           return rms_norm(ctx, in[0].tensor, *in[1].param, eps);
         };
       }},
      {"swiglu",
       {{"gate", K::activation}, {"up", K::activation}},
       [](const json&) -> Call {
         return [](RankContext& ctx, Arguments in) { return swiglu(ctx, in[0].tensor, in[1].tensor); };
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

class Golden : public testing::TestWithParam<GoldenOp> {};

TEST_P(Golden, MatchesPyTorch) {
  KILN_NEEDS_GOLDEN_FILES();
  const GoldenOp& golden = GetParam();
  for (const json& page : read_cases(golden.op)) {
    OpCase c{golden.op, page.at("name"), {}, golden.call(page.at("options"))};
    CaseData data;
    for (const auto& [name, kind] : golden.inputs) {
      const json& tensor = page.at("inputs").at(name);
      c.inputs.push_back({name, kind, shape_of(tensor)});
      data.inputs.push_back(numbers(tensor));
    }
    const std::string output = page.at("outputs").begin().key();
    data.dy = numbers(page.at("dout").at(output));
    for (const char* variant : {"naive", ""}) {
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

TEST(GoldenUpdate, AdamW) {
  KILN_NEEDS_GOLDEN_FILES();
  for (const json& page : read_cases("adamw")) {
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
      const Tensor m = ctx.zeros(w.shape(), DType::f32), v = ctx.zeros(w.shape(), DType::f32);
      const double beta1 = o.at("beta1"), beta2 = o.at("beta2");
      for (int step = 1; step <= o.at("steps").get<int>(); ++step) {
        StepScalars s;
        s.lr = o.at("lr");
        s.step = step;
        s.beta1_power = std::pow(beta1, step);
        s.beta2_power = std::pow(beta2, step);
        ctx.upload(scalars, &s);
        const Tensor grad = upload(inputs.at(cat("grad", step)));
        adamw(ctx, {w, Tensor(), grad, m, v}, scalars, beta1, beta2, o.at("eps"), o.at("decay"), variant);
        std::vector<float> got(static_cast<std::size_t>(w.numel()));
        ctx.download(got.data(), w);
        expect_near({got.begin(), got.end()}, page.at("outputs").at(cat("weight", step)), kForward,
                    cat(page.at("name"), " step ", step, " ", variant));
      }
    }
  }
}

}  // namespace
}  // namespace kiln

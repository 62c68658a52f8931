#include "ops/cases/bench_case.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"

namespace kiln {

namespace {

using K = CaseInput::Kind;
using Arguments = std::span<const CaseArgument>;

void add_unary_cases(std::vector<OpCase>& cases) {
  auto unary = [&](const char* op, Tensor (*call)(RankContext&, Arguments), float scale = 1) {
    auto one = [&](std::string name, const Shape& x, int64_t padding = 0) {
      cases.push_back({op, std::move(name), {{"x", K::activation, x, scale, padding}}, call});
    };
    one("1x1", {1, 1});
    one("3x63", {3, 63});
    one("2x5x65_strided", {2, 5, 65}, 3);
    one("0x8", {0, 8});
    one("129x127", {129, 127});
  };
  unary("silu", [](RankContext& ctx, Arguments in) { return silu(ctx, in[0].tensor); }, 3);
  unary("square", [](RankContext& ctx, Arguments in) { return square(ctx, in[0].tensor); });
  unary("rsqrt",  // of something positive
        [](RankContext& ctx, Arguments in) { return rsqrt(ctx, square(ctx, in[0].tensor), 0.25); });
  unary("relu", [](RankContext& ctx, Arguments in) { return relu(ctx, in[0].tensor); });
  unary("scale", [](RankContext& ctx, Arguments in) { return scale(ctx, in[0].tensor, -0.375); });
}

void add_binary_cases(std::vector<OpCase>& cases) {
  auto binary = [&](const char* op, Tensor (*call)(RankContext&, Arguments)) {
    auto one = [&](std::string name, const Shape& shape, int64_t padding = 0) {
      cases.push_back({op,
                       std::move(name),
                       {{"a", K::activation, shape, 1, padding}, {"b", K::activation, shape}},
                       call});
    };
    one("1x1", {1, 1});
    one("3x63", {3, 63});
    one("2x5x65_strided", {2, 5, 65}, 3);
    one("0x8", {0, 8});
    one("7x1031", {7, 1031});
  };
  binary("mul", [](RankContext& ctx, Arguments in) { return mul(ctx, in[0].tensor, in[1].tensor); });
  binary("sub", [](RankContext& ctx, Arguments in) { return sub(ctx, in[0].tensor, in[1].tensor); });
  cases.push_back({"mul", "by_itself", {{"a", K::activation, {4, 32}}}, [](RankContext& ctx, Arguments in) {
                     return mul(ctx, in[0].tensor, in[0].tensor);
                   }});
}

void add_broadcast_cases(std::vector<OpCase>& cases) {
  auto broadcast = [&](const std::string& name, const Shape& x, int64_t padding = 0) {
    cases.push_back(
        {"row_mean", name, {{"x", K::activation, x, 1, padding}}, [](RankContext& ctx, Arguments in) {
           return row_mean(ctx, in[0].tensor);
         }});
    cases.push_back(
        {"mul_rows",
         name,
         {{"x", K::activation, x, 1, padding}, {"s", K::statistic, row_shape(x)}},
         [](RankContext& ctx, Arguments in) { return mul_rows(ctx, in[0].tensor, in[1].tensor); }});
    cases.push_back(
        {"mul_columns",
         name,
         {{"x", K::activation, x, 1, padding}, {"weight", K::param, {x.last()}}},
         [](RankContext& ctx, Arguments in) { return mul_columns(ctx, in[0].tensor, *in[1].param); }});
  };
  broadcast("1x1", {1, 1});
  broadcast("3x63", {3, 63});
  broadcast("2x5x65_strided", {2, 5, 65}, 3);
  broadcast("0x8", {0, 8});
  broadcast("257x127", {257, 127});
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  add_unary_cases(cases);
  add_binary_cases(cases);
  add_broadcast_cases(cases);
  return cases;
}

std::vector<OpBench> elementwise_benches() {
  using Call = Tensor (*)(RankContext&, std::span<const CaseArgument>);
  std::vector<OpBench> benches;
  struct Input {
    const char* name;
    K kind;
    bool absolute = false;
  };
  // Parameters are one row long, statistics one column.
  auto one = [&](const char* op, const std::vector<Input>& inputs, Call call) {
    OpBench b{op, {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [=](const BenchShape& s) {
                OpCase c{op, s.str(), {}, call};
                for (const Input& in : inputs) {
                  CaseInput input{in.name, in.kind, {s["rows"], s["cols"]}};
                  if (in.kind == K::param) input.shape = {s["cols"]};
                  if (in.kind == K::statistic) input.shape = {s["rows"]};
                  input.absolute = in.absolute;
                  c.inputs.push_back(input);
                }
                return c;
              }};
    benches.push_back(std::move(b));
  };
  const Input x{"x", K::activation}, a{"a", K::activation}, b{"b", K::activation};
  one("mul", {a, b}, [](RankContext& ctx, Arguments in) { return mul(ctx, in[0].tensor, in[1].tensor); });
  one("sub", {a, b}, [](RankContext& ctx, Arguments in) { return sub(ctx, in[0].tensor, in[1].tensor); });
  one("relu", {x}, [](RankContext& ctx, Arguments in) { return relu(ctx, in[0].tensor); });
  one("silu", {x}, [](RankContext& ctx, Arguments in) { return silu(ctx, in[0].tensor); });
  one("square", {x}, [](RankContext& ctx, Arguments in) { return square(ctx, in[0].tensor); });
  one("scale", {x}, [](RankContext& ctx, Arguments in) { return scale(ctx, in[0].tensor, 0.5); });
  one("rsqrt", {{"x", K::activation, true}},
      [](RankContext& ctx, Arguments in) { return rsqrt(ctx, in[0].tensor, 0.25); });
  one("row_mean", {x}, [](RankContext& ctx, Arguments in) { return row_mean(ctx, in[0].tensor); });
  one("mul_rows", {x, {"s", K::statistic}},
      [](RankContext& ctx, Arguments in) { return mul_rows(ctx, in[0].tensor, in[1].tensor); });
  one("mul_columns", {x, {"weight", K::param}},
      [](RankContext& ctx, Arguments in) { return mul_columns(ctx, in[0].tensor, *in[1].param); });
  return benches;
}

}  // namespace kiln

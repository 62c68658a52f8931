#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "studies/ceilings.h"
#include "studies/op/op.h"
#include "kiln/bench_pages.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"

namespace kiln::cli {
namespace {

BenchOpRequest small_request(const char* op) {
  BenchOpRequest r{.bench = find_op_bench(op),
                   .shapes = {},
                   .dtypes = {DType::f32},
                   .variants = {},
                   .forms = {},
                   .device = Device::cpu()};
  BenchShape shape = r.bench.shapes.front();
  for (const auto& [key, value] : r.bench.shapes.front().all()) shape.set(key, std::min<int64_t>(value, 6));
  r.shapes = {shape};
  r.forms = r.bench.forms;
  r.threads = 2;
  return r;
}

TEST(BenchShapes, AreReadByName) {
  const OpBench bench = find_op_bench("matmul");
  EXPECT_EQ(bench.op, "linear");
  EXPECT_EQ(parse_bench_shape(bench, "out=7,rows=3").str(), "rows=3,in=512,out=7");
  for (const char* wrong : {"", "rows", "=3", "rows=", "rows=0", "rows=-1", "rows=1.5", "rows=99999999999",
                            "row=3", "rows=3,,in=4", "rows=3,rows=4"}) {
    try {
      parse_bench_shape(bench, wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << wrong;
      EXPECT_FALSE(error.hint().empty()) << wrong;
    }
  }
  EXPECT_EQ(parse_bench_shape(find_op_bench("attention"), "kv_heads=0,full=1")["full"], 1);
  EXPECT_THROW(find_op_bench("rmsnorm"), Error);
}

// Every bench makes cases that run, on the device and without one, at its own sizes and in the check.
TEST(Benches, EveryOneRuns) {
  for (const OpBench& bench : all_op_benches()) {
    SCOPED_TRACE(bench.op);
    RankOptions meta_options;
    meta_options.device = Device::meta();
    for (const BenchShape& shape : bench.shapes) {
      RankContext meta(meta_options);
      const OpCase c = bench.make(shape);
      EXPECT_EQ(c.op, bench.op);
      CaseData nothing;
      nothing.inputs.resize(c.inputs.size());
      const bool backward = bench.forms.size() > 1;
      EXPECT_GT(run_case(meta, c, nothing, DType::bf16, {.backward = backward}).memory.peak_total, 0U);
    }
    const BenchOpRequest small = small_request(bench.op.c_str());
    const OpCase c = bench.make(bench.check_shape(small.shapes[0]));
    RankContext ctx;
    for (DType dtype : {DType::f32, DType::bf16}) {
      const CaseResult r =
          run_case(ctx, c, draw_case(c, dtype, 1), dtype, {.backward = bench.forms.size() > 1});
      EXPECT_FALSE(r.y.empty());
      for (double v : r.y) EXPECT_EQ(v, v);
    }
  }
}

TEST(BenchOp, ChecksThenTimesAndStatesABound) {
  int told = 0;
  const BenchReport report = bench_op(small_request("linear"), [&](const std::string&) { ++told; });
  EXPECT_GT(told, 2);
  EXPECT_TRUE(report.any_timed());
  EXPECT_FALSE(report.any_wrong());
  const nlohmann::json page = nlohmann::json::parse(bench_json(report));
  ASSERT_GE(page.at("rows").size(), 3U);
  std::vector<std::string> passes;
  for (const auto& row : page.at("rows")) {
    if (row.at("variant") != "naive") continue;
    passes.push_back(row.at("pass"));
    EXPECT_EQ(row.at("gate"), "passed");
    EXPECT_EQ(row.at("flops"), 2.0 * 6 * 6 * 6) << "each form is one product";
    EXPECT_GT(row.at("achieved"), 0);
    EXPECT_GT(row.at("ceiling"), 0);
    EXPECT_NEAR(row.at("ratio").get<double>(),
                row.at("achieved").get<double>() / row.at("ceiling").get<double>(), 1e-9);
    EXPECT_EQ(row.at("speedup_over_naive"), 1);
    EXPECT_GE(row.at("samples"), 10);
  }
  EXPECT_EQ(passes, (std::vector<std::string>{"forward", "dgrad", "wgrad"}));
  const auto line = nlohmann::json::parse(result_lines(report, "bench op linear").at(0));
  for (const char* key :
       {"command", "op",   "variant",  "device", "dtype", "shape",      "warmups", "samples",
        "mean",    "std",  "p50",      "p95",    "min",   "bytes",      "flops",   "ceiling",
        "ratio",   "gate", "build_id", "host",   "time",  "raw_samples"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

// Both outputs get a gradient, so that backward is all of it.
TEST(BenchOp, OpsWithTwoOutputsAreTimedBothWays) {
  for (const char* op : {"rope", "add_rms_norm"}) {
    BenchOpRequest request = small_request(op);
    request.variants = {"naive"};
    const BenchReport report = bench_op(request, [](const std::string&) {});
    ASSERT_FALSE(report.any_wrong());
    std::vector<std::string> passes;
    for (const BenchRow& r : report.rows) {
      if (r.status != BenchRow::Status::timed) continue;
      passes.push_back(r.form);
      EXPECT_GT(r.cost.bytes, 0);
    }
    EXPECT_EQ(passes, (std::vector<std::string>{"forward", "backward"})) << op;
  }
}

// Small tensors take turns on a GPU, so that none is still in the cache: all their forwards stand on one
// tape.
TEST(CudaBenchOp, BackwardOfTensorsThatTakeTurnsIsTimed) {
  KILN_NEEDS_GPU();
  BenchOpRequest request = small_request("rms_norm");
  request.device = Device::cuda();
  const BenchReport report = bench_op(request, [](const std::string&) {});
  int timed = 0;
  for (const BenchRow& r : report.rows) timed += r.status == BenchRow::Status::timed && r.form == "backward";
  EXPECT_GT(timed, 0);
}

TEST(BenchOp, ACheckOnCutDownSizesSaysSo) {
  BenchReport report;
  report.op = "add";
  report.device = "cpu";
  BenchRow row;
  row.variant = "fused";
  row.device = "cpu";
  row.form = "forward";
  row.timing = summarize({1e-3, 1e-3});
  row.shape = row.checked_at = BenchShape{{"rows", 8192}, {"cols", 16}};
  report.rows = {row};
  auto json_row = [&] { return nlohmann::json::parse(bench_json(report)).at("rows").at(0); };
  EXPECT_NE(bench_text(report).find("this size"), std::string::npos) << bench_text(report);
  EXPECT_EQ(bench_text(report).find("not at this shape"), std::string::npos) << bench_text(report);
  EXPECT_TRUE(json_row().at("checked_at_full_shape"));
  report.rows[0].checked_at.set("rows", 64);
  EXPECT_NE(bench_text(report).find(" rows=64 "), std::string::npos) << bench_text(report);
  EXPECT_NE(bench_text(report).find("not at this shape"), std::string::npos) << bench_text(report);
  EXPECT_NE(bench_markdown(report).find("| rows=64 |"), std::string::npos) << bench_markdown(report);
  EXPECT_NE(bench_csv(report).find("\"rows=64,cols=16\""), std::string::npos) << bench_csv(report);
  EXPECT_FALSE(json_row().at("checked_at_full_shape"));
  EXPECT_EQ(json_row().at("checked_shape").at("rows"), 64);
}

TEST(BenchOp, AShapeWithoutRoomIsARow) {
  BenchOpRequest request = small_request("rms_norm");
  request.shapes.push_back(parse_bench_shape(request.bench, "rows=2147483648,cols=2147483648"));
  request.variants = {"naive"};
  const BenchReport report = bench_op(request, [](const std::string&) {});
  EXPECT_TRUE(report.any_timed());
  const nlohmann::json page = nlohmann::json::parse(bench_json(report));
  ASSERT_FALSE(page.at("not_timed").empty());  // naive of another device is there too
  EXPECT_EQ(page.at("not_timed").back().at("gate"), "no memory");
  EXPECT_NE(bench_text(report).find("OOM"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(result_lines(report, "bench op rms_norm").back()).at("gate"), "no memory");
}

TEST(BenchOp, PredictedAndFloorComeFromTheCosts) {
  const BenchReport report = bench_op(small_request("swiglu"), [](const std::string&) {});
  // Ceilings of this machine are what they are; these say that the bytes decide.
  const Ceilings ceilings{.copy = 1e9, .flops = {{DType::f32, {"fma", 1e15}}}};
  double composed = 0, fused = 0;
  for (const BenchRow& r : report.rows) {
    if (r.status != BenchRow::Status::timed || r.form != "forward") continue;
    EXPECT_LE(r.floor, r.predicted) << r.variant;
    EXPECT_NEAR(r.of_roofline(), r.floor / r.timing.p50, 1e-12);
    BenchRow bound = r;
    set_bound(bound, ceilings, Device::cpu());
    EXPECT_EQ(bound.predicted, r.cost.bytes / 1e9) << r.variant;
    EXPECT_LE(bound.floor, bound.predicted) << r.variant;
    (r.variant == "composed" ? composed : fused) = bound.predicted;
    EXPECT_EQ(r.versus.has_value(), r.variant != "naive");
  }
  EXPECT_GT(composed, fused) << "its parts move more";
  const nlohmann::json page = nlohmann::json::parse(bench_json(report));
  ASSERT_EQ(page.at("ladders").size(), 1U);
  EXPECT_EQ(page.at("ladders").at(0).at("rungs").size(), 3U);
  EXPECT_NE(bench_latex(report).find("\\begin{tabular}"), std::string::npos);
}

TEST(BenchOp, AWrongRowIsShownAndNotStored) {
  BenchReport report;
  report.op = "add";
  BenchRow row;
  row.status = BenchRow::Status::wrong;
  row.variant = "fused";
  row.device = "cpu";
  row.reason = "y is off by 1.0e-01, 1.0e-06 is allowed";
  report.rows = {row};
  EXPECT_TRUE(report.any_wrong());
  EXPECT_NE(bench_text(report).find("WRONG    fused (cpu): y is off"), std::string::npos)
      << bench_text(report);
  EXPECT_TRUE(result_lines(report, "bench op add").empty());
  EXPECT_EQ(nlohmann::json::parse(bench_json(report)).at("not_timed").at(0).at("gate"), "failed");
}

}  // namespace
}  // namespace kiln::cli

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/json.h"
#include "ops/cases/run_case.h"
#include "studies/ceilings.h"
#include "studies/op/op.h"
#include "studies/op/render.h"
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

std::string text(const BenchReport& report) { return written(op_page(report), PageFormat::text); }

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
    const OpCase c = bench.make(small.shapes[0]);
    RankContext ctx;
    for (DType dtype : {DType::f32, DType::bf16}) {
      const CaseResult r =
          run_case(ctx, c, draw_case(c, dtype, 1), dtype, {.backward = bench.forms.size() > 1});
      EXPECT_FALSE(r.y.empty());
      for (double v : r.y) EXPECT_EQ(v, v);
    }
  }
}

TEST(BenchOp, VariantsAreTimedThereAndBack) {
  BenchOpRequest request = small_request("swiglu");
  request.forms = {request.forms.front()};
  std::vector<std::string> told;
  const BenchReport report = bench_op(request, [&](const std::string& text) { told.push_back(text); });
  std::vector<std::string> names, seen;
  for (const BenchRow& r : report.rows) {
    if (!r.ok()) continue;
    names.push_back(r.variant);
    EXPECT_GE(r.timing.samples.size(), 10u) << "as many as of one visit";
  }
  ASSERT_GE(names.size(), 2u);
  for (const std::string& text : told) {
    if (text.find("checking") != std::string::npos || text.find(": ") == std::string::npos) continue;
    for (const std::string& name : names)
      if (text.ends_with(cat(": ", name, " ", request.forms[0].name))) seen.push_back(name);
  }
  std::vector<std::string> expected = names;
  expected.insert(expected.end(), names.rbegin(), names.rend());
  EXPECT_EQ(seen, expected);
}

TEST(BenchOp, ChecksThenTimesAndStatesABound) {
  int told = 0;
  const BenchReport report = bench_op(small_request("linear"), [&](const std::string&) { ++told; });
  EXPECT_GT(told, 2);
  EXPECT_TRUE(report.any_timed());
  EXPECT_FALSE(report.any_wrong());
  const Json page = op_page(report).json;
  ASSERT_GE(page.at("rows").size(), 3U);
  std::vector<std::string> passes;
  for (const auto& row : page.at("rows")) {
    if (row.at("variant") != "naive") continue;
    passes.push_back(row.at("pass").text());
    EXPECT_EQ(row.at("gate"), "passed");
    EXPECT_EQ(row.at("flops"), 2.0 * 6 * 6 * 6) << "each form is one matmul";
    EXPECT_GT(row.at("achieved"), 0);
    EXPECT_GT(row.at("ceiling"), 0);
    EXPECT_NEAR(row.at("ratio").get<double>(),
                row.at("achieved").get<double>() / row.at("ceiling").get<double>(), 1e-9);
    EXPECT_EQ(row.at("speedup_over_naive"), 1);
    EXPECT_GE(row.at("samples"), 10);
  }
  EXPECT_EQ(passes, (std::vector<std::string>{"forward", "dgrad", "wgrad"}));
  const auto line = Json::parse(op_result_lines(report, "bench op linear").at(0));
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
      if (!r.ok()) continue;
      passes.push_back(r.form);
      EXPECT_GT(r.cost.bytes, 0);
    }
    EXPECT_EQ(passes, (std::vector<std::string>{"forward", "backward"})) << op;
  }
}

// Small tensors alternate on a GPU, so that none is still in the cache: all their forwards are on one
// tape.
TEST(CudaBenchOp, BackwardOfAlternatingTensorsIsTimed) {
  KILN_NEEDS_GPU();
  BenchOpRequest request = small_request("rms_norm");
  request.device = Device::cuda();
  const BenchReport report = bench_op(request, [](const std::string&) {});
  int timed = 0;
  for (const BenchRow& r : report.rows) timed += r.ok() && r.form == "backward";
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
  row.shape = BenchShape{{"rows", 8192}, {"cols", 16}};
  row.checked_rows = row.all_rows = 8192;
  report.rows = {row};
  auto json_row = [&] { return Json(op_page(report).json.at("rows").at(0)); };
  EXPECT_NE(text(report).find(" all "), std::string::npos) << text(report);
  report.rows[0].checked_rows = 48;
  EXPECT_NE(text(report).find(" 48 of 8192 "), std::string::npos) << text(report);
  EXPECT_NE(written(op_page(report), PageFormat::markdown).find("| 48 of 8192 |"), std::string::npos)
      << written(op_page(report), PageFormat::markdown);
  EXPECT_EQ(json_row().at("checked_rows"), 48);
  EXPECT_EQ(json_row().at("all_rows"), 8192);
}

TEST(BenchOp, AShapeWithoutMemoryIsARow) {
  BenchOpRequest request = small_request("rms_norm");
  request.shapes.push_back(parse_bench_shape(request.bench, "rows=2147483648,cols=2147483648"));
  request.variants = {"naive"};
  const BenchReport report = bench_op(request, [](const std::string&) {});
  EXPECT_TRUE(report.any_timed());
  const Json page = op_page(report).json;
  ASSERT_FALSE(page.at("not_timed").empty());  // naive of another device is there too
  EXPECT_EQ(page.at("not_timed").back().at("status"), "oom");
  EXPECT_NE(text(report).find("OOM"), std::string::npos);
  EXPECT_EQ(Json::parse(op_result_lines(report, "bench op rms_norm").back()).at("status"), "oom");
}

// Of what a variant does not take there is no question whether it fits in memory.
TEST(BenchOp, ADtypeThatAVariantDoesNotTakeIsUnsupportedAndNotOom) {
  BenchOpRequest request = small_request("attention");
  request.variants = {"flash", "naive"};
  request.dtypes = {DType::f64};
  const BenchReport report = bench_op(request, [](const std::string&) {});
  const auto flash = std::find_if(report.rows.begin(), report.rows.end(), [](const BenchRow& r) {
    return r.variant == "flash" && r.device == "cpu";
  });
  ASSERT_NE(flash, report.rows.end());
  EXPECT_EQ(flash->status, RowStatus::unsupported) << flash->reason;
  EXPECT_FALSE(flash->reason.empty());
  EXPECT_TRUE(report.any_timed());
  const std::string page = text(report);
  EXPECT_NE(page.find("unsupported: flash (cpu)"), std::string::npos) << page;
  EXPECT_EQ(page.find("OOM"), std::string::npos) << page;
  const std::vector<std::string> lines = op_result_lines(report, "bench op attention");
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    const Json row = Json::parse(line);
    return row.at("status") == "unsupported" && row.at("schema") == kRowSchema;
  }));
}

TEST(BenchOp, RooflinesComeFromTheCosts) {
  const BenchReport report = bench_op(small_request("swiglu"), [](const std::string&) {});
  // Ceilings of this machine are what they are; these say that the bytes decide.
  const Ceilings ceilings{.copy = 1e9, .flops = {{DType::f32, {"fma", 1e15}}}};
  double composed = 0, fused = 0;
  for (const BenchRow& r : report.rows) {
    if (!r.ok() || r.form != "forward") continue;
    EXPECT_LE(r.roofline, r.own_roofline) << r.variant;
    EXPECT_NEAR(r.of_roofline(), r.roofline / r.timing.p50, 1e-12);
    BenchRow bound = r;
    set_bound(bound, ceilings, Device::cpu());
    EXPECT_EQ(bound.own_roofline, r.cost.bytes / 1e9) << r.variant;
    EXPECT_LE(bound.roofline, bound.own_roofline) << r.variant;
    (r.variant == "composed" ? composed : fused) = bound.own_roofline;
    EXPECT_EQ(r.versus.has_value(), r.variant != "naive");
  }
  EXPECT_GT(composed, fused) << "its parts move more";
  const Json page = op_page(report).json;
  ASSERT_EQ(page.at("ladders").size(), 1U);
  EXPECT_EQ(page.at("ladders").at(0).at("rungs").size(), 3U);
  EXPECT_NE(written(op_page(report), PageFormat::latex).find("\\begin{tabular}"), std::string::npos);
}

TEST(BenchOp, AWrongRowIsShownAndNotStored) {
  BenchReport report;
  report.op = "add";
  BenchRow row;
  row.variant = "fused";
  row.device = "cpu";
  row.shape = BenchShape{{"rows", 4}};
  row.fail_gate("y is off by 1.0e-01, 1.0e-06 is allowed");
  report.rows = {row};
  EXPECT_TRUE(report.any_wrong());
  EXPECT_NE(text(report).find("WRONG: fused (cpu) rows=4 fp32: y is off"), std::string::npos) << text(report);
  EXPECT_TRUE(op_result_lines(report, "bench op add").empty());
  EXPECT_EQ(op_page(report).json.at("not_timed").at(0).at("gate"), "failed");
}

}  // namespace
}  // namespace kiln::cli

// The pages of `kiln residuals`: what they say comes from the rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "kiln/command_line.h"
#include "studies/residuals/render.h"

namespace kiln::cli {
namespace {

ResidualsOpRequest norm_request() {
  ResidualsOpRequest r;
  r.bench = find_op_bench("rms_norm");
  r.shape = parse_residual_shape(r.bench, "4,16,640");
  r.device = Device::meta();
  return r;
}

TEST(Residuals, UnfusedNormKeepsThreeOfFullSizeFusedOne) {
  const ResidualsOpReport report = op_residuals(norm_request());
  const Json page = Json::parse(written(residuals_op_page(report), PageFormat::json));
  EXPECT_EQ(page.at("shape").at("rows"), 64);
  EXPECT_EQ(page.at("floor_bytes"), 64 * 640 * 4);
  int seen = 0;
  for (const Json& v : page.at("variants")) {
    const bool fused = v.at("variant") == "fused", composed = v.at("variant") == "composed";
    if (!fused && !composed) continue;
    ++seen;
    EXPECT_EQ(v.at("full_size"), fused ? 1 : 3);
    EXPECT_EQ(v.at("kept_bytes"), (fused ? 1 : 2) * 64 * 640 * 4 + 64 * 4);
    EXPECT_TRUE(v.at("measured").is_null());
    EXPECT_EQ(v.at("gradient_bytes"), 64 * 640 * 4 + 640 * 4);
    for (const char* key :
         {"op", "variant", "scope", "name", "shape", "dtype", "bytes", "new_bytes", "producer", "input"})
      EXPECT_TRUE(v.at("saved").at(0).contains(key)) << key;
  }
  EXPECT_EQ(seen, 2);
}

TEST(Residuals, MeasuredOnTheCpuIsWhatMetaPredicted) {
  for (const char* op : {"rms_norm", "attention", "swiglu", "linear_cross_entropy", "rope", "add_rms_norm"}) {
    ResidualsOpRequest r = norm_request();
    r.bench = find_op_bench(op);
    r.shape = r.bench.check_shape(r.bench.shapes.front());
    r.device = Device::cpu();
    for (const OpResiduals& v : op_residuals(r).variants) {
      if (!v.reason.empty()) continue;
      ASSERT_TRUE(v.measured) << op;
      EXPECT_EQ(v.measured->kept, v.predicted.kept) << op << " " << v.variant;
      EXPECT_EQ(v.measured->net_change, v.predicted.net_change) << op << " " << v.variant;
      EXPECT_EQ(v.measured->peak, v.predicted.peak) << op << " " << v.variant;
    }
  }
}

TEST(Residuals, TextFollowsTheRows) {
  ResidualsOpReport report = op_residuals(norm_request());
  const std::string before = written(residuals_op_page(report), PageFormat::text);
  EXPECT_NE(before.find("x (input)"), std::string::npos);
  report.variants[0].ledger.saved[0].producer = "somebody";
  report.variants[0].ledger.saved[0].input = false;
  report.variants[0].predicted.kept = std::size_t{777} << 20;
  const std::string after = written(residuals_op_page(report), PageFormat::text);
  EXPECT_NE(after.find("somebody"), std::string::npos);
  EXPECT_NE(after.find("777.00"), std::string::npos);
  report.variants[0].reason = "is not for today";
  EXPECT_NE(written(residuals_op_page(report), PageFormat::text).find("is not for today"), std::string::npos);
}

TEST(Residuals, NumbersAreTheSizesInOrder) {
  const OpBench norm = find_op_bench("rms_norm");
  EXPECT_EQ(parse_residual_shape(norm, "4,512,2560").str(), "rows=2048,cols=2560");
  EXPECT_EQ(parse_residual_shape(norm, "7,9").str(), "rows=7,cols=9");
  EXPECT_EQ(parse_residual_shape(norm, "cols=9").str(), "rows=8192,cols=9");
  EXPECT_EQ(parse_residual_shape(norm, "").str(), norm.shapes.front().str());
  for (const char* wrong :
       {"4,x", "4,,5", "0,4", "2147483648,2147483648,4", "2147483648,2147483648,2147483648,4"})
    EXPECT_THROW(parse_residual_shape(norm, wrong), Error) << wrong;
}

TEST(Residuals, BlockPageFollowsTheRows) {
  ResidualsBlockRequest r;
  r.size = "some";
  r.block.model = {.vocab = 32, .d_model = 32, .d_ff = 96, .layers = 3, .heads = 2, .kv_heads = 2};
  r.block.context = 16;
  r.block.rank.device = Device::meta();
  r.presets = {"baseline", "optimized"};
  ResidualsBlockReport report = block_report(r);
  const Json page = Json::parse(written(residuals_block_page(report), PageFormat::json));
  ASSERT_EQ(page.at("blocks").size(), 2u);
  EXPECT_GT(page["blocks"][0].at("kept_bytes"), page["blocks"][1].at("kept_bytes"));
  EXPECT_EQ(page["blocks"][1].at("largest").size(), 4u);
  EXPECT_EQ(page["blocks"][1].at("stack").at(0).at("recompute"), "none");
  report.blocks[1].predicted.kept = std::size_t{555} << 20;
  report.blocks[1].stack[0].recompute = Recompute::every(9);
  report.blocks[0].stack[0].recompute = Recompute::every(9);
  const std::string text = written(residuals_block_page(report), PageFormat::text);
  EXPECT_NE(text.find("555.00"), std::string::npos);
  EXPECT_NE(text.find("every:9"), std::string::npos);
  report.blocks[1].predicted.freed = std::size_t{3} << 20;
  const auto said = [&](const char* what) {
    std::string page_text = written(residuals_block_page(report), PageFormat::text);
    std::replace(page_text.begin(), page_text.end(), '\n', ' ');
    return page_text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(said("backward of optimized frees 3.00 MiB"));
  report.blocks[1].predicted.freed = -(std::size_t{2} << 20);  // it leaves more than it frees
  EXPECT_TRUE(said("backward of optimized takes 2.00 MiB"));
  EXPECT_FALSE(said("backward of optimized frees"));
}

TEST(Residuals, RefusesWhatCannotBeAnswered) {
  const auto run = [](std::vector<std::string> args) {
    args.insert(args.begin(), "residuals");
    parse_command_line(args).run();
  };
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({"--op", "rms_norm", "--block"}), Error);
  EXPECT_THROW(run({"--op", "adamw"}), Error);
  EXPECT_THROW(run({"--op", "no_such_op"}), Error);
  EXPECT_THROW(run({"--block", "--size", "no_such_size"}), Error);
  EXPECT_THROW(run({"--block", "--shape", "1,2"}), Error);
  EXPECT_THROW(run({"--op", "rms_norm", "--variant", "no_such_variant"}), Error);
}

}  // namespace
}  // namespace kiln::cli

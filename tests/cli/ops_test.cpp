#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "device/require_gpu.h"
#include "ops/op_list.h"
#include "studies/op/ops_render.h"

namespace kiln::cli {
namespace {

std::vector<OpListing> two_ops() {
  return {{"linear",
           "y = x W^T",
           {{"fast", DeviceType::cuda, false, "the driver sees no GPU"},
            {"tiled", DeviceType::cpu, true, ""},
            {"naive", DeviceType::cpu, true, ""}}},
          {"odd",
           "a | b and a summary that is so long that it cannot stand on one line of the terminal at all",
           {{"naive", DeviceType::cpu, false, std::string(70, 'x') + " and more words than fit"}}}};
}

VariantChoice choice(std::string_view op, std::string_view variant) {
  VariantChoice c;
  c.set(op, variant);
  return c;
}

ErrorKind kind_of_variants(std::string_view text) {
  try {
    parse_variants(text);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::failed;  // there was no error
}

TEST(Ops, TextMarksWhatARunWouldTake) {
  const auto ops = two_ops();
  const std::string by_order = ops_text(ops, {}), by_name = ops_text(ops, choice("linear", "naive"));
  EXPECT_NE(by_order.find("* tiled  cpu   available\n    naive"), std::string::npos) << by_order;
  EXPECT_NE(by_name.find("    tiled  cpu   available\n  * naive"), std::string::npos) << by_name;
  EXPECT_NE(by_order.find("    fast   cuda  the driver sees no GPU\n"), std::string::npos) << by_order;
}

TEST(Ops, TextWrapsAtTheTerminalsWidth) {
  std::istringstream lines(ops_text(two_ops(), {}));
  int over = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kTerminalColumns) {
      ++over;
      EXPECT_NE(line.find(std::string(70, 'x')), std::string::npos) << line;  // a word that has no break
    }
  }
  EXPECT_EQ(over, 1);
}

TEST(Ops, JsonHasTheAgreedFields) {
  const auto page = Json::parse(ops_json(two_ops()));
  ASSERT_EQ(page.size(), 2U);
  EXPECT_EQ(page.at("command"), "ops");
  const auto& linear = page.at("ops").at(0);
  EXPECT_EQ(linear.at("name"), "linear");
  EXPECT_EQ(linear.at("summary"), "y = x W^T");
  const Json expected = {
      {"name", "fast"}, {"device", "cuda"}, {"available", false}, {"reason", "the driver sees no GPU"}};
  EXPECT_EQ(linear.at("variants").at(0), expected);
  EXPECT_EQ(linear.at("variants").at(1).at("reason"), "");
}

TEST(Ops, MarkdownIsTheSameOnEveryMachine) {
  auto here = two_ops(), elsewhere = two_ops();
  for (OpListing& op : elsewhere) {
    for (VariantListing& v : op.variants) v = {v.name, v.device, !v.available, "another reason"};
  }
  EXPECT_EQ(ops_markdown(here), ops_markdown(elsewhere));
  EXPECT_NE(ops_markdown(here).find("| `linear` | y = x W^T | `tiled`, `naive` | `fast` |\n"),
            std::string::npos);
  EXPECT_NE(ops_markdown(here).find("a \\| b"), std::string::npos);
}

TEST(Ops, EveryOpIsListedOnceWithASummaryAndACpuVariant) {
  std::set<std::string_view> seen;
  for (const OpListing& op : list_ops()) {
    EXPECT_TRUE(seen.insert(op.name).second) << op.name;
    EXPECT_FALSE(op.summary.empty()) << op.name;
    EXPECT_EQ(op.summary.find('\n'), std::string_view::npos) << op.name;
    bool on_cpu = false;
    for (const VariantListing& v : op.variants) {
      on_cpu |= v.device == DeviceType::cpu && v.available;
      EXPECT_EQ(v.available, v.reason.empty()) << op.name << " " << v.name;
    }
    EXPECT_TRUE(on_cpu) << op.name;
  }
  EXPECT_TRUE(seen.contains("rms_norm"));
}

TEST(Ops, ADeviceRunsItsOwnVariantsOnly) {
  for (const Device& device : {Device::cpu(), Device::meta(), Device::meta(DeviceType::cuda)}) {
    for (const OpListing& op : list_ops(device)) {
      for (const VariantListing& v : op.variants) {
        if (v.reason.starts_with("takes at most")) continue;       // of its own shape
        if (v.reason.starts_with("runs on the tensor")) continue;  // of its own format
        if (v.reason.starts_with("is a ladder step in bf16")) continue;
        EXPECT_EQ(v.available, v.device == device.target)
            << device.str() << " " << op.name << " " << v.reason;
      }
    }
  }
}

TEST(Ops, WrongVariantsAreWrongUsage) {
  for (const char* text :
       {"linear", "linear=", "=naive", "liner=naive", "linear=naiv", ",", "linear=naive,,"}) {
    EXPECT_EQ(kind_of_variants(text), ErrorKind::usage) << text;
  }
  EXPECT_EQ(parse_variants("linear=lt,rms_norm=naive").find("linear"), "lt");  // it exists; not that it runs
  EXPECT_TRUE(parse_variants("").all().empty());
}

TEST(RequireGpu, SaysWhyAGpuIsMissing) {
  const std::vector<GpuInfo> one = {{.index = 0, .name = "H200"}};
  EXPECT_NO_THROW(require_gpu("cpu", {}, "no driver"));
  EXPECT_NO_THROW(require_gpu("auto", {}, "no driver"));
  EXPECT_NO_THROW(require_gpu("cuda", one, ""));
  EXPECT_NO_THROW(require_gpu("cuda:0", one, ""));
  for (const auto& [device, gpus] : {std::pair("cuda", std::vector<GpuInfo>()), std::pair("cuda:1", one)}) {
    try {
      require_gpu(device, gpus, "no driver");
      ADD_FAILURE() << device;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      EXPECT_EQ(gpus.empty(), error.hint().find("--device cpu") != std::string::npos);
      EXPECT_NE(std::string(error.what()).find(gpus.empty() ? "no driver" : "1 GPU(s)"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace kiln::cli

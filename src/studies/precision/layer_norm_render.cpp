#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "kiln/precision_pages.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

constexpr NarrowPart kSingle[] = {NarrowPart::mean, NarrowPart::variance, NarrowPart::rsqrt,
                                  NarrowPart::affine};
// Roundings one after the other do little more harm than the last of them; what is this far above it is not
// that.
constexpr double kMuch = 4;

std::string cell_text(const LayerNormCell& c) {
  return fmt::format("{:.1e}{}{}{}", c.error, c.overflowed() ? " o" : "", c.underflowed() ? " u" : "",
                     !c.underflowed() && c.lost_digits() ? " s" : "");
}

std::string percent(double x) { return std::isfinite(x) ? fmt::format("{:.2g} %", 100 * x) : "all of it"; }

struct Worst {
  double alone = 0, all = 0, all_but_sums = 0, floor = 0;
  NarrowPart part = NarrowPart::mean;
  std::string range;  // "variance overflows from scale 10", or empty
};

Worst worst_of(const LayerNormReport& report, DType dtype) {
  Worst w;
  for (const LayerNormRow& row : report.rows) {  // from the smallest scale up
    if (row.dtype != dtype) continue;
    for (NarrowPart p : kSingle) {
      const LayerNormCell& c = row.of(p);
      if (c.error > w.alone) w.alone = c.error, w.part = p;
      if (c.overflowed() && w.range.empty())
        w.range = fmt::format("{} overflows from scale {:g}", name_of(p), row.scale);
    }
    w.all = std::max(w.all, row.of(NarrowPart::all).error);
    w.all_but_sums = std::max(w.all_but_sums, row.of(NarrowPart::all_but_sums).error);
    w.floor = std::max(w.floor, row.floor);
  }
  return w;
}

std::string overflow_text(DType dtype, int64_t width) {
  std::string text = fmt::format("{} overflows, predicted, from scale", name_of(dtype));
  const char* separator = " ";
  for (NarrowPart p : kSingle) {
    text += fmt::format("{}{:.0f} ({})", separator, predicted_overflow(dtype, p, width), name_of(p));
    separator = ", ";
  }
  return text;
}

}  // namespace

std::string layer_norm_answer(const LayerNormReport& report, DType dtype) {
  const Worst w = worst_of(report, dtype);
  const std::string question = fmt::format("is fp32 still needed under {}? ", name_of(dtype));
  if (!w.range.empty())
    return question + fmt::format("yes, for range: {}; sums in fp32 {}", w.range, percent(w.all_but_sums));
  if (w.all <= kMuch * w.floor)
    return question + fmt::format("no: without it {}, floor {}", percent(w.all), percent(w.floor));
  return question + fmt::format("yes, for digits, not range: {} alone {}; sums in fp32 {}", name_of(w.part),
                                percent(w.alone), percent(w.all_but_sums));
}

std::string layer_norm_text(const LayerNormReport& report) {
  const LayerNormRequest& q = report.request;
  TextTable table = {{"dtype", "scale", "mean", "variance", "rsqrt", "affine", "all", "fp32 sums", "floor"}};
  for (const LayerNormRow& row : report.rows) {
    std::vector<std::string> line = {std::string(name_of(row.dtype)), fmt::format("{:g}", row.scale)};
    for (const LayerNormCell& c : row.cells) line.push_back(cell_text(c));
    line.push_back(fmt::format("{:.1e}", row.floor));
    table.push_back(line);
  }
  std::string text = fmt::format(
      "LayerNorm over {} elements, {} rows: relative error of the output against fp64. The part named is\n"
      "in the narrow dtype, the others in fp64; all: every part; fp32 sums: every part but the two sums\n\n",
      q.width, q.rows);
  text += aligned(table, 1);
  text +=
      "\no: something overflowed; u: 1 % or more of the numbers became zero; s: subnormal, with digits "
      "lost.\n"
      "Inputs are scale x (1 + z), z normal. floor: the right output, rounded once.\n";
  text += overflow_text(DType::f16, q.width) + "\n";
  return text + layer_norm_answer(report, DType::f16) + "\n" + layer_norm_answer(report, DType::bf16) + "\n";
}

std::string layer_norm_json(const LayerNormReport& report) {
  ordered_json rows = ordered_json::array();
  for (const LayerNormRow& row : report.rows) {
    for (int p = 0; p < kNarrowParts; ++p) {
      const auto part = static_cast<NarrowPart>(p);
      const LayerNormCell& c = row.of(part);
      rows.push_back(
          {{"dtype", name_of(row.dtype)},
           {"scale", row.scale},
           {"part", name_of(part)},
           {"error", c.error},
           {"floor", row.floor},
           {"roundings", c.roundings},
           {"overflows", c.overflows},
           {"vanished", c.vanished},
           {"subnormal", c.subnormal},
           {"predicted_overflow_scale", predicted_overflow(row.dtype, part, report.request.width)}});
    }
  }
  const LayerNormRequest& q = report.request;
  return dump({{"study", "layernorm"},
               {"width", q.width},
               {"rows_per_cell", q.rows},
               {"eps", q.eps},
               {"seed", q.seed},
               {"answer_fp16", layer_norm_answer(report, DType::f16)},
               {"answer_bf16", layer_norm_answer(report, DType::bf16)},
               {"rows", rows}},
              2) +
         "\n";
}

}  // namespace kiln::cli

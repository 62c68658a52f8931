#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "studies/precision/render.h"

namespace kiln {
namespace {

constexpr NarrowPart kSingle[] = {NarrowPart::mean, NarrowPart::variance, NarrowPart::rsqrt,
                                  NarrowPart::affine};
// Successive roundings add little to the error of the last; what is this far above it is not
// that.
constexpr double kMuch = 4;

std::string error_text(const LayerNormCell& c) {
  return fmt::format("{:.1e}{}{}{}", c.error, c.overflowed() ? " o" : "", c.underflowed() ? " u" : "",
                     !c.underflowed() && c.lost_digits() ? " s" : "");
}

std::string percent(double x) {
  return std::isfinite(x) ? fmt::format("{} %", plain(100 * x, 2)) : "all of it";
}

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
        w.range = fmt::format("{} overflows from scale {}", name_of(p), plain(row.scale, 6));
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

struct CellLine {
  const LayerNormReport& report;
  const LayerNormRow& row;
  NarrowPart part;

  const LayerNormCell& cell() const { return row.of(part); }
};

const Schema<CellLine>& schema() {
  using L = CellLine;
  static const Schema<L> kSchema = {
      same_outcome_columns<L, RowStatus::ok>(),
      {"dtype", "dtype", Unit::text, [](const L& l) { return Json(name_of(l.row.dtype)); }},
      {"scale", "scale", Unit::number, [](const L& l) { return Json(l.row.scale); }},
      {"part", "part", Unit::text, field<&L::part>},
      {"error", "error", Unit::number, [](const L& l) { return Json(l.cell().error); }},
      {"floor", "floor", Unit::number, [](const L& l) { return Json(l.row.floor); }},
      {"roundings", "", Unit::count, [](const L& l) { return Json(l.cell().roundings); }},
      {"overflows", "", Unit::count, [](const L& l) { return Json(l.cell().overflows); }},
      {"vanished", "", Unit::count, [](const L& l) { return Json(l.cell().vanished); }},
      {"subnormal", "", Unit::count, [](const L& l) { return Json(l.cell().subnormal); }},
      {"predicted_overflow_scale", "", Unit::number,
       [](const L& l) { return Json(predicted_overflow(l.row.dtype, l.part, l.report.request.width)); }},
  };
  return kSchema;
}

// A line for each scale, a column for each part.
PageTable error_table(const LayerNormReport& report) {
  PageTable t{"", {{"dtype", "scale", "mean", "variance", "rsqrt", "affine", "all", "fp32 sums", "floor"}}};
  for (const LayerNormRow& row : report.rows) {
    std::vector<std::string> line = {std::string(name_of(row.dtype)), plain(row.scale, 6)};
    for (const LayerNormCell& c : row.cells) line.push_back(error_text(c));
    line.push_back(fmt::format("{:.1e}", row.floor));
    t.table.push_back(std::move(line));
  }
  return t;
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

StudyPage layer_norm_page(const LayerNormReport& report) {
  const LayerNormRequest& q = report.request;
  StudyPage page;
  page.place = wrapped(fmt::format(
      "LayerNorm over {} elements, {} rows: relative error of the output against fp64. The part named is in "
      "the narrow dtype, the others in fp64; all: every part; fp32 sums: every part but the two sums",
      q.width, q.rows));
  page.columns = schema().forms();
  for (const LayerNormRow& row : report.rows)
    for (int p = 0; p < kNarrowParts; ++p)
      page.others.push_back(schema().row({report, row, static_cast<NarrowPart>(p)}));
  const std::string fp16 = layer_norm_answer(report, DType::f16),
                    bf16 = layer_norm_answer(report, DType::bf16);
  page.tables = {error_table(report)};
  page.tables.front().lines = {
      "o: something overflowed; u: 1 % or more of the numbers became zero; s: subnormal, with digits lost. "
      "Inputs are scale x (1 + z), z normal. floor: the exact output, rounded once.",
      overflow_text(DType::f16, q.width), fp16, bf16};
  page.json = {{"command", "precision layernorm"},
               {"study", "layernorm"},
               {"width", q.width},
               {"rows_per_cell", q.rows},
               {"eps", q.eps},
               {"seed", q.seed},
               {"answer_fp16", fp16},
               {"answer_bf16", bf16},
               {"rows", page.others}};
  return page;
}

}  // namespace kiln

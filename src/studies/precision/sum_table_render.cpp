#include <fmt/format.h>

#include <cmath>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/precision/render.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(); }
Json if_timed(const SumRow& r, double x) { return r.ns > 0 ? Json(x) : Json(); }

template <const char* kKey>
std::string brief(const Json& row) {
  const auto x = number_at(row, kKey);
  return x ? fmt::format("{:.1e}", *x) : "inf";
}

constexpr char kError[] = "error", kPredicted[] = "predicted", kBound[] = "bound", kFloor[] = "floor";

template <const char* kKey>
std::string figure_of(const Json& row) {
  const auto x = number_at(row, kKey);
  return x ? digits(*x) : "";
}

constexpr char kNs[] = "ns", kBytes[] = "bytes";

const Schema<SumRow>& schema() {
  using R = SumRow;
  constexpr Unit kNumber = Unit::number;
  static const Schema<R> kSchema = {
      same_outcome_columns<R, RowStatus::ok>(),
      {"quantity", "of", Unit::text, field<&R::quantity>, kTable},
      {"method", "method", Unit::text, field<&R::method>, kTable},
      {"dtype", "dtype", Unit::text, field<&R::dtype>, kTable},
      {"ran", "", Unit::text, field<&R::ran>},
      {"roundings", "", Unit::count, field<&R::roundings>},
      or_null<R>(
          {kError, "error", kNumber, [](const R& r) { return number(r.error); }, kTable, "", brief<kError>}),
      or_null<R>({kPredicted, "predicted", kNumber, [](const R& r) { return number(r.predicted); }, kTable,
                  "", brief<kPredicted>}),
      or_null<R>(
          {kBound, "bound", kNumber, [](const R& r) { return number(r.bound); }, kTable, "", brief<kBound>}),
      or_null<R>(
          {kFloor, "floor", kNumber, [](const R& r) { return number(r.floor); }, kTable, "", brief<kFloor>}),
      or_null<R>(
          {kNs, "ns", kNumber, [](const R& r) { return if_timed(r, r.ns); }, kTable, "", figure_of<kNs>}),
      or_null<R>({"of_fp32", "x fp32", Unit::times,
                  [](const R& r) { return r.of_fp32 > 0 ? Json(r.of_fp32) : Json(); }, kTable}),
      or_null<R>({kBytes, "bytes", kNumber, [](const R& r) { return if_timed(r, r.bytes); }, kTable, "",
                  figure_of<kBytes>}),
  };
  return kSchema;
}

constexpr double kUseless = 0.1;  // an error

std::string conclusion(const SumTable& table) {
  std::string lost;
  for (const SumRow& row : table.rows) {
    if (row.error < kUseless) continue;
    lost += fmt::format("{}{} of {} in {}", lost.empty() ? "" : ", ", row.method, row.quantity,
                        name_of(row.dtype));
  }
  return lost.empty() ? "every row is within a tenth" : fmt::format("off by a tenth or more: {}", lost);
}

}  // namespace

Json sums_json(const SumTable& table) {
  return {{"name", table.name},
          {"title", table.title},
          {"unit", table.unit},
          {"rows", schema().rows(table.rows)}};
}

PageTable sums_table(const SumTable& table) {
  PageTable t = page_table(fmt::format("{}\nns and bytes: of one {}", table.title, table.unit),
                           schema().forms(), schema().rows(table.rows));
  std::string op;
  for (const SumRow& r : table.rows)
    if (r.method == "op") op = r.ran;
  t.lines = {fmt::format("op: {}; all others are loops on the host", op), conclusion(table)};
  return t;
}

}  // namespace kiln

#include <fmt/format.h>

#include "compile/cuda_source/emit.h"
#include "rows/row_values.h"
#include "studies/compile/compile_study.h"

namespace kiln {
namespace {

std::string ops_text(const Json& row) {
  std::string text;
  for (const Json& op : row.at("ops")) text += (text.empty() ? "" : " ") + op.get<std::string>();
  return text;
}

std::string saved_text(const Json& row) {
  const double apart = row.at("apart_bytes").get<double>(), own = row.at("pass_bytes").get<double>();
  return own > 0 && row.at("kernel").get<int>() == 0 ? fmt::format("{:.1f}x", apart / own) : "-";
}

using Line = CompiledKernelRow;

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {"region", "region", Unit::text, [](const Line& l) { return Json(l.region); }, Where::table},
      {"pass", "pass", Unit::text, [](const Line& l) { return Json(l.pass); }, Where::table},
      {"kernel", "kernel", Unit::count, [](const Line& l) { return Json(l.kernel); }, Where::table},
      {"calls", "calls", Unit::count, [](const Line& l) { return Json(l.calls); }, Where::table},
      {"ops", "ops inside", Unit::text, [](const Line& l) { return Json(l.ops); }, Where::table, "",
       ops_text},
      {"bytes", "MiB", Unit::mebibytes, [](const Line& l) { return Json(l.bytes); }, Where::table},
      {"pass_bytes", "", Unit::mebibytes, [](const Line& l) { return Json(l.pass_bytes); }},
      {"apart_bytes", "value by value", Unit::mebibytes, [](const Line& l) { return Json(l.apart_bytes); },
       Where::table},
      {"ops_bytes", "fused ops", Unit::mebibytes, [](const Line& l) { return Json(l.ops_bytes); },
       Where::table},
      {"", "less", Unit::text, nullptr, Where::table, "", saved_text},
      {"flops", "MFLOP", Unit::text, [](const Line& l) { return Json(l.flops); }, Where::wide, "",
       [](const Json& row) { return fmt::format("{:.1f}", row.at("flops").get<double>() / 1e6); }},
      {"measured_ms", "ms here", Unit::milliseconds,
       [](const Line& l) { return l.measured_ms ? Json(*l.measured_ms) : Json(); }, Where::table},
      {"code_bytes", "cubin", Unit::count,
       [](const Line& l) { return l.code_bytes ? Json(*l.code_bytes) : Json(); }, Where::table},
      {"why", "cut because", Unit::text, [](const Line& l) { return l.why.empty() ? Json() : Json(l.why); },
       Where::table},
  };
  return kSchema;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

StudyPage compile_page(const CompileReport& r) {
  StudyPage page;
  const CompileRequest& q = r.request;
  page.place = fmt::format("{}, batch {}, ctx {}, {}: recorded and planned in {:.1f} ms", q.size.name,
                           q.batch, q.context, name_of(q.precision), r.plan_ms);
  page.columns = schema().forms();
  for (const CompiledKernelRow& row : r.rows) page.rows.push_back(schema().row(row));
  page.notes = r.notes;
  page.notes.push_back(
      "MiB are of one call: what the kernel reads and writes, what a pass over memory for each value would, "
      "and what the ops' own "
      "fused kernels do; ms are of all kernels of a pass");
  if (!r.compiler.empty())
    page.notes.push_back(fmt::format("{} for {}: {} kernels compiled and {} from the cache in {:.1f} ms",
                                     r.compiler, q.arch, r.compiled, r.from_cache, r.nvrtc_ms));
  Json texts = Json::array();
  for (const RegionText& t : r.texts) {
    Json region = {{"region", t.name}, {"plan", t.plan}};
    page.tables.push_back({fmt::format("Plan of {}", t.name), {}, 1, false, lines_of(t.plan)});
    if (q.graph) {
      region["graph"] = t.graph;
      page.tables.push_back({fmt::format("Graph of {}", t.name), {}, 1, false, lines_of(t.graph)});
    }
    if (q.source) {
      region["source"] = cat(compile::cuda_prelude(), t.source);
      page.tables.push_back({fmt::format("Source of {}", t.name), {}, 1, false, lines_of(t.source)});
    }
    texts.append(std::move(region));
  }
  Json rows = Json::array();
  for (const Json& row : page.rows) rows.append(row);
  page.json = {{"command", "compile"},
               {"size", q.size.name},
               {"batch", q.batch},
               {"ctx", q.context},
               {"dtype", std::string(name_of(q.precision))},
               {"plan_ms", r.plan_ms},
               {"kernels", std::move(rows)},
               {"regions", std::move(texts)}};
  page.json["gate"] = name_of(r.checked.gate);
  if (r.checked.gate_failed()) page.json["reason"] = r.checked.reason;
  if (!r.compiler.empty()) {
    page.json["compiler"] = r.compiler;
    page.json["arch"] = q.arch;
    page.json["compile_ms"] = r.nvrtc_ms;
    page.json["compiled"] = r.compiled;
    page.json["from_cache"] = r.from_cache;
  }
  return page;
}

}  // namespace kiln

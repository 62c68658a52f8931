#include "compile/text.h"

namespace kiln::compile {
namespace {

std::string list(const std::vector<int>& values) {
  std::string text;
  for (const int v : values) text += cat(text.empty() ? "%" : " %", v);
  return text.empty() ? "nothing" : text;
}

}  // namespace

std::string graph_text(const Graph& g) {
  std::string text;
  for (int v = 0; v < g.size(); ++v) text += cat("  ", text_of(g, v), "\n");
  return text + cat("  gives ", list(g.outputs), "\n");
}

std::string kernel_text(const Program& p, const Kernel& k) {
  std::string text = cat("  ", k.rows ? "row by row" : "once", ": reads ", list(k.loads), ", makes ");
  std::vector<int> made = k.shared;
  made.insert(made.end(), k.values.begin(), k.values.end());
  text += cat(list(made), ", writes ", list(k.stores), "\n");
  if (!k.why.empty()) text += cat("  a kernel of its own: ", k.why, "\n");
  (void)p;
  return text;
}

std::string kept_text(const Traced& t, const RegionPlan& plan) {
  std::string text;
  for (const KeptTensor& k : plan.kept) {
    const bool weight = k.from == KeptTensor::From::tensor && !t.graph[k.value].extent.rows;
    text += cat(text.empty() ? "" : ", ", "%", k.value, " (", k.name, weight ? ", a weight" : "", ")");
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace kiln::compile

#include "studies/attention/notes.h"

#include <fmt/format.h>

#include "base/plain_number.h"
#include "studies/format.h"

namespace kiln {
namespace {

std::string needed(const AttentionRow& r) {
  std::string text;
  for (const NamedBytes& n : r.plan.needed)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n.what, human({n.bytes}));
  return text;
}

}  // namespace

std::vector<std::string> attention_notes(const AttentionReport& report) {
  std::vector<std::string> lines, noisy;
  for (const AttentionRow& r : report.rows) {
    const std::string name = fmt::format("{}, {}", r.variant, r.cell.str());
    if (r.status == RowStatus::oom) {
      lines.push_back(fmt::format("OOM: {}: {}; by tensor: {}", name, r.reason, needed(r)));
    } else if (!r.reason.empty()) {
      lines.push_back(
          fmt::format("{}: {}: {}", r.gate_failed() ? "WRONG" : name_of(r.status), name, r.reason));
    }
    for (AttentionPass p : report.passes) {
      const std::string noise = r.timed() ? r.timing(p)->noise() : "";
      if (!noise.empty()) noisy.push_back(fmt::format("note: {}, {}: {}", name, name_of(p), noise));
    }
    if (r.timed() && r.measured.peak != r.plan.memory.peak)
      lines.push_back(
          fmt::format("note: {}: measured peak differs from the predicted one by {} bytes", name,
                      static_cast<int64_t>(r.measured.peak) - static_cast<int64_t>(r.plan.memory.peak)));
  }
  constexpr std::size_t kMostNotes = 8;
  if (noisy.size() > kMostNotes)
    noisy = {fmt::format("note: {} of the timings are noisy or have few samples, and --json says which",
                         noisy.size())};
  lines.insert(lines.end(), noisy.begin(), noisy.end());
  for (const ScalingFit& law : report.scaling_fits) {
    const AttentionCell& cell = law.cell;
    lines.push_back(fmt::format("memory before backward, {}, {} x {} head{} of {} {}: {:.0f} B x seq{}",
                                law.variant, cell.batch, cell.heads, cell.heads == 1 ? "" : "s", cell.d,
                                kiln::name_of(cell.dtype), law.linear,
                                law.square > 0.01 ? fmt::format(" + {:.1f} B x seq^2", law.square) : ""));
  }
  if (report.datasheet > 0) {
    for (const AttentionRow& r : report.rows) {
      const double flops = r.cell.least(AttentionPass::both).flops;
      lines.push_back(fmt::format(
          "{}: {} TFLOP; roofline {} ms at {} TFLOP/s of the datasheet{}", r.variant, plain(flops / 1e12, 4),
          digits(1e3 * flops / report.datasheet), digits(report.datasheet / 1e12),
          r.timed()
              ? fmt::format(", {} ms at the rate measured here", digits(r.roofline_ms(AttentionPass::both)))
              : ""));
    }
  }
  return lines;
}

}  // namespace kiln

#include "kiln/bench_attention_pages.h"

#include <fmt/format.h>

#include "studies/format.h"
#include "kiln/study_tables.h"

namespace kiln::cli {
namespace {

using Status = AttentionRow::Status;

constexpr std::size_t kLeft = 3;  // columns of words

std::string mib(std::size_t bytes) { return digits(static_cast<double>(bytes) / 0x1p20); }

std::string form(const AttentionCell& c) {
  return fmt::format("{}{}", c.causal ? "causal" : "full", c.packed ? " packed" : "");
}

// Passes that stand side by side in one column: `both` says nothing new where its parts are there.
std::vector<AttentionPass> shown(const AttentionReport& report) {
  std::vector<AttentionPass> passes = report.passes;
  if (passes.size() > 1) std::erase(passes, AttentionPass::both);
  return passes;
}

TextTable table_of(const AttentionReport& report) {
  const bool planned = report.planned;
  const std::vector<AttentionPass> together = shown(report);
  std::vector<std::string> header = {"dtype", "form", "variant", "batch", "heads", "seq", "d"};
  if (!planned) {
    for (AttentionPass p : report.passes) header.push_back(fmt::format("{} ms", name_of(p)));
    for (const char* name : {"predicted ms", "floor ms", "TFLOP/s", "of ceiling", "vs naive"})
      header.emplace_back(name);
  } else {
    header.emplace_back("GFLOP");
    header.emplace_back("fits");
  }
  header.emplace_back("MiB before backward");
  header.emplace_back("peak MiB");
  TextTable table = {header};
  for (const AttentionRow& r : report.rows) {
    const AttentionCell& c = r.cell;
    std::vector<std::string> line = {std::string(kiln::name_of(c.dtype)),
                                     form(c),
                                     r.variant,
                                     fmt::format("{}", c.batch),
                                     fmt::format("{}", c.heads),
                                     fmt::format("{}", c.seq),
                                     fmt::format("{}", c.d)};
    auto joined = [&](auto&& figure) {
      std::string text;
      for (AttentionPass p : together) text += fmt::format("{}{}", text.empty() ? "" : " / ", figure(p));
      line.push_back(text);
    };
    if (planned) {
      line.push_back(digits(c.least(AttentionPass::both).flops / 1e9));
      line.emplace_back(r.status == Status::planned ? "yes" : r.status == Status::no_memory ? "OOM" : "-");
    } else if (r.timed()) {
      for (AttentionPass p : report.passes) line.push_back(digits(1e3 * r.timing(p)->p50));
      joined([&](AttentionPass p) { return digits(r.predicted_ms(p)); });
      joined([&](AttentionPass p) { return digits(r.floor_ms(p)); });
      joined([&](AttentionPass p) { return digits(r.flops_per_second(p) / 1e12); });
      joined([&](AttentionPass p) { return fmt::format("{:.0f} %", 100 * r.of_ceiling(p)); });
      joined([&](AttentionPass p) {
        const auto& speedup = r.speedups[static_cast<std::size_t>(p)];
        const auto& versus = r.versus[static_cast<std::size_t>(p)];
        return versus ? str(*versus) : speedup ? fmt::format("{:.2f}x", *speedup) : std::string("-");
      });
    } else {
      for (std::size_t i = 0; i < report.passes.size(); ++i)
        line.emplace_back(r.status == Status::no_memory ? "OOM" : r.status == Status::wrong ? "WRONG" : "-");
      for (int i = 0; i < 5; ++i) line.emplace_back("-");
    }
    const AttentionMemory& memory = r.timed() ? r.measured : r.plan.memory;
    const bool known = r.status != Status::skipped;
    line.push_back(known ? mib(memory.before_backward) : "-");
    line.push_back(known ? mib(memory.peak) : "-");
    table.push_back(std::move(line));
  }
  return table;
}

std::string needed(const AttentionRow& r) {
  std::string text;
  for (const NamedBytes& n : r.plan.needed)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n.what, human({n.bytes}));
  return text;
}

std::vector<std::string> remarks(const AttentionReport& report) {
  std::vector<std::string> lines, noisy;
  for (const AttentionRow& r : report.rows) {
    const std::string name = fmt::format("{}, {}", r.variant, r.cell.str());
    if (r.status == Status::no_memory) {
      lines.push_back(fmt::format("OOM: {}: {}; by tensor: {}", name, r.reason, needed(r)));
    } else if (!r.reason.empty()) {
      lines.push_back(
          fmt::format("{}: {}: {}", r.status == Status::wrong ? "WRONG" : r.gate(), name, r.reason));
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
  for (const MemoryLaw& law : report.laws) {
    const AttentionCell& cell = law.cell;
    lines.push_back(fmt::format("memory before backward, {}, {} x {} head{} of {} {}: {:.0f} B x seq{}",
                                law.variant, cell.batch, cell.heads, cell.heads == 1 ? "" : "s", cell.d,
                                kiln::name_of(cell.dtype), law.linear,
                                law.square > 0.01 ? fmt::format(" + {:.1f} B x seq^2", law.square) : ""));
  }
  if (report.datasheet > 0) {
    for (const AttentionRow& r : report.rows) {
      const double flops = r.cell.least(AttentionPass::both).flops;
      lines.push_back(fmt::format("{}: {} TFLOP; floor {} ms at {} TFLOP/s of the datasheet{}", r.variant,
                                  fmt::format("{:.4g}", flops / 1e12), digits(1e3 * flops / report.datasheet),
                                  digits(report.datasheet / 1e12),
                                  r.timed() ? fmt::format(", {} ms at the rate measured here",
                                                          digits(r.floor_ms(AttentionPass::both)))
                                            : ""));
    }
  }
  return lines;
}

std::string how(const AttentionReport& report) {
  if (report.planned) return fmt::format("{}: planned, nothing is run", report.device);
  std::string text =
      place_line(report.device, report.device_name, report.threads, report.isa, report.copy, report.flops);
  text += report.clock.wait_each ? "; the host waits around every call"
                                 : "; calls are queued, marks on the device";
  if (report.clock.flush > 0)
    text += fmt::format("; {} written before each, so that the cache is cold", human({report.clock.flush}));
  return text;
}

std::string studies(const AttentionReport& report, PageFormat format) {
  return studies_page(report.command, rows_of(attention_result_lines(report)), format);
}

}  // namespace

std::string attention_text(const AttentionReport& report) {
  std::string text = fmt::format("{}\n\n{}", how(report), aligned(table_of(report), kLeft));
  for (const std::string& line : remarks(report)) text += line + "\n";
  return text + studies(report, PageFormat::text);
}

std::string attention_markdown(const AttentionReport& report) {
  std::string text = fmt::format("{}.\n\n{}", how(report), markdown_table(table_of(report), kLeft));
  for (const std::string& line : remarks(report)) text += fmt::format("\n{}.\n", line);
  return text + studies(report, PageFormat::markdown);
}

std::string attention_latex(const AttentionReport& report) {
  std::string text = fmt::format("% {}\n{}", how(report), latex_table(table_of(report), kLeft));
  for (const std::string& line : remarks(report)) text += fmt::format("% {}\n", line);
  return text + studies(report, PageFormat::latex);
}

std::string attention_page(const AttentionReport& report, PageFormat format) {
  return PageForms<AttentionReport>{attention_text, attention_markdown, attention_csv, attention_latex,
                                    attention_json}(report, format);
}

std::string attention_csv(const AttentionReport& report) {
  std::string text =
      "table,device,dtype,batch,heads,seq,d,causal,packed,variant,gate,pass,samples,p50_ms,p20_ms,"
      "p80_ms,min_ms,tflops,of_ceiling,predicted_ms,floor_ms,before_backward_bytes,peak_bytes\n";
  for (const AttentionRow& r : report.rows) {
    const AttentionCell& c = r.cell;
    const std::string head =
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},", report.table, report.device, kiln::name_of(c.dtype),
                    c.batch, c.heads, c.seq, c.d, c.causal, c.packed, r.variant, r.gate());
    if (!r.timed()) {
      text += fmt::format("{},,,,,,,,,,{},{}\n", head, r.plan.memory.before_backward, r.plan.memory.peak);
      continue;
    }
    for (AttentionPass p : report.passes) {
      const Timing& t = *r.timing(p);
      text += fmt::format("{}{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.5g},{:.4f},{:.5g},{:.5g},{},{}\n", head,
                          name_of(p), t.samples.size(), ms(t.p50), ms(t.p20), ms(t.p80), ms(t.min),
                          r.flops_per_second(p) / 1e12, r.of_ceiling(p), r.predicted_ms(p), r.floor_ms(p),
                          r.measured.before_backward, r.measured.peak);
    }
  }
  return text;
}

}  // namespace kiln::cli

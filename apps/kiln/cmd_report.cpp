// `kiln report`: what is stored in results.jsonl as one page with tables and charts (docs/ablation.md); or
// the tables of stored rows from any files, alone or beside a peer's (docs/measuring.md).
#include <fmt/format.h>

#include <memory>

#include "base/choice.h"
#include "base/error.h"
#include "kiln/bench_options.h"
#include "studies/report/peers_page.h"
#include "studies/report/report_files.h"
#include "studies/report/rows_page.h"

namespace kiln::cli {
namespace {

struct ReportRequest {
  std::string from, writeup;
  std::vector<std::string> rows, peers, columns;
  PageFormat format = PageFormat::text;
};

// Options that shape printed tables say nothing of report.md.
void require_rows(const Command& c, const ReportRequest& r) {
  if (!r.rows.empty()) {
    if (!r.from.empty())
      throw Error("--from and --rows are both given; expected one of them", {}, ErrorKind::usage);
    if (!r.writeup.empty())
      throw Error("--writeup and --rows are both given; expected one of them", {}, ErrorKind::usage);
    return;
  }
  if (!r.writeup.empty()) index_of("--writeup", r.writeup, writeup_names());
  for (const char* name : {"--peers", "--columns", "--format"})
    if (!c.options.find(name)->given().empty())
      throw Error(fmt::format("{} belongs to --rows, which is not given", name),
                  "name files of rows: kiln report --rows runs/results.jsonl", ErrorKind::usage);
}

void print_tables(const ReportRequest& r, PageFormat format, bool wide) {
  const std::vector<Json> rows = read_row_files(r.rows);
  const StudyPage page = r.peers.empty() ? rows_page(rows, r.columns, wide)
                                         : peers_page(rows, read_row_files(r.peers), r.columns);
  if (format == PageFormat::csv && !page.parts.empty())
    throw Error(
        fmt::format("CSV is one table; these rows are of {} commands, machines or builds", page.parts.size()),
        "give each its own file, or use --format md", ErrorKind::usage);
  print_page(page, format, wide);
}

}  // namespace

void add_report(Command& c, const CommonOptions& common) {
  auto r = std::make_shared<ReportRequest>();
  c.opt("--from", r->from, "folder of results.jsonl").value("DIR").unset("--out");
  c.opt("--writeup", r->writeup, "the chapters of one writeup alone: profiling, attention, ddp or sharding")
      .value("NAME")
      .unset("the whole report");
  c.opt("--rows", r->rows, "files of stored rows: prints their tables, writes no report.md")
      .value("FILE,...");
  c.opt("--peers", r->peers, "files of a peer's rows, to set beside them").value("FILE,...");
  c.opt("--columns", r->columns, "columns of the tables, by key")
      .value("KEY,...")
      .unset("those the command shows");
  add_page_options(c, r->format);
  c.run = [r, &c, &common] {
    require_rows(c, *r);
    if (!r->rows.empty()) return print_tables(*r, page_format(c, r->format, common), common.wide);
    const ReportFiles report =
        make_report_files(r->from.empty() ? common.out : r->from, common.out, r->writeup);
    fmt::print("{}", common.json ? report_json(report).dump(2) + "\n" : report_text(report));
  };
}

}  // namespace kiln::cli

#include "studies/ablation/render.h"

#include "base/build_info.h"
#include "studies/ablation/ablation_tables.h"
#include "studies/format.h"

namespace kiln {

StudyPage ablate_page(const AblateReport& r, bool wide) {
  static const std::vector<ColumnForm> kColumns = ablation_main_columns();
  const std::vector<AblationLine> lines = ablation_lines(r.rows);
  StudyPage page;
  page.place = place_line(r.device, r.device_name, r.threads, r.isa, r.copy, r.flops,
                          r.ceilings_stored ? "stored with the baseline's row" : "measured here");
  page.columns = kColumns;
  page.shown.wide = wide;
  Json timed = Json::array(), others = Json::array();
  for (const AblationLine& l : lines) {
    (l.in_main_table() ? page.rows : page.others).push_back(l.figures());
    (l.timed() ? timed : others).push_back(l.row);
  }
  page.notes = ablation_sentences(lines);
  page.notes.insert(page.notes.end(), r.notes.begin(), r.notes.end());
  add_load_note(r, page.notes);
  if (TextTable without = without_table(lines); without.size() > 1)
    page.tables.push_back({"taken away from all combined, one at a time", std::move(without), 1});
  if (TextTable ranks = ranks_table(lines); ranks.size() > 1)
    page.tables.push_back(
        {"on several ranks of one device, against ddp:naive on the same", std::move(ranks), 1});
  const std::vector<PageTable> more = {
      {"memory of the step, in MiB", ablation_memory_table(lines), 1},
      {"gate: relative deviation from the baseline, and its tolerance", gate_table(lines), 3}};
  page.tables.insert(page.tables.end(), more.begin(), more.end());
  page.json = {{"command", "ablate"},
               {"device", r.device},
               {"host", host_json(r)},
               {"build_id", build_info().build_id},
               {"ceilings", ceilings_json(r)},
               {"ceilings_stored", r.ceilings_stored},
               {"rows", timed},
               {"not_timed", others},
               {"speedups", speedups_json(lines)},
               {"conclusions", ablation_sentences(lines)},
               {"remarks", r.notes},
               {"stopped", r.stopped()}};
  return page;
}

}  // namespace kiln

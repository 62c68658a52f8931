#include "studies/attention/cell_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/choice.h"
#include "base/error.h"

namespace kiln {
namespace {

constexpr NumberRange<int64_t> kHeads = {1, 1 << 16}, kBatch = {1, 1 << 20};

// "none": attention without heads, which is one.
TextForm<int64_t> heads_form() {
  return {[](const std::string& text) {
            return text == "none" ? 1 : read_integer_option("--heads", text, kHeads.least, kHeads.most);
          },
          [](const int64_t& heads) { return number_text(heads); }};
}

bool given(const Options& options, const char* name) { return !options.find(name)->given().empty(); }

CellTable table_of(const CellOptions& cells, const Options& options) {
  if (cells.table != CellTable::automatic) return cells.table;
  for (const char* size : {"--batch", "--heads", "--seq", "--d"})
    if (given(options, size)) return CellTable::grid;
  return CellTable::steps;
}

std::vector<AttentionCell> chosen_cells(const CellOptions& c, const Options& options, CellTable table) {
  const std::string name(name_of_value<CellTable>(table, kCellTables));
  for (const char* size : {"--batch", "--heads"}) {
    if (given(options, size))
      throw Error(fmt::format("{} goes with --table grid; the cells of {} have their own", size, name), {},
                  ErrorKind::usage);
  }
  const std::vector<DType> dtypes = given(options, "--dtype") ? c.grid.dtypes : std::vector{DType::bf16};
  std::vector<AttentionCell> cells = table == CellTable::steps ? step_cells(dtypes) : tokens16k_cells(dtypes);
  auto drop = [&](const std::string& option, const std::function<bool(const AttentionCell&)>& unwanted) {
    std::erase_if(cells, unwanted);
    if (cells.empty())
      throw Error(fmt::format("no cell of {} is left by {}", name, option), {}, ErrorKind::usage);
  };
  auto keep = [&](const char* option, const std::vector<int64_t>& wanted, int64_t AttentionCell::* size) {
    if (!given(options, option)) return;
    drop(fmt::format("{} {}", option, options.find(option)->given().back()), [&](const AttentionCell& cell) {
      return std::find(wanted.begin(), wanted.end(), cell.*size) == wanted.end();
    });
  };
  keep("--seq", c.grid.seqs, &AttentionCell::seq);
  keep("--d", c.grid.ds, &AttentionCell::d);
  if (c.causal) drop("--causal", [](const AttentionCell& cell) { return !cell.causal; });
  if (c.full) drop("--full", [](const AttentionCell& cell) { return cell.causal; });
  return cells;
}

}  // namespace

void add_cell_options(Options& o, CellOptions& cells) {
  const bool causal = cells.grid.causal;
  o.opt("--batch", cells.grid.batch, kBatch, "batch size");
  o.opt("--heads", cells.grid.heads, heads_form(), "attention heads").value("N");
  o.opt("--seq", cells.grid.seqs, doubling_form("--seq", kLongestSequence), "sequence length; A..B doubles")
      .value("N,...");
  o.opt("--d", cells.grid.ds, doubling_form("--d", kWidestHead), "head width; A..B doubles").value("N,...");
  o.opt("--dtype", cells.grid.dtypes, dtypes_form(), "{}").offers(dtype_words()).value("NAME,...");
  o.opt("--causal", cells.causal, causal ? "causal mask (the grid's default)" : "causal mask");
  o.opt("--full", cells.full, causal ? "no mask" : "no mask (the default)");
}

std::vector<AttentionCell> cells_of(const CellOptions& c, const Options& options) {
  if (c.causal && c.full)
    throw Error("--causal and --full are both given; expected one of them", {}, ErrorKind::usage);
  const CellTable table = table_of(c, options);
  if (table != CellTable::grid) return chosen_cells(c, options, table);
  AttentionGrid grid = c.grid;
  grid.causal = c.causal || (grid.causal && !c.full);
  return grid_cells(grid);
}

}  // namespace kiln

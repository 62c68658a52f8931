#include "kiln/bench_attention_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "base/parse_number.h"

namespace kiln::cli {
namespace {

constexpr int64_t kMostHeads = 1 << 16, kMostBatch = 1 << 20;

void check_one_mask(const TypedCells& t) {
  if (t.causal && t.full)
    throw Error("--causal and --full are both given; expected one of them", {}, ErrorKind::usage);
}

}  // namespace

AttentionGrid read_grid(const TypedCells& t, AttentionGrid grid) {
  read_number<int64_t>("--batch", t.batch, 1, kMostBatch, grid.batch);
  read_number<int64_t>("--heads", t.heads == "none" ? "1" : t.heads, 1, kMostHeads, grid.heads);
  if (!t.seqs.empty()) grid.seqs = read_doubling("--seq", t.seqs, kLongestSequence);
  if (!t.ds.empty()) grid.ds = read_doubling("--d", t.ds, kWidestHead);
  if (!t.dtypes.empty()) grid.dtypes = parse_dtypes(t.dtypes);
  check_one_mask(t);
  grid.causal = t.causal || (grid.causal && !t.full);
  return grid;
}

std::vector<AttentionCell> read_table(const TypedCells& t, const AttentionGrid& grid) {
  check_one_mask(t);
  const std::size_t which = index_of("--table", t.table, {"grid", "tokens16k", "steps"});
  if (which == 0) return grid_cells(read_grid(t, grid));
  for (const auto& [option, given] :
       {std::pair("--batch", !t.batch.empty()), {"--heads", !t.heads.empty()}}) {
    if (given)
      throw Error(fmt::format("{} goes with --table grid; the cells of {} have their own", option, t.table),
                  {}, ErrorKind::usage);
  }
  const std::vector<DType> dtypes = parse_dtypes(t.dtypes.empty() ? "bf16" : t.dtypes);
  std::vector<AttentionCell> cells = which == 1 ? tokens16k_cells(dtypes) : step_cells(dtypes);
  auto drop = [&](const std::string& option, const std::function<bool(const AttentionCell&)>& unwanted) {
    std::erase_if(cells, unwanted);
    if (cells.empty())
      throw Error(fmt::format("no cell of {} is left by {}", t.table, option), {}, ErrorKind::usage);
  };
  auto keep = [&](const char* option, const std::string& text, int64_t most, int64_t AttentionCell::* size) {
    if (text.empty()) return;
    const std::vector<int64_t> wanted = read_doubling(option, text, most);
    drop(fmt::format("{} {}", option, text), [&](const AttentionCell& c) {
      return std::find(wanted.begin(), wanted.end(), c.*size) == wanted.end();
    });
  };
  keep("--seq", t.seqs, kLongestSequence, &AttentionCell::seq);
  keep("--d", t.ds, kWidestHead, &AttentionCell::d);
  if (t.causal) drop("--causal", [](const AttentionCell& c) { return !c.causal; });
  if (t.full) drop("--full", [](const AttentionCell& c) { return c.causal; });
  return cells;
}

}  // namespace kiln::cli

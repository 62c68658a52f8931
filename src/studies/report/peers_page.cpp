#include "studies/report/peers_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "base/plain_number.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "rows/schema.h"
#include "studies/report/rows_page.h"
#include "studies/report/stored_rows.h"

namespace kiln {
namespace {

// What two rows must share to have measured the same thing.
constexpr std::array kStepKeys = {"size", "mode", "dtype", "batch", "ctx", "vocab", "micro_steps", "clip"};
constexpr std::array kCellKeys = {"dtype", "batch", "heads", "seq", "d", "causal", "packed"};

std::string form_of(const Json& row) {
  if (!row.contains("causal")) return {};
  return fmt::format("{}{}", text_at(row, "causal") == "yes" ? "causal" : "full",
                     text_at(row, "packed") == "yes" ? " packed" : "");
}
std::string sizes_of(const Json& row) {
  return fmt::format("{}x{}x{}x{}", text_at(row, "batch"), text_at(row, "heads"), text_at(row, "seq"),
                     text_at(row, "d"));
}

// The peer's figure, or what became of its row.
template <const auto& kKey>
std::string peer_ms(const Json& row) {
  if (const auto ms = number_at(row, kKey)) return figure(*ms);
  const std::string status = text_at(row, "peer_status");
  return status == "oom" ? "OOM" : status;
}
constexpr const char kPeerMs[] = "peer_ms";

constexpr ColumnForm kStepColumns[] = {
    {"size", "model", Unit::text, Where::table},
    {"mode", "mode", Unit::text, Where::differs},
    {"dtype", "precision", Unit::text, Where::differs},
    {"batch", "batch", Unit::text, Where::differs},
    {"ctx", "ctx", Unit::text, Where::differs},
    {"vocab", "vocab", Unit::text, Where::differs},
    {"preset", "preset", Unit::text, Where::differs},
    {"peer", "peer", Unit::text, Where::differs},
    {"kiln_ms", "kiln ms", Unit::milliseconds, Where::table},
    {"peer_ms", "peer ms", Unit::milliseconds, Where::table, {}, peer_ms<kPeerMs>},
    {"ratio", "ratio", Unit::times, Where::table},
    {"kiln_tflops", "kiln TFLOP/s", Unit::number, Where::table},
    {"kiln_peak_bytes", "kiln peak MiB", Unit::bytes, Where::table},
    {"peer_peak_bytes", "peer peak MiB", Unit::bytes, Where::table},
    {"kiln_first_ms", "kiln first step s", Unit::seconds, Where::table},
    {"peer_first_ms", "peer first step s", Unit::seconds, Where::table},
};

constexpr ColumnForm kAttentionColumns[] = {
    {"dtype", "dtype", Unit::text, Where::differs},
    {"form", "form", Unit::text, Where::table, {}, form_of},
    {"sizes", "BxHxTxD", Unit::text, Where::table, {}, sizes_of},
    {"variant", "kiln's variant", Unit::text, Where::differs},
    {"peer", "peer", Unit::text, Where::table},
    {"kiln_forward_ms", "kiln fwd ms", Unit::milliseconds, Where::table},
    {"kiln_backward_ms", "bwd", Unit::milliseconds, Where::table},
    {"kiln_both_ms", "both", Unit::milliseconds, Where::table},
    {"kiln_forward_tflops", "kiln fwd TFLOP/s", Unit::number, Where::table},
    {"kiln_backward_tflops", "bwd TFLOP/s", Unit::number, Where::table},
    {"peer_forward_ms", "peer fwd ms", Unit::milliseconds, Where::table},
    {"peer_backward_ms", "peer bwd", Unit::milliseconds, Where::table},
    {"peer_both_ms", "peer both", Unit::milliseconds, Where::table},
    {"forward_ratio", "fwd ratio", Unit::times, Where::table},
    {"backward_ratio", "bwd ratio", Unit::times, Where::table},
    {"both_ratio", "both ratio", Unit::times, Where::table},
};

// A number by its value, however it was written.
std::string value_text(const Json& row, const char* key) {
  const auto number = number_at(row, key);
  return number ? plain(*number, 6) : text_at(row, key);
}

std::string values_of(const Json& row, std::span<const char* const> keys) {
  std::string text;
  for (const char* key : keys) text += value_text(row, key) + "\n";
  return text;
}

std::string host_text(const Json& row, const char* key) {
  const Json* host = row.find("host");
  return host != nullptr && host->is_object() ? text_at(*host, key) : std::string();
}

bool is_attention(const Json& row) { return row.contains("seq") && row.contains("pass"); }

// "PyTorch graph", "cuDNN"
std::string peer_name(const Json& row) {
  const std::string peer = text_at(row, "peer"), variant = text_at(row, "peer_variant");
  return variant.empty() ? peer : fmt::format("{} {}", peer, variant);
}

// The rows of one cell, by pass; of a step there is one, without a name.
struct Cell {
  Json first;
  std::map<std::string, Json> passes;
};
using Cells = std::vector<std::pair<std::string, Cell>>;  // in the order in which they were stored

// `own`: what tells apart the rows of one side, a variant or a preset, beside the keys both sides share.
Cells cells_of(std::span<const Json> rows, std::span<const char* const> keys, auto own) {
  Cells cells;
  for (const Json& row : rows) {
    const std::string name = values_of(row, keys) + own(row);
    const auto at = std::find_if(cells.begin(), cells.end(), [&](const auto& c) { return c.first == name; });
    Cell& cell = at == cells.end() ? cells.emplace_back(name, Cell{row, {}}).second : at->second;
    cell.passes[text_at(row, "pass")] = row;  // a later measurement replaces an earlier one
  }
  return cells;
}

void put(Json& line, const std::string& key, const Json& row, const char* from) {
  if (const auto value = number_at(row, from)) line[key] = *value;
}

Json joined_line(const Cell& kiln, const Cell& peer, std::span<const char* const> keys) {
  Json line = Json::object();
  for (const char* key : keys)
    if (const Json* value = kiln.first.find(key)) line[key] = *value;
  for (const char* key : {"preset", "variant"})
    if (const Json* value = kiln.first.find(key)) line[key] = *value;
  line["peer"] = peer_name(peer.first);
  line["peer_name"] = text_at(peer.first, "peer");
  for (const auto& [pass, row] : kiln.passes) {
    const std::string of = pass.empty() ? "" : pass + "_";
    put(line, fmt::format("kiln_{}ms", of), row, "p50_ms");
    put(line, fmt::format("kiln_{}tflops", of), row, "tflops");
    const auto other = peer.passes.find(pass);
    if (other == peer.passes.end()) continue;
    put(line, fmt::format("peer_{}ms", of), other->second, "p50_ms");
    if (const double ratio = ratio_at(other->second, row, "p50_ms"); ratio > 0)
      line[pass.empty() ? "ratio" : pass + "_ratio"] = ratio;
  }
  if (!line.contains("peer_ms")) line["peer_status"] = name_of(status_of(peer.first));
  put(line, "kiln_peak_bytes", kiln.first, "peak_bytes");
  put(line, "peer_peak_bytes", peer.first, "peak_bytes");
  put(line, "kiln_first_ms", kiln.first, "first_step_ms");
  put(line, "peer_first_ms", peer.first, "first_step_ms");
  return line;
}

std::vector<Json> of_tables(std::span<const Json> rows) {
  std::vector<Json> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), belongs_in_tables);
  return kept;
}

// Where there is one peer alone its name stands above its columns.
void name_the_peer(RowTable& table, std::span<const Json> lines) {
  const std::string name = text_at(lines.front(), "peer_name");
  const bool one =
      std::all_of(lines.begin(), lines.end(), [&](const Json& l) { return text_at(l, "peer_name") == name; });
  if (!one || name.empty()) return;
  for (std::string& title : table.lines.front())
    if (title.starts_with("peer ")) title = name + title.substr(4);
}

std::set<std::string> values(std::span<const Json> rows, auto get) {
  std::set<std::string> found;
  for (const Json& row : rows)
    if (std::string value = get(row); !value.empty()) found.insert(std::move(value));
  return found;
}

// Who measured, where and when.
std::string place_line(std::span<const Json> rows, std::span<const Json> peers) {
  const auto list = [](const std::set<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ", "));
  };
  std::set<std::string> days = values(rows, [](const Json& r) { return text_at(r, "time").substr(0, 10); });
  days.merge(values(peers, [](const Json& r) { return text_at(r, "time").substr(0, 10); }));
  return fmt::format("{}; kiln {}; {}; measured {}; medians, a ratio above 1 says that kiln is faster",
                     list(values(rows, [](const Json& r) { return machine_of(r); })),
                     list(values(rows, [](const Json& r) { return text_at(r, "build_id"); })),
                     list(values(peers, [](const Json& r) { return text_at(r, "peer_version"); })),
                     list(days));
}

// Figures of two machines do not compare. Those of the peer's that are of another one than all of kiln's.
std::vector<std::string> drop_other_machines(std::span<const Json> rows, std::vector<Json>& peers) {
  const auto machine = [](const Json& r) { return host_text(r, "device_name"); };
  const std::set<std::string> own = values(rows, machine);
  std::set<std::string> others;
  std::erase_if(peers, [&](const Json& r) {
    const bool other = own.count(machine(r)) == 0;
    if (other) others.insert(machine(r).empty() ? "an unnamed machine" : machine(r));
    return other;
  });
  if (others.empty()) return {};
  return {fmt::format("rows of the peer are left out: measured on {}, kiln's on {}", fmt::join(others, ", "),
                      fmt::join(own, ", "))};
}

}  // namespace

StudyPage peers_page(std::span<const Json> all_rows, std::span<const Json> all_peers,
                     const std::vector<std::string>& columns) {
  StudyPage page;
  std::vector<Json> rows = of_tables(all_rows), peers = of_tables(all_peers);
  page.notes = left_out_notes(all_rows, " of kiln");
  for (std::string& note : left_out_notes(all_peers, " of the peer")) page.notes.push_back(std::move(note));
  for (std::string& note : drop_other_machines(rows, peers)) page.notes.push_back(std::move(note));
  if (rows.empty() || peers.empty())
    throw Error(fmt::format("no rows are left to compare{}",
                            page.notes.empty() ? "" : fmt::format(" ({})", fmt::join(page.notes, "; "))),
                "measure both on one machine: make results");
  const bool cells = is_attention(rows.front());
  const std::span<const char* const> keys =
      cells ? std::span<const char* const>(kCellKeys) : std::span<const char* const>(kStepKeys);
  const Cells of_kiln = cells_of(rows, keys, [](const Json& r) {
    return fmt::format("{}\n{}", text_at(r, "preset"), text_at(r, "variant"));
  });
  const Cells of_peers = cells_of(peers, keys, peer_name);
  std::vector<Json> lines;
  std::size_t alone = 0;
  for (const auto& [name, kiln] : of_kiln) {
    const std::string shared = values_of(kiln.first, keys);
    const std::size_t before = lines.size();
    for (const auto& [other_name, peer] : of_peers)
      if (other_name.starts_with(shared)) lines.push_back(joined_line(kiln, peer, keys));
    if (lines.size() == before) ++alone;
  }
  if (alone > 0)
    page.notes.push_back(fmt::format("{} of {} figures of kiln {} no partner among the peer's", alone,
                                     of_kiln.size(), alone == 1 ? "has" : "have"));
  if (lines.empty())
    throw Error(
        fmt::format("kiln's {} rows and the peer's {} measured nothing in common", rows.size(), peers.size()),
        "measure the same sizes with both: make results");
  page.place = place_line(rows, peers);
  const std::span<const ColumnForm> known =
      cells ? std::span<const ColumnForm>(kAttentionColumns) : std::span<const ColumnForm>(kStepColumns);
  RowTable table = row_table(chosen_columns(known, columns), lines);
  name_the_peer(table, lines);
  page.json = {{"command", "report"}, {"place", page.place}, {"rows", lines}, {"remarks", page.notes}};
  page.tables.push_back({"", std::move(table.lines), table.left, true});
  return page;
}

}  // namespace kiln

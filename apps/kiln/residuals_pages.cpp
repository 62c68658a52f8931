#include "kiln/residuals_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "studies/format.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// Tensors at least half as large as the largest input: the ones that matter.
int64_t full_size(const ResidualLedger& ledger, std::size_t input) {
  return std::count_if(ledger.saved.begin(), ledger.saved.end(),
                       [&](const KeptTensor& s) { return 2 * s.bytes >= std::max<std::size_t>(input, 1); });
}

std::string written_by(const KeptTensor& s) {
  return s.input ? fmt::format("{} (input)", s.producer) : s.producer;
}

// The part of a scope that tells the halves of a block apart.
std::string place_of(const std::string& scope) {
  const auto dot = scope.rfind('.');
  return dot == std::string::npos ? scope : scope.substr(dot + 1);
}

std::string ledger_table(const ResidualLedger& ledger, bool places) {
  TextTable table = {{"op", "tensor", "written by", "dtype", "shape", "MiB", "not yet kept"}};
  for (const KeptTensor& s : ledger.saved) {
    const std::string op = places ? fmt::format("{}: {}", place_of(s.scope), s.op) : s.op;
    table.push_back({op, s.name, written_by(s), std::string(name_of(s.dtype)), s.shape.str(),
                     fine_mib(s.bytes), fine_mib(s.new_bytes)});
  }
  return aligned(table, 4);
}

std::string loads_table(const ResidualLedger& ledger, bool places) {
  TextTable table = {{"backward of", "saved", "gradients", "weights", "MiB read"}};
  for (const BackwardLoads& l : ledger.loads) {
    const std::string op = places ? fmt::format("{}: {}", place_of(l.scope), l.op) : l.op;
    table.push_back({op, fine_mib(l.saved), fine_mib(l.gradients), fine_mib(l.params), fine_mib(l.total())});
  }
  return aligned(table, 1);
}

ordered_json ledger_json(const ResidualLedger& ledger) {
  ordered_json saved = ordered_json::array(), loads = ordered_json::array(), shares = ordered_json::array();
  for (const KeptTensor& s : ledger.saved) {
    ordered_json shape = ordered_json::array();
    for (int i = 0; i < s.shape.rank(); ++i) shape.push_back(s.shape[i]);
    saved.push_back({{"op", s.op},
                     {"variant", s.variant},
                     {"scope", s.scope},
                     {"name", s.name},
                     {"shape", shape},
                     {"dtype", name_of(s.dtype)},
                     {"bytes", s.bytes},
                     {"new_bytes", s.new_bytes},
                     {"producer", s.producer},
                     {"input", s.input}});
  }
  for (const BackwardLoads& l : ledger.loads) {
    loads.push_back({{"op", l.op},
                     {"variant", l.variant},
                     {"scope", l.scope},
                     {"saved_bytes", l.saved},
                     {"gradient_bytes", l.gradients},
                     {"param_bytes", l.params}});
  }
  for (const ResidualShare& s : largest_shares(ledger, 5))
    shares.push_back({{"op", s.op}, {"bytes", s.bytes}, {"share", s.share}});
  return {{"saved", saved},
          {"loads", loads},
          {"largest", shares},
          {"kept_bytes", ledger.bytes()},
          {"input_bytes", ledger.input_bytes()},
          {"loaded_bytes", ledger.loaded()}};
}

ordered_json memory_json(const OpResiduals::Memory& m) {
  return {{"kept_beside_inputs_bytes", m.kept}, {"net_change_bytes", m.net_change}, {"peak_bytes", m.peak}};
}

ordered_json memory_json(const BlockMemory& m) { return {{"kept_bytes", m.kept}, {"freed_bytes", m.freed}}; }

// One line of a table with a column for each implementation.
template <class Items, class Cell>
void add_line(TextTable& table, const std::string& label, const Items& items, Cell cell) {
  std::vector<std::string> line = {label};
  for (const auto& item : items) line.push_back(cell(item));
  table.push_back(std::move(line));
}

std::string device_words(const Device& device) {
  return device.is_meta() ? fmt::format("planned for {}", name_of(device.target)) : device.str();
}

}  // namespace

std::string residuals_op_text(const ResidualsOpReport& report) {
  const ResidualsOpRequest& q = report.request;
  std::string text = fmt::format("{}, {}, {}, {}: what forward keeps for backward\n", q.bench.op,
                                 q.shape.str(), name_of(q.dtype), device_words(q.device));
  std::vector<const OpResiduals*> here;
  std::string reasons;
  for (const OpResiduals& v : report.variants) {
    if (!v.reason.empty()) {
      reasons += fmt::format("{}: {}\n", v.variant, v.reason);
      continue;
    }
    here.push_back(&v);
    text +=
        fmt::format("\n{}\n{}\n{}", v.variant, ledger_table(v.ledger, false), loads_table(v.ledger, false));
  }
  TextTable table = {{"MiB"}};
  for (const OpResiduals* v : here) table[0].push_back(v->variant);
  using V = const OpResiduals*;
  add_line(table, "tensors saved", here, [](V v) { return fmt::format("{}", v->ledger.saved.size()); });
  add_line(table, "  of full size", here,
           [&](V v) { return fmt::format("{}", full_size(v->ledger, report.largest_input)); });
  add_line(table, "kept", here, [](V v) { return fine_mib(v->ledger.bytes()); });
  add_line(table, "  of it inputs", here, [](V v) { return fine_mib(v->ledger.input_bytes()); });
  add_line(table, "  beside them, predicted", here, [](V v) { return fine_mib(v->predicted.kept); });
  add_line(table, "  beside them, measured", here,
           [](V v) { return v->measured ? fine_mib(v->measured->kept) : std::string("-"); });
  add_line(table, "  floor", here, [&](V) { return fine_mib(report.floor); });
  add_line(table, "read by backward", here, [](V v) { return fine_mib(v->ledger.loaded()); });
  add_line(table, "  read and written, by its cost", here, [](V v) { return fine_mib(v->backward.bytes); });
  add_line(table, "gradients left", here, [](V v) { return fine_mib(v->gradients); });
  add_line(table, "change over backward, predicted", here,
           [](V v) { return fine_mib(v->predicted.net_change); });
  add_line(table, "  measured", here,
           [](V v) { return v->measured ? fine_mib(v->measured->net_change) : std::string("-"); });
  add_line(table, "most at once, predicted", here, [](V v) { return fine_mib(v->predicted.peak); });
  add_line(table, "  measured", here,
           [](V v) { return v->measured ? fine_mib(v->measured->peak) : std::string("-"); });
  text += fmt::format("\n{}", aligned(table, 1));
  if (!reasons.empty()) text += fmt::format("\n{}", reasons);
  return text;
}

std::string residuals_op_json(const ResidualsOpReport& report) {
  const ResidualsOpRequest& q = report.request;
  ordered_json variants = ordered_json::array(), others = ordered_json::array();
  for (const OpResiduals& v : report.variants) {
    if (!v.reason.empty()) {
      others.push_back({{"variant", v.variant}, {"reason", v.reason}});
      continue;
    }
    ordered_json row = {{"variant", v.variant}};
    row.update(ledger_json(v.ledger));
    row["full_size"] = full_size(v.ledger, report.largest_input);
    row["predicted"] = memory_json(v.predicted);
    row["measured"] = v.measured ? memory_json(*v.measured) : ordered_json();
    row["gradient_bytes"] = v.gradients;
    row["backward_cost_bytes"] = v.backward.bytes;
    variants.push_back(std::move(row));
  }
  ordered_json shape = ordered_json::object();
  for (const auto& [key, value] : q.shape.all()) shape[key] = value;
  return dump({{"command", "residuals"},
               {"study", "op"},
               {"op", q.bench.op},
               {"shape", shape},
               {"dtype", name_of(q.dtype)},
               {"device", q.device.str()},
               {"floor_bytes", report.floor},
               {"variants", variants},
               {"not_here", others}},
              2) +
         "\n";
}

std::string residuals_block_text(const ResidualsBlockReport& report) {
  const ResidualsBlockRequest& q = report.request;
  const ModelConfig& m = q.block.model;
  std::string text = fmt::format("one block of {}: d_model {}, d_ff {}, {} heads, batch {}, ctx {}, {}, {}\n",
                                 q.size, m.d_model, m.d_ff, m.heads, q.block.batch, q.block.context,
                                 name_of(q.block.precision), device_words(q.block.rank.device));
  for (std::size_t i = 0; i < report.blocks.size(); ++i) {
    const ResidualLedger& ledger = report.blocks[i].ledger;
    text += fmt::format("\n{}: kept for backward\n{}", q.presets[i], ledger_table(ledger, true));
    TextTable shares = {{"largest", "MiB", "of all"}};
    for (const ResidualShare& s : largest_shares(ledger, 5))
      shares.push_back({s.op, fine_mib(s.bytes), fmt::format("{:.1f} %", 100 * s.share)});
    text += fmt::format("\n{}\n{}", aligned(shares, 1), loads_table(ledger, true));
  }
  TextTable table = {{"MiB"}};
  for (const std::string& preset : q.presets) table[0].push_back(preset);
  using B = const BlockResiduals&;
  add_line(table, "kept by a block, by its ledger", report.blocks,
           [](B b) { return fine_mib(b.ledger.bytes()); });
  add_line(table, "  predicted by meta", report.blocks, [](B b) { return fine_mib(b.predicted.kept); });
  add_line(table, "  measured", report.blocks,
           [](B b) { return b.measured ? fine_mib(b.measured->kept) : std::string("-"); });
  add_line(table, "  floor: its input alone", report.blocks, [](B b) { return fine_mib(b.stream); });
  add_line(table, "freed by its backward, predicted", report.blocks,
           [](B b) { return fine_mib(b.predicted.freed); });
  add_line(table, "  measured", report.blocks,
           [](B b) { return b.measured ? fine_mib(b.measured->freed) : std::string("-"); });
  add_line(table, "read by its backward", report.blocks, [](B b) { return fine_mib(b.ledger.loaded()); });
  add_line(table, "gradients of its weights", report.blocks, [](B b) { return fine_mib(b.gradients); });
  add_line(table, "  expected from its shape", report.blocks,
           [](B b) { return fine_mib(b.gradients_expected); });
  add_line(table, "gradients less what is freed", report.blocks, [](B b) {
    return fine_mib(static_cast<int64_t>(b.gradients) - static_cast<int64_t>(b.predicted.freed));
  });
  for (std::size_t k = 0; k < report.blocks.front().stack.size(); ++k) {
    const Recompute kind = report.blocks.front().stack[k].recompute;
    add_line(table, fmt::format("kept by {} blocks, --recompute {}", m.layers, name_of(kind)), report.blocks,
             [&](B b) { return fine_mib(b.stack[k].bytes); });
  }
  text += fmt::format("\n{}", aligned(table, 1));
  text += fmt::format(
      "The residual stream: {} x {} x {} in {} is {} MiB. Gradients live in the arena from the start, so "
      "that\n"
      "backward only frees; where they are allocated as they come, a block changes memory by the line "
      "\"less\".\n",
      q.block.batch, q.block.context, m.d_model, name_of(policy_of(q.block.precision).value),
      fine_mib(report.blocks.front().stream));
  return text;
}

std::string residuals_block_json(const ResidualsBlockReport& report) {
  const ResidualsBlockRequest& q = report.request;
  const ModelConfig& m = q.block.model;
  ordered_json blocks = ordered_json::array();
  for (std::size_t i = 0; i < report.blocks.size(); ++i) {
    const BlockResiduals& b = report.blocks[i];
    ordered_json stack = ordered_json::array();
    for (const KeptByStack& k : b.stack)
      stack.push_back({{"recompute", name_of(k.recompute)}, {"kept_bytes", k.bytes}});
    ordered_json row = {{"preset", q.presets[i]}};
    row.update(ledger_json(b.ledger));
    row.update({{"predicted", memory_json(b.predicted)},
                {"measured", b.measured ? memory_json(*b.measured) : ordered_json()},
                {"floor_bytes", b.stream},
                {"residual_stream_bytes", b.stream},
                {"gradient_bytes", b.gradients},
                {"expected_gradient_bytes", b.gradients_expected},
                {"stack", stack}});
    blocks.push_back(std::move(row));
  }
  return dump({{"command", "residuals"},
               {"study", "block"},
               {"size", q.size},
               {"d_model", m.d_model},
               {"d_ff", m.d_ff},
               {"heads", m.heads},
               {"layers", m.layers},
               {"batch", q.block.batch},
               {"ctx", q.block.context},
               {"dtype", name_of(q.block.precision)},
               {"variants", q.variants},
               {"device", q.block.rank.device.str()},
               {"blocks", blocks}},
              2) +
         "\n";
}

}  // namespace kiln::cli

#include "studies/residuals/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;

// --- the ledger: tensors saved, what backward reads, the largest of them

// The part of a scope that names the half of a block, before the op.
std::string op_text(const Json& row) {
  const std::string scope = text_at(row, "scope");
  if (scope.empty()) return text_at(row, "op");
  const auto dot = scope.rfind('.');
  return fmt::format("{}: {}", dot == std::string::npos ? scope : scope.substr(dot + 1), text_at(row, "op"));
}

std::string shape_text(const Json& row) {
  std::string text;
  for (const Json& size : row.at("shape")) text += (text.empty() ? "" : ", ") + size.dump();
  return fmt::format("[{}]", text);
}

std::string writer_text(const Json& row) {
  return text_at(row, "producer") + (row.at("input").get<bool>() ? " (input)" : "");
}

Json shape_json(const Shape& shape) {
  Json sizes = Json::array();
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return sizes;
}

const Schema<KeptTensor>& saved_schema() {
  using R = KeptTensor;
  static const Schema<R> kSchema = {
      {"op", "op", Unit::text, field<&R::op>, kTable, "", op_text},
      {"variant", "", Unit::text, field<&R::variant>},
      {"scope", "", Unit::text, field<&R::scope>},
      {"name", "tensor", Unit::text, field<&R::name>, kTable},
      {"producer", "written by", Unit::text, field<&R::producer>, kTable, "", writer_text},
      {"dtype", "dtype", Unit::text, field<&R::dtype>, kTable},
      {"shape", "shape", Unit::count, [](const R& r) { return shape_json(r.shape); }, kTable, "", shape_text},
      {"bytes", "MiB", Unit::mebibytes, field<&R::bytes>, kTable},
      {"new_bytes", "not yet kept", Unit::mebibytes, field<&R::new_bytes>, kTable},
      {"input", "", Unit::text, field<&R::input>},
  };
  return kSchema;
}

std::string loaded_text(const Json& row) {
  double sum = 0;
  for (const char* key : {"saved_bytes", "gradient_bytes", "param_bytes"}) sum += row.at(key).get<double>();
  return fine_mib(sum);
}

const Schema<BackwardLoads>& loads_schema() {
  using R = BackwardLoads;
  static const Schema<R> kSchema = {
      {"op", "backward of", Unit::text, field<&R::op>, kTable, "", op_text},
      {"variant", "", Unit::text, field<&R::variant>},
      {"scope", "", Unit::text, field<&R::scope>},
      {"saved_bytes", "saved", Unit::mebibytes, field<&R::saved>, kTable},
      {"gradient_bytes", "gradients", Unit::mebibytes, field<&R::gradients>, kTable},
      {"param_bytes", "weights", Unit::mebibytes, field<&R::params>, kTable},
      {"", "MiB read", Unit::mebibytes, nullptr, kTable, "", loaded_text},
  };
  return kSchema;
}

const Schema<ResidualShare>& share_schema() {
  using R = ResidualShare;
  static const Schema<R> kSchema = {
      {"op", "largest", Unit::text, field<&R::op>, kTable},
      {"bytes", "MiB", Unit::mebibytes, field<&R::bytes>, kTable},
      {"share", "of all", Unit::share, field<&R::share>, kTable},
  };
  return kSchema;
}

// Of an op's variant or a block.
template <class Kept>
RowOutcome outcome_of(const Kept& k) {
  if (!k.measured) return {.status = RowStatus::modelled};
  return {.gate = k.measured->kept == k.predicted.kept ? Gate::passed : Gate::not_verified};
}

Json ledger_json(const ResidualLedger& ledger) {
  return {{"saved", saved_schema().rows(ledger.saved)},
          {"loads", loads_schema().rows(ledger.loads)},
          {"largest", share_schema().rows(largest_shares(ledger, 5))},
          {"kept_bytes", ledger.bytes()},
          {"input_bytes", ledger.input_bytes()},
          {"loaded_bytes", ledger.loaded()}};
}

// --- rows: a variant of an op, a block by a preset

Json memory_json(const OpResiduals::Memory& m) {
  return {{"kept_beside_inputs_bytes", m.kept}, {"net_change_bytes", m.net_change}, {"peak_bytes", m.peak}};
}

Json memory_json(const BlockMemory& m) { return {{"kept_bytes", m.kept}, {"freed_bytes", m.freed}}; }

// Of the memory that was predicted, or measured.
std::string mib_of(const Json& row, const char* whose, const char* key) {
  const Json* memory = row.find(whose);
  return memory == nullptr ? "-" : mebibytes_at(*memory, key);
}

struct VariantLine {
  const ResidualsOpReport& report;
  const OpResiduals& of;
};

// Tensors at least half as large as the largest input: the ones that matter.
int64_t full_size(const VariantLine& l) {
  const std::size_t input = std::max<std::size_t>(l.report.largest_input, 1);
  const auto& saved = l.of.ledger.saved;
  return std::count_if(saved.begin(), saved.end(), [&](const KeptTensor& s) { return 2 * s.bytes >= input; });
}

const Schema<VariantLine>& variant_schema() {
  using L = VariantLine;
  using J = const Json&;
  constexpr Unit kMiB = Unit::mebibytes;
  static const Schema<L> kSchema = {
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.of)); }, stored_outcome_forms()),
      {"variant", "MiB", Unit::text, [](const L& l) { return Json(l.of.variant); }, kTable},
      {.key = "", .title = "", .get = [](const L& l) { return ledger_json(l.of.ledger); }},
      {"", "tensors saved", Unit::count, nullptr, kTable, "",
       [](J row) { return std::to_string(row.at("saved").size()); }},
      {"full_size", "  of full size", Unit::count, [](const L& l) { return Json(full_size(l)); }, kTable},
      {"kept_bytes", "kept", kMiB, nullptr, kTable},
      {"input_bytes", "  of these inputs", kMiB, nullptr, kTable},
      {"predicted", "  other memory, predicted", kMiB, [](const L& l) { return memory_json(l.of.predicted); },
       kTable, "", [](J row) { return mib_of(row, "predicted", "kept_beside_inputs_bytes"); }},
      or_null<L>({"measured", "  other memory, measured", kMiB,
                  [](const L& l) { return l.of.measured ? memory_json(*l.of.measured) : Json(); }, kTable, "",
                  [](J row) { return mib_of(row, "measured", "kept_beside_inputs_bytes"); }}),
      {"floor_bytes", "  floor", kMiB, [](const L& l) { return Json(l.report.floor); }, kTable},
      {"loaded_bytes", "read by backward", kMiB, nullptr, kTable},
      {"backward_cost_bytes", "  read and written, by its cost", kMiB,
       [](const L& l) { return Json(l.of.backward.bytes); }, kTable},
      {"gradient_bytes", "gradients left", kMiB, [](const L& l) { return Json(l.of.gradients); }, kTable},
      {"", "change over backward, predicted", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "predicted", "net_change_bytes"); }},
      {"", "  measured", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "measured", "net_change_bytes"); }},
      {"", "peak, predicted", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "predicted", "peak_bytes"); }},
      {"", "  measured", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "measured", "peak_bytes"); }},
  };
  return kSchema;
}

struct BlockLine {
  const std::string& preset;
  const BlockResiduals& of;
};

Json stack_json(const BlockLine& l) {
  Json stack = Json::array();
  for (const KeptByStack& k : l.of.stack)
    stack.push_back({{"recompute", name_of(k.recompute)}, {"kept_bytes", k.bytes}});
  return stack;
}

std::string less_freed(const Json& row) {
  const Json* predicted = row.find("predicted");
  return fine_mib(row.at("gradient_bytes").get<double>() - predicted->at("freed_bytes").get<double>());
}

const Schema<BlockLine>& block_schema() {
  using L = BlockLine;
  using J = const Json&;
  constexpr Unit kMiB = Unit::mebibytes;
  static const Schema<L> kSchema = {
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.of)); }, stored_outcome_forms()),
      {"preset", "MiB", Unit::text, [](const L& l) { return Json(l.preset); }, kTable},
      {.key = "", .title = "", .get = [](const L& l) { return ledger_json(l.of.ledger); }},
      {"kept_bytes", "kept by a block, by its ledger", kMiB, nullptr, kTable},
      {"input_bytes", "", kMiB, nullptr},
      {"predicted", "  predicted by meta", kMiB, [](const L& l) { return memory_json(l.of.predicted); },
       kTable, "", [](J row) { return mib_of(row, "predicted", "kept_bytes"); }},
      or_null<L>({"measured", "  measured", kMiB,
                  [](const L& l) { return l.of.measured ? memory_json(*l.of.measured) : Json(); }, kTable, "",
                  [](J row) { return mib_of(row, "measured", "kept_bytes"); }}),
      {"floor_bytes", "  floor: its input alone", kMiB, [](const L& l) { return Json(l.of.stream); }, kTable},
      {"residual_stream_bytes", "", kMiB, [](const L& l) { return Json(l.of.stream); }},
      {"", "freed by its backward, predicted", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "predicted", "freed_bytes"); }},
      {"", "  measured", kMiB, nullptr, kTable, "",
       [](J row) { return mib_of(row, "measured", "freed_bytes"); }},
      {"loaded_bytes", "read by its backward", kMiB, nullptr, kTable},
      {"gradient_bytes", "gradients of its weights", kMiB, [](const L& l) { return Json(l.of.gradients); },
       kTable},
      {"expected_gradient_bytes", "  expected from its shape", kMiB,
       [](const L& l) { return Json(l.of.gradients_expected); }, kTable},
      {"", "gradients minus what is freed", kMiB, nullptr, kTable, "", less_freed},
      {"stack", "", Unit::text, stack_json},
  };
  return kSchema;
}

// --- pages

std::string device_text(const Device& device) {
  return device.is_meta() ? fmt::format("planned for {}", name_of(device.target)) : device.str();
}

void add_ledger(StudyPage& page, const std::string& heading, const Json& row, bool largest) {
  page.tables.push_back(page_table(heading, saved_schema().forms(), row.at("saved")));
  if (largest) page.tables.push_back(page_table("", share_schema().forms(), row.at("largest")));
  page.tables.push_back(page_table("", loads_schema().forms(), row.at("loads")));
}

PageTable stack_table(const ResidualsBlockReport& report) {
  PageTable t{fmt::format("kept by {} blocks", report.request.block.model.layers), {{"MiB"}}};
  for (const std::string& preset : report.request.presets) t.table[0].push_back(preset);
  for (std::size_t k = 0; k < report.blocks.front().stack.size(); ++k) {
    std::vector<std::string> line = {
        fmt::format("--recompute {}", name_of(report.blocks.front().stack[k].recompute))};
    for (const BlockResiduals& b : report.blocks)
      line.push_back(fine_mib(static_cast<double>(b.stack[k].bytes)));
    t.table.push_back(std::move(line));
  }
  return t;
}

// What backward does to memory while the gradients lie in the arena.
std::string backward_sentence(const ResidualsBlockReport& report) {
  std::string text;
  for (std::size_t i = 0; i < report.blocks.size(); ++i) {
    const auto freed = static_cast<double>(static_cast<int64_t>(report.blocks[i].predicted.freed));
    text += fmt::format("{}backward of {} {} {} MiB",
                        i == 0 ? "With gradients in the arena from the start, " : ", ",
                        report.request.presets[i], freed >= 0 ? "frees" : "takes", fine_mib(std::abs(freed)));
  }
  return text +
         "; where they are allocated on demand, it changes memory by \"gradients minus what is freed\".";
}

}  // namespace

StudyPage residuals_op_page(const ResidualsOpReport& report) {
  const ResidualsOpRequest& q = report.request;
  StudyPage page;
  page.place = fmt::format("{}, {}, {}, {}: what forward keeps for backward", q.bench.op, q.shape.str(),
                           name_of(q.dtype), device_text(q.device));
  page.columns = variant_schema().forms();
  page.shown.transposed = true;
  Json others = Json::array(), shape = Json::object();
  for (const OpResiduals& v : report.variants) {
    if (!v.reason.empty()) {
      others.push_back({{"variant", v.variant}});
      others.back().update(outcome_json({.status = RowStatus::unsupported, .reason = v.reason}));
      page.notes.push_back(fmt::format("{}: {}", v.variant, v.reason));
      continue;
    }
    page.rows.push_back(variant_schema().row({report, v}));
    add_ledger(page, v.variant, page.rows.back(), false);
  }
  for (const auto& [key, value] : q.shape.all()) shape[key] = value;
  page.json = {{"command", "residuals"},
               {"study", "op"},
               {"op", q.bench.op},
               {"shape", shape},
               {"dtype", name_of(q.dtype)},
               {"device", q.device.str()},
               {"floor_bytes", report.floor},
               {"variants", page.rows},
               {"not_here", others}};
  return page;
}

StudyPage residuals_block_page(const ResidualsBlockReport& report) {
  const ResidualsBlockRequest& q = report.request;
  const ModelConfig& m = q.block.model;
  StudyPage page;
  page.place = fmt::format("one block of {}: d_model {}, d_ff {}, {} heads, batch {}, ctx {}, {}, {}", q.size,
                           m.d_model, m.d_ff, m.heads, q.block.batch, q.block.context,
                           name_of(q.block.precision), device_text(q.block.rank.device));
  page.columns = block_schema().forms();
  page.shown.transposed = true;
  page.tables.push_back(stack_table(report));
  page.tables.back().lines.push_back(
      fmt::format("The residual stream: {} x {} x {} in {} is {} MiB. {}", q.block.batch, q.block.context,
                  m.d_model, name_of(policy_of(q.block.precision).value),
                  fine_mib(static_cast<double>(report.blocks.front().stream)), backward_sentence(report)));
  for (std::size_t i = 0; i < report.blocks.size(); ++i) {
    page.rows.push_back(block_schema().row({q.presets[i], report.blocks[i]}));
    add_ledger(page, fmt::format("{}: kept for backward", q.presets[i]), page.rows.back(), true);
  }
  page.json = {{"command", "residuals"}, {"study", "block"},
               {"size", q.size},         {"d_model", m.d_model},
               {"d_ff", m.d_ff},         {"heads", m.heads},
               {"layers", m.layers},     {"batch", q.block.batch},
               {"ctx", q.block.context}, {"dtype", name_of(q.block.precision)},
               {"variants", q.variants}, {"device", q.block.rank.device.str()},
               {"blocks", page.rows}};
  return page;
}

}  // namespace kiln

#include "studies/sizes/sizes.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/plain_number.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

constexpr int64_t kContext = 512;
constexpr double kGiB = 0x1p30;

// Of the registry, where a model may be one that is only calculated with, or of the user's own.
struct SizeRow {
  std::string name;
  SizeKind kind = SizeKind::llama;
  std::string note;
  int64_t d_model, d_ff, layers, heads, head_dim, vocab, params;
  double flops;  // of training, a token
  bool tied = false;
};

SizeRow row_of(const ModelSize& s) {
  return {.name = std::string(s.name),
          .kind = s.kind,
          .note = std::string(s.note),
          .d_model = s.d_model,
          .d_ff = s.d_ff,
          .layers = s.layers,
          .heads = s.heads,
          .head_dim = s.head_dim(),
          .vocab = s.vocab,
          .params = param_count(s),
          .flops = train_flops_per_token(s, kContext)};
}

SizeRow row_of(const NamedModel& m) {
  const ModelConfig& c = m.config;
  return {.name = m.name,
          .note = "as asked for",
          .d_model = c.d_model,
          .d_ff = c.d_ff,
          .layers = c.layers,
          .heads = c.heads,
          .head_dim = c.head_dim(),
          .vocab = c.vocab,
          .params = param_count(m),
          .flops = train_flops_per_token(m, kContext),
          .tied = c.tied};
}

std::vector<SizeRow> rows_of(const ModelOptions& asked) {
  std::vector<SizeRow> rows;
  const bool changed = asked.layers || asked.d_model || asked.d_ff || asked.heads || asked.kv_heads ||
                       asked.vocab || asked.tied;
  if (!asked.model.empty() || (changed && !asked.sizes.empty())) {
    for (const NamedModel& m : models_of(asked)) rows.push_back(row_of(m));
    return rows;
  }
  if (changed)
    throw Error("a dimension is given without a model to change", "name one, or give --model",
                ErrorKind::usage);
  for (const std::string& name : asked.sizes) rows.push_back(row_of(find_model_size(name)));
  if (asked.sizes.empty())
    for (const ModelSize& s : model_sizes()) rows.push_back(row_of(s));
  return rows;
}

std::string human_count(const Json& row) {
  const auto n = row.at("params").get<int64_t>();
  const double d = static_cast<double>(n);
  if (n < 1'000'000) return fmt::format("{} K", plain(d / 1e3, 4));
  if (n < 100'000'000) return fmt::format("{} M", plain(d / 1e6, 4));
  return fmt::format("{:.{}f} B", d / 1e9, n < 10'000'000'000 ? 4 : n < 100'000'000'000 ? 3 : 2);
}

template <const char* kKey>
std::string or_dash(const Json& row) {  // what a model has none of is 0
  const auto n = row.at(kKey).template get<int64_t>();
  return n == 0 ? "-" : std::to_string(n);
}

constexpr char kHeads[] = "n_heads", kHeadDim[] = "head_dim", kVocab[] = "vocab";

std::string state_text(const Json& row) {
  const double gib = row.at("fp32_state_gib").get<double>();
  return fmt::format("{:.{}f}", gib, gib < 100 ? 2 : 1);
}

std::string flops_text(const Json& row) {
  return plain(row.at("train_flops_per_token").get<double>() / 1e9, 4);
}

const Schema<SizeRow>& schema() {
  using R = SizeRow;
  constexpr Where kTable = Where::table;
  static const Schema<R> kSchema = {
      {"name", "size", Unit::text, field<&R::name>, kTable},
      {"kind", "kind", Unit::text, field<&R::kind>, Where::wide},
      {"d_model", "d_model", Unit::count, field<&R::d_model>, kTable},
      {"d_ff", "d_ff", Unit::count, field<&R::d_ff>, kTable},
      {"n_layers", "layers", Unit::count, field<&R::layers>, kTable},
      {kHeads, "heads", Unit::count, field<&R::heads>, kTable, "", or_dash<kHeads>},
      {kHeadDim, "head_dim", Unit::count, field<&R::head_dim>, kTable, "", or_dash<kHeadDim>},
      {kVocab, "vocab", Unit::count, field<&R::vocab>, kTable, "", or_dash<kVocab>},
      {"params", "params", Unit::count, field<&R::params>, kTable, "", human_count},
      {"fp32_state_bytes", "", Unit::bytes, [](const R& r) { return Json(r.params * kFp32StateBytes); }},
      {"fp32_state_gib", "state GiB", Unit::number,
       [](const R& r) { return Json(static_cast<double>(r.params * kFp32StateBytes) / kGiB); }, kTable, "",
       state_text},
      {"train_flops_per_token", "GFLOP/token", Unit::number, field<&R::flops>, kTable, "", flops_text},
      {"tied", "tied", Unit::text, field<&R::tied>, Where::wide},
      {"note", "note", Unit::text, field<&R::note>, Where::wide},
  };
  return kSchema;
}

}  // namespace

StudyPage sizes_page(const ModelOptions& models, bool wide) {
  StudyPage page;
  page.columns = schema().forms();
  page.shown.wide = wide;
  PageTable words;
  words.lines.push_back(
      fmt::format("state: weights, gradients and Adam moments in fp32, {} bytes a parameter. Heads untied "
                  "unless --tie-embeddings is given, SwiGLU.",
                  kFp32StateBytes));
  words.lines.push_back(
      fmt::format("GFLOP/token: training, 6 x non-embedding parameters + 6 x layers x d_model x context "
                  "(causal attention, backward twice forward), at context {}.",
                  kContext));
  for (const SizeRow& r : rows_of(models)) {
    page.rows.push_back(schema().row(r));
    if (r.kind == SizeKind::ffn_only)
      words.lines.push_back(fmt::format("{} is {}: {}.", r.name, name_of(r.kind), r.note));
  }
  page.tables.push_back(std::move(words));
  page.json = {
      {"command", "sizes"},
      {"sizes", page.rows},
      {"flops_convention",
       fmt::format("6 x non-embedding parameters + 6 x n_layers x d_model x context, causal, context {}",
                   kContext)}};
  return page;
}

}  // namespace kiln

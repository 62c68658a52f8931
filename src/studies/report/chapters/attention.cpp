// Attention alone: time and memory over lengths, unfused against flash, causal against full.
#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

const std::initializer_list<std::string_view> kCell = {"dtype", "causal", "packed", "batch",
                                                       "heads", "seq",    "d",      "pass"};

bool is_flash(const Json& row) {
  return text_at(row, "variant").find("flash") != std::string::npos || word_is(row, "variant", "hopper");
}
bool is_unfused(const Json& row) {
  return word_is(row, "variant", "composed") || word_is(row, "variant", "naive");
}

std::string median_text(const Json& row) {
  const auto ms = number_at(row, "p50_ms");
  return ms ? figure(*ms) : in_place_of_times(row);
}

PageTable cells_table(Rows rows) {
  return facts_table("", rows,
                     {{"dtype", "dtype", Unit::text, Where::table},
                      {"batch", "batch", Unit::text, Where::differs},
                      {"heads", "heads", Unit::text, Where::differs},
                      {"causal", "causal", Unit::text, Where::differs},
                      {"seq", "length", Unit::text, Where::table},
                      {"d", "d", Unit::text, Where::table},
                      {"variant", "variant", Unit::text, Where::table},
                      {"pass", "pass", Unit::text, Where::table},
                      {"", "ms, median", Unit::text, Where::table, {}, median_text},
                      {"tflops", "TFLOP/s", Unit::number, Where::table},
                      {"of_roofline", "of roofline", Unit::percent, Where::table},
                      {"before_backward_bytes", "before backward MiB", Unit::bytes, Where::table},
                      {"peak_bytes", "peak MiB", Unit::bytes, Where::table}});
}

void say_memory(Rows rows, Answer& a) {
  for (const bool flash : {false, true}) {
    const std::vector<Json> own =
        rows_where(rows, [&](const Json& r) { return flash ? is_flash(r) : is_unfused(r); });
    const Json *low = least(own, "seq"), *high = greatest(own, "seq");
    if (low == nullptr || low == high) continue;
    const std::vector<Json> same = rows_where(own, [&](const Json& r) {
      return text_at(r, "d") == text_at(*low, "d") && text_at(r, "dtype") == text_at(*low, "dtype");
    });
    const Json *from = least(same, "seq"), *to = greatest(same, "seq");
    const double grown = ratio_at(*to, *from, "before_backward_bytes"), longer = ratio_at(*to, *from, "seq");
    if (grown > 0 && longer > 1)
      a.sentences.push_back(fmt::format(
          "From length {} to {} what `{}` keeps for backward grows {} (the length {}).",
          text_at(*from, "seq"), text_at(*to, "seq"), text_at(*to, "variant"), times(grown), times(longer)));
  }
  const std::vector<Json> full =
      rows_where(rows, [](const Json& r) { return status_of(r) == RowStatus::oom; });
  if (const Json* smallest = least(full, "seq"))
    a.sentences.push_back(fmt::format("`{}` finds no memory from length {} on.",
                                      text_at(*smallest, "variant"), text_at(*smallest, "seq")));
}

Answer scales(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  if (timed.empty()) return {};
  Answer a;
  std::vector<double> ratios;
  for (const std::vector<Json>& cell : groups_by(timed, kCell)) {
    double unfused = 0, flash = 0;
    for (const Json& row : cell) {
      if (is_unfused(row)) unfused = *number_at(row, "p50_ms");
      if (is_flash(row)) flash = *number_at(row, "p50_ms");
    }
    if (unfused > 0 && flash > 0) ratios.push_back(unfused / flash);
  }
  if (const std::string range = range_of_times(ratios); !range.empty())
    a.sentences.push_back(fmt::format("Over {}, flash attention is {} as fast as the unfused one.",
                                      plural(ratios.size(), "pass"), range));
  say_memory(rows, a);
  if (a.sentences.empty())
    a.sentences.push_back(fmt::format("{} were timed, of `{}`.", plural(timed.size(), "pass"),
                                      listed(values_of(timed, "variant"))));
  a.tables.push_back(cells_table(rows));
  for (AnswerChart& c : curve(rows_where(timed, [](const Json& r) { return word_is(r, "pass", "forward"); }),
                              {.name = "attention-tflops",
                               .title = "Attention forward: TFLOP/s over the length",
                               .below = {},
                               .x_label = "length",
                               .y_label = "TFLOP/s",
                               .x = "seq",
                               .y = "tflops",
                               .by = {"variant", "dtype", "d"}}))
    a.charts.push_back(std::move(c));
  return a;
}

Answer flash_table(Rows rows) {
  const std::vector<Json> timed = rows_where(timed_rows(rows), is_flash);
  if (timed.empty()) return {};
  Answer a;
  std::vector<double> shares, errors;
  for (const Json& row : timed) {
    shares.push_back(number_at(row, "of_roofline").value_or(0));
    const double allowed = number_at(row, "allowed_error").value_or(0);
    if (allowed > 0) errors.push_back(number_at(row, "relative_error").value_or(0) / allowed);
  }
  if (const std::string range = range_of_shares(shares); !range.empty())
    a.sentences.push_back(fmt::format("`{}` reaches {} of its roofline over {}.",
                                      listed(values_of(timed, "variant")), range,
                                      plural(timed.size(), "pass")));
  if (!errors.empty())
    a.sentences.push_back(fmt::format("Its error against fp64 is at most {} of what is allowed.",
                                      percent_text(*std::max_element(errors.begin(), errors.end()))));
  a.tables.push_back(cells_table(timed));
  return a;
}

Answer causal(Rows rows) {
  std::vector<double> ratios;
  for (const std::vector<Json>& cell : groups_by(timed_rows(rows), {"command", "variant", "dtype", "packed",
                                                                    "batch", "heads", "seq", "d", "pass"})) {
    double full = 0, masked = 0;
    for (const Json& row : cell) (word_is(row, "causal", "yes") ? masked : full) = *number_at(row, "p50_ms");
    if (full > 0 && masked > 0) ratios.push_back(full / masked);
  }
  if (ratios.empty()) return {};
  return {.sentences = {fmt::format(
              "With the causal mask a pass is {} as fast as without; half of the blocks are skipped.",
              range_of_times(ratios))}};
}

constexpr Question kQuestions[] = {
    {"1.2.1",
     "pytorch_attention",
     "Attention at different scales",
     {"bench attention"},
     scales,
     "kiln bench attention --batch 8 --heads none --d 16,32,64,128 --seq 256,1024,4096 --dtype fp32 "
     "--variant composed,auto"},
    {"1.3.2 (a)",
     "flash_forward",
     "FlashAttention-2 as named variants of one op",
     {"bench attention", "bench flash"},
     flash_table,
     "kiln bench flash --batch 1 --causal --seq 128..16384 --d 16..128 --dtype bf16,fp32 --variant "
     "composed,auto"},
    {"1.3.2 (b)",
     "flash_benchmarking",
     "The fused kernels, forward and backward",
     {"bench flash", "bench leaderboard"},
     scales,
     "kiln bench flash --batch 1 --causal --seq 128..16384 --d 16..128 --dtype bf16,fp32 --variant "
     "composed,auto"},
    {"1.3.2 (c)",
     "flash_forward",
     "Causal masking",
     {"bench attention", "bench flash"},
     causal,
     "kiln bench attention --batch 8 --heads none --d 64 --seq 1024,4096 --causal --dtype fp32"},
};

}  // namespace

Chapter attention_chapter() { return {"attention", "Attention", kQuestions, "attention"}; }

}  // namespace kiln
